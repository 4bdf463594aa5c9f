//! `serve --vhost-user`: what the command, `stat` and an operator see of a virtual machine.
//!
//! Claims: the first device, or the one that is named, is at the socket, and NBD is beside it only
//! if it was asked for. `stat` shows which machine has the disk. A device with a machine is not
//! removed. A machine of another server is refused, with a line. One whose server stops or is
//! killed sees the end, and no socket is left behind by a server that stops.
//!
//! Requests of a guest are in `serve/tests/vhost_user`, and real guests in `lab/guest/vhost.sh`.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::rig::{BINARY, Nbd, Process, Scratch, Server, eventually, ramfold, refusal, succeed};

const GET_FEATURES: u32 = 1;
const SET_OWNER: u32 = 3;
const SET_VRING_BASE: u32 = 10;
const GET_PROTOCOL_FEATURES: u32 = 15;
const SET_PROTOCOL_FEATURES: u32 = 16;
const GET_CONFIG: u32 = 24;

/// The messages of a frontend, without memory and rings.
struct Machine(UnixStream);

impl Machine {
    fn connect(path: &Path) -> Machine {
        let stream = UnixStream::connect(path).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("as the test needs it");
        let mut machine = Machine(stream);
        machine.say(SET_OWNER, &[]);
        machine
    }

    /// Connects, and agrees on features, so that the machine has the disk.
    fn attach(path: &Path) -> Machine {
        let mut machine = Machine::connect(path);
        machine.features().expect("the disk is free");
        let known = machine.ask(GET_PROTOCOL_FEATURES, &[]).expect("as the test needs it");
        machine.say(SET_PROTOCOL_FEATURES, &known);
        machine
    }

    /// Sends a message: its code, version 1, its length and its body.
    fn say(&mut self, code: u32, body: &[u8]) {
        let len = body.len() as u32;
        let head = [code.to_le_bytes(), 1_u32.to_le_bytes(), len.to_le_bytes()].concat();
        // A server that has ended is seen by the answer.
        let _ = self.0.write_all(&[&head[..], body].concat());
    }

    fn ask(&mut self, code: u32, body: &[u8]) -> std::io::Result<Vec<u8>> {
        self.say(code, body);
        let mut head = [0; 12];
        self.0.read_exact(&mut head)?;
        let len = u32::from_le_bytes(head[8..].try_into().expect("as the test needs it"));
        let mut body = vec![0; len as usize];
        self.0.read_exact(&mut body)?;
        Ok(body)
    }

    fn features(&mut self) -> std::io::Result<u64> {
        let body = self.ask(GET_FEATURES, &[])?;
        Ok(u64::from_le_bytes(body.try_into().expect("as the test needs it")))
    }

    /// Bytes of the disk.
    fn size(&mut self) -> u64 {
        let asked = [0_u32, 8, 0].map(u32::to_le_bytes).concat();
        let body = self.ask(GET_CONFIG, &[&asked[..], &[0; 8]].concat()).expect("a configuration");
        u64::from_le_bytes(body[12..20].try_into().expect("as the test needs it")) * 512
    }
}

/// Whether the other end has closed.
fn is_over(machine: &mut Machine) -> bool {
    machine.features().is_err()
}

/// A server without NBD, in a runtime directory of its own.
fn served(scratch: &Scratch, arguments: &[&str]) -> Process {
    let mut command = Command::new(BINARY);
    command.arg("serve").args(arguments).env("XDG_RUNTIME_DIR", scratch.path(""));
    Process::start(&mut command, "for a virtual machine at")
}

fn stat(scratch: &Scratch, arguments: &[&str]) -> String {
    let mut command = Command::new(BINARY);
    command.arg("stat").args(arguments).env("XDG_RUNTIME_DIR", scratch.path(""));
    let output = command.output().expect("as the test needs it");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_machine_alone_needs_no_nbd_and_is_shown() {
    let scratch = Scratch::new();
    let path = scratch.path("vm.sock");
    let at = path.to_str().unwrap();
    let mut server = served(&scratch, &["--size", "64M", "--vhost-user", at]);
    assert!(!server.said().contains("nbd+unix"), "{}", server.said());
    let free = stat(&scratch, &["zram0"]);
    assert!(free.contains(&format!("vhost-user {at}: no machine")), "{free}");
    let mut machine = Machine::attach(&path);
    assert_eq!(machine.size(), 64 << 20);
    let own = format!("vhost-user {at}: pid {}, 0 queues", std::process::id());
    eventually("stat shows the machine", || stat(&scratch, &["zram0"]).contains(&own));
    assert!(stat(&scratch, &[]).contains(&format!("vhost-user:{at}")), "the list");
    let json: Value = serde_json::from_str(&stat(&scratch, &["--json", "zram0"])).unwrap();
    assert!(json.get("server").is_none(), "the device alone");
    server.signal("TERM");
    assert!(server.wait().success(), "{}", server.said());
    let said = server.said();
    let told =
        format!("zram0: a virtual machine (pid {}) has it, and loses it", std::process::id());
    assert!(said.contains(&told), "{said}");
    assert!(is_over(&mut machine) && !path.exists(), "nothing is left");
}

#[test]
fn a_device_has_a_socket_by_its_name_and_nbd_beside_it() {
    let sockets = Scratch::new();
    let path = sockets.path("data.sock");
    let of_data = format!("data={}", path.display());
    let server = Server::with(&["--size", "1M", "--export", "data=8M", "--vhost-user", &of_data]);
    Nbd::connect(server.socket()).write(0, &[7; 4096]).expect("NBD is there, too");
    let mut machine = Machine::attach(&path);
    assert_eq!(machine.size(), 8 << 20);
    let target = server.socket().to_str().unwrap();
    let busy = refusal(&mut ramfold(&["remove", target, "data"]));
    let holder = format!("a virtual machine (pid {})", std::process::id());
    eventually("the machine holds it", || {
        refusal(&mut ramfold(&["remove", target, "data"])).contains(&holder)
    });
    assert!(busy.contains("data is in use"), "{busy}");
    succeed(&mut ramfold(&["check", target, "data"]));
}

#[test]
fn a_machine_of_another_server_and_a_second_one_are_refused_with_a_line() {
    let scratch = Scratch::new();
    let path = scratch.path("vm.sock");
    let server = served(&scratch, &["--size", "1M", "--vhost-user", path.to_str().unwrap()]);
    let mut foreign = Machine::attach(&path);
    foreign.say(SET_VRING_BASE, &[0_u32, 7].map(u32::to_le_bytes).concat());
    assert!(is_over(&mut foreign), "its ring began elsewhere");
    eventually("the reason", || server.said().contains("its disk was that of another server"));
    let mut first = Machine::attach(&path);
    let mut second = Machine::connect(&path);
    assert!(is_over(&mut second), "one machine has the disk");
    eventually("the reason", || {
        server.said().contains("all 1 connection are taken; 1 of these is of pid")
            || server.said().contains("a virtual machine (pid")
                && server.said().contains("was refused: all")
    });
    first.features().expect("the first does not notice");
}

#[test]
fn a_machine_sees_the_end_of_a_killed_server_and_the_next_one_starts() {
    let scratch = Scratch::new();
    let path = scratch.path("vm.sock");
    let arguments = ["--size", "1M", "--vhost-user", path.to_str().unwrap()];
    let mut server = served(&scratch, &arguments);
    let mut machine = Machine::attach(&path);
    server.kill();
    assert!(is_over(&mut machine));
    let next = served(&scratch, &arguments);
    assert!(next.said().contains("the server that was here before was killed"), "{}", next.said());
    assert_eq!(Machine::attach(&path).size(), 1 << 20);
}

#[test]
fn wrong_sockets_are_refused_in_words() {
    let serve =
        |text: &str| refusal(&mut ramfold(&["serve", "--size", "1M", "--vhost-user", text]));
    for (text, expected) in [
        ("logs=/tmp/a.sock", "there is no device \"logs\""),
        ("/tmp/a.ctl", "that of a control socket"),
        ("/nowhere/there/a.sock", "--vhost-user: /nowhere/there: No such file"),
    ] {
        let said = serve(text);
        assert!(said.contains(expected), "{text}: {said}");
    }
    let twice = ["--vhost-user", "/tmp/x.sock", "--vhost-user", "zram0=/tmp/y.sock"];
    let said = refusal(&mut ramfold(&[&["serve", "--size", "1M"], &twice[..]].concat()));
    assert!(said.contains("zram0 has a socket already"), "{said}");
    let said = refusal(&mut ramfold(&["serve", "--vhost-user", "/tmp/x.sock"]));
    assert!(said.contains("--size"), "{said}");
}
