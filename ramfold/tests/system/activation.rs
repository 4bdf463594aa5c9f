//! Sockets that another program passes: systemd's socket activation, which libnbd uses too.
//!
//! Claims: clients reach the server at those sockets and nowhere else, the sockets stay with the
//! program that made them, and what makes no sense is refused in one line.

use std::fs::File;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::rig::{
    BINARY, Nbd, Process, Scratch, eventually, needs, noise, ramfold, real_files, refusal, succeed,
    tool,
};

/// Passes one socket as descriptor 3. A shell does it, because its number stays when it becomes
/// the server.
fn passing(socket: impl Into<OwnedFd>, variables: &str, arguments: &[&str]) -> Command {
    // Not under `timeout`, because a Process is killed by its number.
    let mut shell = Command::new("sh");
    let line = format!("{variables} exec \"$0\" \"$@\" 3<&0 </dev/null");
    shell.arg("-c").arg(line).arg(BINARY).arg("serve").args(arguments);
    shell.stdin(Stdio::from(socket.into()));
    shell
}

const ONE: &str = "LISTEN_PID=$$ LISTEN_FDS=1";

/// Files in a directory, which may not be there.
fn entries(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// A client that was started like this used to wait for ever.
#[test]
fn nbdcopy_and_nbdinfo_start_the_server_that_they_ask() {
    if !needs(&["nbdcopy", "nbdinfo"]) {
        return;
    }
    let scratch = Scratch::new();
    let (image, run) = (scratch.large("image"), scratch.path("run"));
    real_files(&image, 16);
    let mut copy = tool("nbdcopy");
    copy.arg(&image).args(["--", "[", BINARY, "serve", "--size", "64M", "]"]);
    assert_eq!(succeed(copy.env("XDG_RUNTIME_DIR", &run)), "", "its output is the client's");
    let mut info = tool("nbdinfo");
    info.args(["--json", "--", "[", BINARY, "serve", "--size", "1G", "]"]);
    let info = succeed(info.env("XDG_RUNTIME_DIR", &run));
    let info: serde_json::Value = serde_json::from_str(&info).expect("only nbdinfo speaks");
    assert_eq!(info["exports"][0]["export-size"], 1 << 30, "{info}");
    assert_eq!(entries(&run.join("ramfold")), [""; 0], "no socket of its own");
}

#[test]
fn nbdsh_starts_a_server_that_ends_with_its_client() {
    if !needs(&["nbdsh"]) {
        return;
    }
    let scratch = Scratch::new();
    let pidfile = scratch.path("pid");
    let start = format!(
        "h.connect_systemd_socket_activation([\"sh\", \"-c\", \"echo $$ > {}; exec {BINARY} serve \
         --size 1G\"])",
        pidfile.display()
    );
    let work = "h.pwrite(b'folded' * 512, 4096); assert h.pread(3072, 4096) == b'folded' * 512";
    let mut nbdsh = tool("nbdsh");
    nbdsh.args(["-c", &start, "-c", work, "-c", "print(h.get_size())"]);
    // The module that nbdsh needs belongs to the system's Python.
    let path = format!("/usr/bin:{}", std::env::var("PATH").unwrap_or_default());
    nbdsh.env("PATH", path).env("XDG_RUNTIME_DIR", scratch.path("run"));
    let said = succeed(&mut nbdsh);
    assert_eq!(said.trim(), "1073741824");
    let pid = std::fs::read_to_string(&pidfile).unwrap();
    let process = Path::new("/proc").join(pid.trim());
    eventually("the server to end", || !process.exists());
}

/// systemd holds both sockets, and starts the server when somebody comes.
#[test]
fn systemd_passes_the_nbd_socket_and_the_control_socket() {
    if !needs(&["systemd-socket-activate"]) {
        return;
    }
    let scratch = Scratch::new();
    let (nbd, control) = (scratch.path("disk.sock"), scratch.path("disk.ctl"));
    // This tool has no SocketMode=, and a control socket is its owner's alone.
    let mut activate = Command::new("sh");
    activate.args(["-c", "umask 077; exec systemd-socket-activate \"$@\"", "sh"]);
    activate.arg("-l").arg(&nbd).arg("-l").arg(&control).arg("--fdname=nbd:control");
    activate.args([BINARY, "serve", "--size", "8M", "--verbose"]);
    activate.env("XDG_RUNTIME_DIR", scratch.path("run"));
    let mut server = Process::start(&mut activate, "Listening on");
    eventually("both sockets", || nbd.exists() && control.exists());
    let mut client = Nbd::connect(&nbd);
    client.write(0, &noise(1, 8192)).unwrap();
    let target = nbd.to_str().unwrap();
    let stat = succeed(&mut ramfold(&["stat", target, "--json"]));
    assert!(stat.contains("\"orig_data_size\": 8192"), "{stat}");
    succeed(&mut ramfold(&["check", control.to_str().unwrap()]));
    assert_eq!(client.read(0, 8192).unwrap(), noise(1, 8192));
    drop(client);
    server.signal("TERM");
    assert!(server.wait().success(), "{}", server.said());
    assert!(nbd.exists() && control.exists(), "the paths are systemd's");
    assert_eq!(entries(&scratch.path("run").join("ramfold")), [""; 0]);
}

/// To shut a listening socket down, or to remove its path, would end it for the next server too.
#[test]
fn the_socket_stays_with_the_program_that_made_it() {
    let scratch = Scratch::new();
    let path = scratch.path("disk.sock");
    let listener = UnixListener::bind(&path).unwrap();
    for round in 0..2 {
        let passed = listener.try_clone().unwrap();
        let arguments = ["--size", "1M", "--verbose", "--name", "ours"];
        let mut server =
            Process::start_with_input(&mut passing(passed, ONE, &arguments), "of memory");
        assert!(server.said().contains("nbd+unix:///ours?socket="), "{}", server.said());
        let mut client = Nbd::connect(&path);
        assert_eq!(client.read(0, 16).unwrap(), [0; 16], "round {round}: an empty disk");
        client.write(0, b"of this round").unwrap();
        drop(client);
        server.signal("TERM");
        assert!(server.wait().success(), "round {round}: {}", server.said());
        assert!(path.exists(), "round {round}");
        assert!(waits(&listener), "round {round}: its owner may wait in accept, as before");
    }
}

/// Whether calls on a descriptor wait.
fn waits(file: &impl AsRawFd) -> bool {
    const NONBLOCK: u32 = 0o4000;
    let path = format!("/proc/self/fdinfo/{}", file.as_raw_fd());
    let info = std::fs::read_to_string(path).expect("the descriptor is open");
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).expect("its flags");
    u32::from_str_radix(flags.trim(), 8).expect("in octal") & NONBLOCK == 0
}

#[test]
fn what_was_passed_may_be_tcp_and_control_is_where_it_was_asked_for() {
    let scratch = Scratch::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("nbd://{}/zram0", listener.local_addr().unwrap());
    let control = scratch.path("disk.ctl");
    let target = control.to_str().unwrap();
    let arguments = ["--size", "1M", "--verbose", "--control", target];
    let mut server =
        Process::start_with_input(&mut passing(listener, ONE, &arguments), "of memory");
    assert!(server.said().contains(&uri), "{}", server.said());
    if needs(&["nbdinfo"]) {
        assert_eq!(succeed(tool("nbdinfo").args(["--size", &uri])).trim(), "1048576");
    }
    succeed(&mut ramfold(&["check", target]));
    server.signal("TERM");
    assert!(server.wait().success(), "{}", server.said());
    assert!(!control.exists(), "this one was ours");
}

#[test]
fn variables_for_another_process_change_nothing() {
    let scratch = Scratch::new();
    let listener = UnixListener::bind(scratch.path("passed.sock")).unwrap();
    let variables = "LISTEN_PID=1 LISTEN_FDS=nonsense LISTEN_FDNAMES=::";
    let own = scratch.path("own.sock");
    let arguments = ["--size", "1M", "--unix", own.to_str().unwrap()];
    let mut shell = passing(listener, variables, &arguments);
    shell.env("XDG_RUNTIME_DIR", scratch.path("run"));
    let _server = Process::start_with_input(&mut shell, "nbd+unix://");
    Nbd::connect(&own).write(0, b"served").unwrap();
}

#[test]
fn what_cannot_be_served_is_refused_in_one_line() {
    let scratch = Scratch::new();
    let listener = |name: &str| UnixListener::bind(scratch.path(name)).unwrap();
    let connected = || {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        std::net::TcpStream::connect(tcp.local_addr().unwrap()).unwrap()
    };
    let rows: [(OwnedFd, &str, &str); 9] = [
        (listener("a").into(), "LISTEN_PID=$$ LISTEN_FDS=0", "\"0\" is not a count"),
        (listener("b").into(), "LISTEN_PID=$$ LISTEN_FDS=many", "\"many\" is not a count"),
        (listener("c").into(), "LISTEN_PID=me LISTEN_FDS=1", "\"me\" is not the number"),
        (listener("d").into(), "LISTEN_PID=$$ LISTEN_FDS=60", "not all of them are open"),
        (
            listener("e").into(),
            "LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=nbd:control",
            "LISTEN_FDNAMES has 2 names",
        ),
        (UnixDatagram::unbound().unwrap().into(), ONE, "not a stream socket"),
        (UdpSocket::bind("127.0.0.1:0").unwrap().into(), ONE, "not a stream socket"),
        (connected().into(), ONE, "does not listen"),
        (File::open("/dev/null").unwrap().into(), ONE, "is not a socket"),
    ];
    for (passed, variables, expected) in rows {
        let line = refusal(&mut passing(passed, variables, &["--size", "1M"]));
        assert!(line.contains("socket activation") && line.contains(expected), "{line}");
    }
    let control = refusal(&mut ramfold(&["serve", "--size", "1M", "--control", "/tmp/x.sock"]));
    assert!(control.contains("--control") && control.contains(".ctl"), "{control}");
}
