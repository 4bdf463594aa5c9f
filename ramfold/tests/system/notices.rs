//! What the operator of a server is told, one test for each condition.
//!
//! Claims: each condition is written to standard error with its remedy, once while it lasts. The
//! server goes on even if standard error is not read.

use std::fs::File;
use std::io::Read;
use std::process::{Child, Command, Stdio};

use crate::rig::{
    BINARY, Mount, Nbd, PAGE_SIZE, Scratch, Server, eventually, needs, needs_root, noise, ramfold,
    succeed,
};

const PAGE: usize = PAGE_SIZE as usize;

/// A server that ends with its test, even if the test fails.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // Both fail only when it has ended and been waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until a server has said all of these on one line.
#[track_caller]
pub(crate) fn says(server: &Server, words: &[&str]) {
    let is_it = |line: &str| words.iter().all(|word| line.contains(word));
    eventually(&format!("{words:?} in what it says"), || server.said().lines().any(is_it));
}

/// A file of this many pages, without a byte in it.
fn backing(scratch: &Scratch, pages: u64) -> String {
    let path = scratch.large("backing");
    let file = File::create(&path).expect("a file can be made");
    file.set_len(pages * PAGE_SIZE).expect("of any length");
    path.to_str().expect("scratch paths are text").to_owned()
}

/// A write was refused with "no space", and nothing said that memory was short.
#[test]
fn a_memory_limit_that_is_reached_is_told_once() {
    let server = Server::with(&["--size", "16M", "--memory-limit", "1M"]);
    let mut client = server.connect();
    let refuse = |client: &mut Nbd| {
        let refused =
            (0..512).filter(|page| client.write(page * PAGE_SIZE, &noise(page + 1, PAGE)).is_err());
        assert!(refused.count() > 0, "1 MiB holds 256 pages of noise");
    };
    refuse(&mut client);
    let told = "the memory limit of 1.0 MiB is reached";
    says(&server, &[told, "ramfold set zram0 mem_limit SIZE", "fstrim"]);
    let stat = succeed(&mut ramfold(&["stat", server.target()]));
    assert!(stat.contains("% used") && stat.contains("full: "), "{stat}");
    assert!(stat.contains(&format!("! zram0: {told}")), "{stat}");
    refuse(&mut client);
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!(server.said().matches(told).count(), 1, "{}", server.said());
}

#[test]
fn a_memory_target_above_the_limit_is_told() {
    let sizes = ["--size", "16M", "--memory-limit", "2M", "--memory-target"];
    let server = Server::with(&[&sizes[..], &["4M"]].concat());
    says(&server, &["warning: --memory-target of 4.0 MiB is above the limit of 2.0 MiB"]);
    let server = Server::with(&[&sizes[..], &["2M", "--verbose"]].concat());
    drop(server.connect());
    says(&server, &["(pid "]);
    assert!(!server.said().contains("is above"), "{}", server.said());
}

#[test]
fn a_memory_target_that_cannot_be_reached_is_told() {
    let server = Server::with(&["--size", "16M", "--memory-target", "1M"]);
    let mut client = server.connect();
    (0..512).for_each(|page| client.write(page * PAGE_SIZE, &noise(page + 1, PAGE)).unwrap());
    says(&server, &["the memory target of 1.0 MiB cannot be reached"]);
}

#[test]
fn a_backing_file_that_is_full_is_told() {
    let scratch = Scratch::new();
    let path = backing(&scratch, 16);
    let server = Server::with(&["--size", "16M", "--backing", &path]);
    server.connect().write(0, &noise(1, 64 * PAGE)).unwrap();
    let refused = ramfold(&["set", server.target(), "writeback", "huge"]).output().unwrap();
    assert!(!refused.status.success(), "it has 15 blocks");
    says(&server, &[&path, "is full", "larger one"]);
}

#[test]
fn a_file_system_without_space_for_the_backing_file_is_told() {
    if !needs(&["mount", "umount"]) || !needs_root() {
        return;
    }
    let place = Scratch::new();
    let small = Mount::memory(place.path("small"), 1 << 20);
    let path = small.directory.join("backing");
    File::create(&path).unwrap().set_len(16 << 20).unwrap();
    let server = Server::with(&["--size", "16M", "--backing", path.to_str().unwrap()]);
    server.connect().write(0, &noise(1, 512 * PAGE)).unwrap();
    let refused = ramfold(&["set", server.target(), "writeback", "huge"]).output().unwrap();
    assert!(!refused.status.success(), "the file system has 256 pages");
    says(&server, &["has no space left", "make space there"]);
}

#[test]
fn a_backing_file_that_fails_is_told() {
    let scratch = Scratch::new();
    let path = backing(&scratch, 1024);
    let server = Server::with(&["--size", "16M", "--backing", &path]);
    let mut client = server.connect();
    client.write(0, &noise(1, 64 * PAGE)).unwrap();
    succeed(&mut ramfold(&["set", server.target(), "writeback", "huge"]));
    File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
    client.read(0, PAGE).unwrap_err();
    says(&server, &[&path, "fails", "dmesg"]);
}

/// With few descriptors the next client waited in the socket's queue for ever, and `stat` with it.
#[test]
fn clients_that_are_refused_are_told_and_an_operator_gets_in() {
    for most in [24, 48] {
        let server = Server::with_descriptors(most, &["--size", "1M"]);
        let clients: Vec<Nbd> =
            std::iter::from_fn(|| Nbd::connect_if_serving(server.socket())).take(most).collect();
        assert!((1..most).contains(&clients.len()), "{} of {most}", clients.len());
        says(&server, &["an NBD client (pid", "was refused"]);
        let connections = server.stat()["disksize"].clone();
        assert_eq!(connections, 1 << 20, "an operator gets in");
        drop(clients);
        eventually("a place", || Nbd::connect_if_serving(server.socket()).is_some());
    }
}

#[test]
fn a_client_that_hangs_is_told_with_its_process() {
    let server = Server::of_size("1M");
    let mut client = server.connect();
    client.stall_in_write(0, &noise(1, 8 * PAGE));
    let kill = format!("kill {}", std::process::id());
    says(&server, &["has not sent the rest of a request", &kill]);
    drop(client);
    says(&server, &["goes on, or is gone"]);
}

/// The reader of standard error may stop reading.
#[test]
fn a_server_whose_words_nobody_reads_goes_on_and_ends() {
    let scratch = Scratch::new();
    let socket = scratch.path("deaf.sock");
    let mut command = Command::new(BINARY);
    command.args(["serve", "--size", "1M", "--verbose", "--unix"]).arg(&socket);
    command.env("XDG_RUNTIME_DIR", scratch.path("run")).stdout(Stdio::null());
    let mut child = Killed(command.stderr(Stdio::piped()).spawn().unwrap());
    eventually("it to serve", || Nbd::connect_if_serving(&socket).is_some());
    // Two lines each, into a pipe of 64 KiB and a queue.
    for _ in 0..1500 {
        Nbd::connect(&socket).read(0, PAGE).unwrap();
    }
    succeed(ramfold(&["check"]).arg(&socket));
    crate::rig::signal(child.0.id(), "TERM");
    eventually("it to end", || child.0.try_wait().unwrap().is_some());
}

#[test]
fn a_quiet_server_says_what_is_wrong_and_a_verbose_one_who_comes() {
    let scratch = Scratch::new();
    let socket = scratch.path("quiet.sock");
    let mut command = Command::new(BINARY);
    command.args(["serve", "--size", "1M", "--memory-limit", "1T", "--quiet", "--unix"]);
    command.arg(&socket).env("XDG_RUNTIME_DIR", scratch.path("run"));
    let mut child = Killed(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    eventually("it to serve", || Nbd::connect_if_serving(&socket).is_some());
    crate::rig::signal(child.0.id(), "TERM");
    let (mut usual, mut told) = (String::new(), String::new());
    child.0.stdout.take().unwrap().read_to_string(&mut usual).unwrap();
    child.0.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert!(usual.is_empty(), "{usual}");
    assert!(told.contains("warning: the memory limit") && told.lines().count() == 1, "{told}");
    let server = Server::with(&["--size", "1M", "--verbose"]);
    drop(server.connect());
    let pid = format!("(pid {})", std::process::id());
    says(&server, &[&pid, "is connected to zram0"]);
    says(&server, &[&pid, "ended: it hung up"]);
}

/// `hot_add` said "done", and the device was nowhere to be found.
#[test]
fn a_device_that_is_added_is_served_under_its_name() {
    let server = Server::of_size("1M");
    let set = |attribute: &str, value: &str| {
        succeed(&mut ramfold(&["set", server.target(), attribute, value]));
    };
    set("zram-control/hot_add", "1");
    assert!(Nbd::negotiate_for(server.socket(), "zram1").is_err(), "it has no size yet");
    set("zram1/disksize", "2M");
    let mut client = Nbd::negotiate_for(server.socket(), "zram1").expect("it is an export");
    assert_eq!(client.size(), 2 << 20);
    client.write(0, b"second").unwrap();
    assert_eq!(server.connect().read(0, 6).unwrap(), [0; 6], "the first is another");
    let stat = succeed(&mut ramfold(&["stat", server.target()]));
    assert!(stat.contains("/zram1?socket="), "its address is told: {stat}");
    let mut remove = ramfold(&["set", server.target(), "zram-control/hot_remove", "1"]);
    let refused = crate::rig::refusal(&mut remove);
    assert!(refused.contains("an NBD client"), "{refused}");
    drop(client);
    eventually("it to be free", || remove.output().unwrap().status.success());
}
