//! Where the server listens, and what it does if something is there already.
//!
//! Invariant: only a dead socket is ever removed to make room.

use crate::client::{Answer, Client};
use crate::fixture::{Fixture, SIZE, Scratch};
use disk::RamDisk;
use ramfold_serve::{ServeError, Server, ServerConfig};
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;

fn start(config: ServerConfig) -> Result<Server, ServeError> {
    Server::start(Arc::new(RamDisk::new(SIZE).unwrap()), config)
}

fn at(path: &Path) -> ServerConfig {
    let mut config = ServerConfig::new("ram");
    config.unix.push(path.to_owned());
    config
}

fn refusal(config: ServerConfig) -> ServeError {
    match start(config) {
        Ok(_) => panic!("the server started"),
        Err(error) => error,
    }
}

#[test]
fn the_socket_is_its_owners_alone() {
    let scratch = Scratch::new();
    let path = scratch.path("nbd.sock");
    let _server = start(at(&path)).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_directory_that_is_missing_is_not_made() {
    let scratch = Scratch::new();
    let error = refusal(at(&scratch.path("a/b/nbd.sock"))).to_string();
    assert!(error.contains("a/b: ") && error.contains("No such file or directory"), "{error}");
    assert!(!scratch.path("a").exists());
}

#[test]
fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
    let scratch = Scratch::new();
    let path = scratch.path("nbd.sock");
    drop(UnixListener::bind(&path).unwrap());
    let server = start(at(&path)).expect("a stale socket is no obstacle");
    let error = refusal(at(&path));
    assert!(matches!(error, ServeError::InUse(_)), "{error}");
    assert!(error.to_string().contains("in use by a running server"), "{error}");
    Client::open(&path, true).expect("the first server was not disturbed");
    drop(server);
    assert!(!path.exists(), "a stopped server leaves no socket");
}

#[test]
fn what_is_not_a_socket_is_left_alone() {
    let scratch = Scratch::new();
    let path = scratch.path("precious");
    fs::write(&path, "data").unwrap();
    assert!(matches!(refusal(at(&path)), ServeError::NotASocket(_)));
    assert_eq!(fs::read(&path).unwrap(), b"data");
}

#[test]
fn a_socket_that_took_our_place_is_not_removed() {
    let scratch = Scratch::new();
    let path = scratch.path("nbd.sock");
    let server = start(at(&path)).unwrap();
    fs::remove_file(&path).unwrap();
    let _other = UnixListener::bind(&path).unwrap();
    server.stop();
    assert!(path.exists(), "the path leads to somebody else's socket now");
}

#[test]
fn bad_places_are_told_apart() {
    let mut config = ServerConfig::new("ram");
    assert!(matches!(refusal(config.clone()), ServeError::NoListener));
    config.tcp.push("0.0.0.0:0".into());
    assert!(matches!(refusal(config.clone()), ServeError::NotLoopback(_)));
    config.tcp_anywhere = true;
    start(config).expect("who insists may listen to the world");
    let mut config = ServerConfig::new("ram");
    config.tcp.push("localhost".into());
    assert!(matches!(refusal(config), ServeError::Tcp { .. }), "an address without a port");
    // The system would take the first, and few clients could write it down.
    for len in [108, 200] {
        let long = Path::new("/tmp").join("x".repeat(len - "/tmp/".len()));
        assert!(matches!(refusal(at(&long)), ServeError::PathTooLong(_)), "{len} bytes");
    }
    for name in ["", "a\0b", &"x".repeat(4097)] {
        assert!(matches!(refusal(ServerConfig::new(name)), ServeError::BadName { .. }));
    }
}

#[test]
fn a_failed_start_leaves_no_socket_behind() {
    let scratch = Scratch::new();
    let path = scratch.path("nbd.sock");
    let mut config = at(&path);
    config.tcp.push("0.0.0.0:0".into());
    refusal(config);
    assert!(!path.exists());
}

#[test]
fn all_listeners_lead_to_the_same_disk() {
    let fixture = Fixture::with(Arc::new(RamDisk::new(SIZE).unwrap()), |config| {
        config.tcp.push("127.0.0.1:0".into());
    });
    let uris = fixture.server.uris();
    assert_eq!(uris[0], format!("nbd+unix:///ram?socket={}", fixture.path().display()));
    let address = uris[1].strip_prefix("nbd://").and_then(|rest| rest.strip_suffix("/ram"));
    let mut remote = Client::over(Box::new(TcpStream::connect(address.unwrap()).unwrap()));
    remote.greet(3).unwrap();
    remote.go("ram").unwrap();
    remote.write(5000, b"over TCP").unwrap();
    let seen = fixture.open(true).read(5000, 8).unwrap();
    assert_eq!(seen, Answer::Data(b"over TCP".to_vec()));
}

/// Connecting to it would wait for ever. It is stopped, and as many clients as it has room for are
/// in line.
#[test]
fn a_server_that_does_not_accept_is_in_use() {
    let scratch = Scratch::new();
    let path = scratch.path("nbd.sock");
    let address = SocketAddrUnix::new(&path).unwrap();
    let socket =
        |flags| net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    let stopped = socket(SocketFlags::CLOEXEC);
    net::bind(&stopped, &address).unwrap();
    net::listen(&stopped, 1).unwrap();
    let in_line: Vec<_> = std::iter::repeat_with(|| socket(SocketFlags::NONBLOCK))
        .take_while(|client| net::connect(client, &address).is_ok())
        .take(16)
        .collect();
    assert!(in_line.len() < 16, "the line is full");
    assert!(matches!(refusal(at(&path)), ServeError::InUse(_)));
    assert!(path.exists(), "a live socket is left alone");
}
