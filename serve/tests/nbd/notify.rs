//! The service manager is told how the server is.

use crate::fixture::Scratch;
use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

fn received(socket: &UnixDatagram) -> Vec<u8> {
    let mut buffer = [0; 64];
    let len = socket.recv(&mut buffer).unwrap();
    buffer[..len].to_vec()
}

#[test]
fn both_kinds_of_socket_are_told() {
    let scratch = Scratch::new();
    let path = scratch.path("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    ramfold_serve::notify::send(path.as_os_str(), "READY=1").unwrap();
    assert_eq!(received(&socket), b"READY=1");

    let name = format!("serve-notify-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let socket = UnixDatagram::bind_addr(&address).unwrap();
    ramfold_serve::notify::send(OsStr::new(&format!("@{name}")), "STOPPING=1").unwrap();
    assert_eq!(received(&socket), b"STOPPING=1");
}

#[test]
fn a_name_that_is_neither_is_an_error() {
    for name in ["relative", "", "vsock:2:1234", "@"] {
        assert!(ramfold_serve::notify::send(OsStr::new(name), "READY=1").is_err(), "{name:?}");
    }
}
