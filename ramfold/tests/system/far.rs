//! Pages that are written back to an NBD server, which goes away, comes back empty, or fails.
//!
//! ```text
//!   this test  ->  near: ramfold serve --backing nbd+unix:..  ->  far: ramfold, nbdkit
//! ```
//!
//! Claims: a page reads as it was written, or its read is an error that is counted. What is in
//! memory stays right, whatever happens to the server.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::rig::{
    BINARY, Nbd, PAGE_SIZE, Process, Scratch, Server, Stopped, eventually, needs, noise, ramfold,
    refusal, succeed,
};

const EIO: u32 = 5;
/// Pages that are written back; nothing compresses them.
const PAGES: u64 = 512;
/// Pages that stay in memory, behind them.
const STAYING: u64 = 64;
/// What a request to the far server may take, in seconds.
const PATIENCE: u64 = 2;

/// A server whose pages go to the export at a socket, by many requests of a few pages each.
fn near(socket: &str) -> Server {
    let address = format!("nbd+unix:///?socket={socket}&timeout={PATIENCE}");
    let few = ["--set", "writeback_batch_size=32"];
    let server = Server::with(&[&["--size", "16M", "--backing", &address], &few[..]].concat());
    let mut client = server.connect();
    for page in 0..PAGES + STAYING {
        client.write(page * PAGE_SIZE, &content(page)).expect("memory takes it");
    }
    server
}

fn content(page: u64) -> Vec<u8> {
    noise(page + 1, PAGE_SIZE as usize)
}

/// Writes the first pages back, one request for each run of them.
fn write_back(server: &Server) {
    let range = format!("page_indexes=0-{}", PAGES - 1);
    succeed(&mut ramfold(&["set", server.target(), "writeback", &range]));
}

fn write_back_if_it_can(server: &Server) {
    let range = format!("page_indexes=0-{}", PAGES - 1);
    let _ = ramfold(&["set", server.target(), "writeback", &range]).output();
}

fn written_back(server: &Server) -> u64 {
    server.stat()["bd_stat"]["bd_count"].as_u64().expect("a number")
}

/// Reads pages. Returns how many were errors; the others must be right.
#[track_caller]
fn errors(client: &mut Nbd, pages: std::ops::Range<u64>) -> u64 {
    pages.fold(0, |errors, page| match client.read(page * PAGE_SIZE, PAGE_SIZE as usize) {
        Ok(read) => {
            assert!(read == content(page), "page {page} is not what was written");
            errors
        }
        Err(number) => {
            assert_eq!(number, EIO, "page {page}");
            errors + 1
        }
    })
}

fn report(server: &Server, name: &str) -> u64 {
    server.stat()["remote_backing"][name].as_u64().expect("it has a remote backing device")
}

/// A ramfold whose socket stays where it is when it is started again.
struct Far {
    scratch: Scratch,
    process: Option<Process>,
}

impl Far {
    fn new() -> Far {
        let mut far = Far { scratch: Scratch::new(), process: None };
        far.start();
        far
    }

    fn start(&mut self) {
        let mut command = Command::new(BINARY);
        command.args(["serve", "--size", "16M", "--unix", &self.socket()]);
        command.env("XDG_RUNTIME_DIR", self.scratch.path("run"));
        self.process = Some(Process::start(&mut command, "nbd+unix://"));
    }

    fn socket(&self) -> String {
        self.scratch.path("far.sock").to_str().expect("scratch paths are text").to_owned()
    }
}

#[test]
fn pages_in_another_ramfold_survive_all_but_its_death() {
    let mut far = Far::new();
    let near = near(&far.socket());
    write_back(&near);
    assert_eq!(written_back(&near), PAGES);
    let mut client = near.connect();
    assert_eq!(errors(&mut client, 0..PAGES + STAYING), 0);

    // It stands still for a moment, and for longer than a request may take.
    let pid = far.process.as_ref().map_or(0, Process::pid);
    std::thread::scope(|scope| {
        let stopped = Stopped::new(pid);
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            drop(stopped);
        });
        assert_eq!(errors(&mut client, 0..1), 0, "it is waited for");
    });
    let stopped = Stopped::new(pid);
    let start = Instant::now();
    assert_eq!(errors(&mut client, 1..2), 1);
    assert!(start.elapsed() >= Duration::from_secs(PATIENCE));
    assert_eq!(errors(&mut client, PAGES..PAGES + STAYING), 0, "these are in memory");
    drop(stopped);
    eventually("it is there again", || errors(&mut client, 0..PAGES) == 0);
    assert!(report(&near, "late_requests") >= 1, "{}", near.stat());

    // A write-back while it stands still ends soon, and what it could not write stays in memory.
    let stopped = Stopped::new(pid);
    for page in 0..PAGES {
        client.write(page * PAGE_SIZE, &content(page)).expect("memory takes it");
    }
    let range = format!("page_indexes=0-{}", PAGES - 1);
    assert!(
        !ramfold(&["set", near.target(), "writeback", &range]).status().expect("it runs").success()
    );
    drop(stopped);
    assert_eq!(errors(&mut client, 0..PAGES), 0, "they are in memory");
    eventually("it takes them again", || {
        write_back_if_it_can(&near);
        written_back(&near) == PAGES
    });
    assert_eq!(errors(&mut client, 0..PAGES), 0);

    // It dies, and another one takes its place, which is empty.
    far.process = None;
    assert_eq!(errors(&mut client, 2..3), 1);
    far.start();
    eventually("there is a connection", || {
        errors(&mut client, 0..1);
        near.stat()["remote_backing"]["connected"] == true
    });
    let read = errors(&mut client, 0..PAGES);
    assert_eq!(read, PAGES, "nothing is made up for what is lost");
    assert_eq!(errors(&mut client, PAGES..PAGES + STAYING), 0);
    assert!(report(&near, "reconnects") >= 2, "{}", near.stat());
    for page in 0..PAGES {
        client.write(page * PAGE_SIZE, &content(page)).expect("memory takes it");
    }
    write_back(&near);
    assert_eq!(errors(&mut client, 0..PAGES), 0, "what is written anew is there");
    let text = succeed(&mut ramfold(&["stat", near.target()]));
    assert!(text.contains("backing server   connected, "), "{text}");
    near.check();
}

#[test]
fn pages_in_an_nbdkit_that_fails_now_and_then_are_right_or_errors() {
    if !needs(&["nbdkit"]) {
        return;
    }
    let scratch = Scratch::new();
    let (socket, flag) = (scratch.path("kit.sock"), scratch.path("fail"));
    let mut command = Command::new("nbdkit");
    command.args(["--foreground", "--exit-with-parent", "--filter=error", "--unix"]);
    command.arg(&socket).args(["memory", "16M", "error=EIO", "error-rate=50%"]);
    command.arg(format!("error-file={}", flag.display()));
    // It says nothing when it is ready.
    let _kit = Process::start(&mut command, "");
    eventually("nbdkit listens", || Nbd::connect_if_serving(&socket).is_some());
    let near = near(socket.to_str().expect("scratch paths are text"));

    std::fs::write(&flag, "").expect("a file can be made");
    // Some requests fail, which the command tells.
    write_back_if_it_can(&near);
    std::fs::remove_file(&flag).expect("it was there");
    let (refused, away) = (report(&near, "refused_requests"), written_back(&near));
    assert!(refused > 0 && away < PAGES, "{refused} refused, {away} written back");
    let mut client = near.connect();
    assert_eq!(errors(&mut client, 0..PAGES), 0, "what was refused stayed in memory");

    write_back(&near);
    assert_eq!(written_back(&near), PAGES);
    std::fs::write(&flag, "").expect("a file can be made");
    let failed: u64 = (0..3).map(|_| errors(&mut client, 0..PAGES)).sum();
    std::fs::remove_file(&flag).expect("it was there");
    assert!(failed > 0 && failed < 3 * PAGES, "{failed} reads failed");
    assert_eq!(errors(&mut client, 0..PAGES + STAYING), 0);
    assert!(near.stat()["io_stat"]["failed_reads"].as_u64() >= Some(failed), "{}", near.stat());
    near.check();
}

/// Each request waits for the far server, so more of them are on their way.
#[test]
fn more_pages_are_on_their_way_to_a_server_unless_a_number_is_set() {
    let far = Far::new();
    let address = format!("nbd+unix:///?socket={}", far.socket());
    let batch = |options: &[&str]| {
        let server = Server::with(&[&["--size", "1M"], options].concat());
        succeed(&mut ramfold(&["get", server.target(), "writeback_batch_size"]))
    };
    assert_eq!(batch(&[]), "32\n");
    assert_eq!(batch(&["--backing", &address]), "1024\n");
    let set = ["--set", "writeback_batch_size=7"];
    assert_eq!(batch(&[&["--backing", &address], &set[..]].concat()), "7\n");
}

#[test]
fn an_address_that_leads_nowhere_is_refused_with_the_reason() {
    let far = Far::new();
    let read_only = Server::with(&["--size", "1M", "--read-only"]);
    let nowhere = far.scratch.path("nowhere.sock");
    for (address, why) in [
        ("nbd://127.0.0.1:1/".to_owned(), "refused"),
        (format!("nbd+unix:///?socket={}", nowhere.display()), "No such file"),
        (format!("nbd+unix:///zram7?socket={}", far.socket()), "no export of that name"),
        (read_only.uri(), "cannot be written to"),
        ("nbds://localhost/".to_owned(), "TLS"),
        ("nbd://".to_owned(), "no host"),
    ] {
        let said = refusal(&mut ramfold(&["serve", "--size", "1M", "--backing", &address]));
        assert!(said.contains("--backing") && said.contains(why), "{address}: {said}");
    }
}
