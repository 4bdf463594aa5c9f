//! Starting, stopping, dying clients and full memory.
//!
//! Claims: a server starts small, and ends when it is told to. Whatever one client does, the others
//! are served. If memory is full, a write is refused and stored pages stay.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::rig::{
    Loop, Nbd, PAGE_SIZE, Scratch, Server, eventually, needs, needs_device, needs_env, noise,
    ramfold, refusal, succeed,
};

const ENOSPC: u32 = 28;

#[test]
fn the_first_line_can_be_pasted() {
    let server = Server::of_size("1M");
    let said = server.said();
    let line = said.lines().find(|line| line.contains("nbd+unix://")).unwrap();
    assert!(line.contains(server.target()), "the socket's path: {line}");
    let mode = std::fs::metadata(server.socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "the socket is its owner's alone");
}

#[test]
fn a_huge_disk_starts_small() {
    let started = Instant::now();
    let server = Server::of_size("100G");
    println!("a disk of 100 GiB serves after {:?}", started.elapsed());
    assert!(started.elapsed() < Duration::from_secs(5), "starting does not depend on the size");
    assert_eq!(server.connect().size(), 100 << 30);
    let resident = resident_bytes(server.pid());
    assert!(resident < 32 << 20, "{resident} bytes resident for an empty disk");
}

fn resident_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
    let status = status.expect("the server has a status");
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.strip_suffix(" kB"));
    let kib = kib.and_then(|kib| kib.trim().parse::<u64>().ok());
    kib.expect("VmRSS is a number of kB") << 10
}

#[test]
fn sigterm_ends_heavy_traffic_cleanly() {
    for signal in ["TERM", "INT"] {
        end_under_traffic(signal);
    }
}

#[test]
fn a_hangup_ends_it_as_other_signals_do() {
    const ENV: &str = "--default-signal=HUP";
    if !needs_env(ENV) {
        return;
    }
    let mut server = Server::with_hangup(ENV);
    server.signal("HUP");
    assert!(server.wait().success(), "it ends by itself");
    assert!(server.said().contains("are gone"), "and says what is lost: {}", server.said());
    assert!(!server.socket().exists(), "nothing is left");
}

/// A thread that serves took SIGTERM in the middle of a request.
#[test]
fn threads_that_serve_block_signals() {
    let server = Server::of_size("64M");
    let _client = server.connect();
    let _ = server.stat();
    let tasks = format!("/proc/{}/task", server.pid());
    let tasks = fs::read_dir(tasks).expect("it runs").map(|task| task.expect("a task").path());
    let mut takers: Vec<String> = tasks.filter_map(|task| takes_sigterm(&task)).collect();
    takers.sort_unstable();
    assert_eq!(takers, ["ramfold", "signals"], "threads that take SIGTERM, by name");
}

/// The thread's name, if it does not block SIGTERM.
fn takes_sigterm(task: &Path) -> Option<String> {
    let status = fs::read_to_string(task.join("status")).ok()?; // it may have ended
    let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let blocked = u64::from_str_radix(field("SigBlk:")?, 16).expect("a mask");
    (blocked >> (15 - 1) & 1 == 0).then(|| field("Name:").unwrap_or_default().to_owned())
}

#[test]
fn a_hangup_that_is_ignored_from_outside_is_ignored() {
    const ENV: &str = "--ignore-signal=HUP";
    if !needs_env(ENV) {
        return;
    }
    let mut server = Server::with_hangup(ENV);
    server.signal("HUP");
    server.connect().write(0, &noise(1, 4096)).expect("it serves");
    server.signal("TERM");
    assert!(server.wait().success() && server.said().contains("4096 stored bytes"));
}

#[test]
fn two_signals_at_once_are_one() {
    let mut server = Server::of_size("1M");
    server.connect().write(0, &noise(1, 4096)).expect("room");
    let twice = format!("kill -TERM {0}; kill -INT {0}", server.pid());
    // The second signal may find no process.
    let _ = Command::new("sh").arg("-c").arg(twice).stderr(Stdio::null()).status();
    assert!(server.wait().success(), "it ends by itself");
    assert!(server.said().contains("4096 stored bytes"), "and says what is lost");
    assert!(!server.socket().exists(), "nothing is left");
}

#[test]
fn the_limit_that_holds_is_announced() {
    let server = Server::with(&["--size", "4097", "--set", "mem_limit=1M"]);
    eventually("the second line", || server.said().contains("of memory"));
    let said = server.said();
    assert!(said.contains("8.0 KiB for clients") && said.contains("at most 1.0 MiB"), "{said}");
    assert!(said.contains("(4097 bytes were asked for, rounded up to whole pages)"), "{said}");
    let server = Server::with(&["--size", "1M", "--set", "mem_limit=1T"]);
    let warning = "warning: the memory limit of 1.0 TiB";
    eventually("a warning", || server.said().contains(warning));
}

#[test]
fn a_check_reads_what_was_written_back() {
    let scratch = Scratch::new();
    let backing = scratch.path("backing");
    std::fs::write(&backing, noise(7, 1 << 20)).unwrap();
    let backing_text = backing.to_str().unwrap();
    let server = Server::with(&["--size", "1M", "--backing", backing_text]);
    eventually("a warning", || server.said().contains("is not empty"));
    server.connect().write(0, &noise(1, 16 << 10)).expect("room");
    succeed(&mut ramfold(&["set", server.target(), "writeback", "huge"]));
    let said = succeed(&mut ramfold(&["check", server.target()]));
    assert!(said.contains("4 read from the backing disk"), "{said}");
    std::fs::File::options().write(true).open(&backing).unwrap().set_len(0).unwrap();
    let check = ramfold(&["check", server.target()]).output().unwrap();
    let said = String::from_utf8_lossy(&check.stderr).into_owned();
    assert!(!check.status.success() && said.contains("defect in zram0: page 0"), "{said}");
}

/// btrfs has its first superblock there.
#[test]
fn a_file_system_that_begins_late_is_content_too() {
    let scratch = Scratch::new();
    let backing = scratch.path("backing");
    let mut image = vec![0; 1 << 20];
    image[(64 << 10) + 64] = b'_';
    std::fs::write(&backing, image).unwrap();
    let server = Server::with(&["--size", "1M", "--backing", backing.to_str().unwrap()]);
    eventually("a warning", || server.said().contains("is not empty"));
}

#[test]
fn a_file_under_a_loop_device_is_no_backing_file() {
    if !needs(&["losetup"]) || !needs_device("/dev/loop-control") {
        return;
    }
    let scratch = Scratch::new();
    let (backing, link) = (scratch.path("backing"), scratch.path("link"));
    std::fs::write(&backing, vec![0; 1 << 20]).unwrap();
    std::os::unix::fs::symlink(&backing, &link).unwrap();
    let device = Loop::attach(&backing);
    let link = link.to_str().unwrap();
    let line = refusal(&mut ramfold(&["serve", "--size", "1M", "--backing", link]));
    assert!(line.contains("--backing") && line.contains(&device.device), "{line}");
}

fn end_under_traffic(signal: &str) {
    let mut server = Server::of_size("64M");
    let (written, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let socket = server.socket().to_path_buf();
    let status = std::thread::scope(|scope| {
        for client in 0..4 {
            // Here: a client that is let in late would find the server about to end.
            let (nbd, written, stop) = (server.connect(), &written, &stop);
            scope.spawn(move || write_until_cut(nbd, client, written, stop));
        }
        eventually("traffic", || written.load(Ordering::Relaxed) > 500);
        server.signal(signal);
        let status = server.wait();
        stop.store(true, Ordering::Relaxed);
        status
    });
    assert_eq!(status.code(), Some(0), "SIG{signal}: {}", server.said());
    assert!(!socket.exists(), "the socket is removed");
    assert!(!socket.with_extension("sock.ctl").exists(), "so is the control socket");
    let said = server.said();
    let last = said.lines().last().unwrap_or_default();
    assert!(last.contains("gone"), "says how many stored bytes are gone: {said}");
    assert!(last.contains(|c: char| c.is_ascii_digit()), "says how many: {said}");
}

/// Writes noise to its quarter of the disk until the connection breaks.
fn write_until_cut(mut nbd: Nbd, client: u64, written: &AtomicU64, stop: &AtomicBool) {
    let quarter = nbd.size() / 4;
    let page = noise(client, PAGE_SIZE as usize);
    for number in 0.. {
        let offset = client * quarter + number * PAGE_SIZE % quarter;
        if stop.load(Ordering::Relaxed) || nbd.try_write(offset, &page).is_err() {
            return;
        }
        written.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_client_that_dies_in_a_write_harms_nobody() {
    let server = Server::of_size("16M");
    let mut witness = server.connect();
    witness.write(0, b"kept").unwrap();
    let alone = server.sockets();
    for round in 1..20 {
        server.connect().die_in_write(1 << 20, &noise(round, 1 << 20));
    }
    // What they sent may be written until then.
    eventually("the server to see that they are gone", || server.sockets() == alone);
    assert_eq!(witness.read(0, 4).unwrap(), b"kept");
    witness.write(1 << 20, &noise(99, 1 << 20)).unwrap();
    assert!(witness.read(1 << 20, 1 << 20).unwrap() == noise(99, 1 << 20), "the last write counts");
    server.check();
}

#[test]
fn a_killed_client_harms_nobody() {
    if !needs(&["nbdcopy"]) {
        return;
    }
    let server = Server::of_size("256M");
    let file = server.scratch.large("noise");
    std::fs::write(&file, noise(1, 256 << 20)).unwrap();
    let mut nbdcopy = Command::new("nbdcopy");
    nbdcopy.arg(&file).arg(server.uri()).stderr(Stdio::null());
    let mut nbdcopy = nbdcopy.spawn().unwrap();
    eventually("the copy to begin", || server.figure("orig_data_size") > 0);
    nbdcopy.kill().unwrap();
    nbdcopy.wait().unwrap();
    let mut client = server.connect();
    client.write(0, b"alive").unwrap();
    assert_eq!(client.read(0, 5).unwrap(), b"alive");
    server.check();
}

/// The arena used to be 5/4 of the machine whatever the limit was, so no server started under
/// `ulimit -v`.
#[test]
fn a_server_that_may_have_few_addresses_serves_within_its_limit() {
    let limits = ["--size", "64M", "--memory-limit", "64M"];
    let server = Server::with_addresses(4_000_000, &limits);
    assert!(server.said().contains("cannot be raised"), "{}", server.said());
    let mut client = server.connect();
    let stored = noise(5, 32 << 20);
    client.write(0, &stored).unwrap();
    assert!(client.read(0, stored.len()).unwrap() == stored);
    let set = |limit| ramfold(&["set", server.target(), "mem_limit", limit]);
    for larger in ["65M", "0"] {
        let why = refusal(&mut set(larger));
        assert!(why.contains("at most 67108864 bytes") && why.contains("ulimit -v"), "{why}");
    }
    succeed(&mut set("48M"));
    succeed(&mut set("64M"));
    server.check();
}

#[test]
fn full_memory_refuses_and_keeps() {
    let server = Server::with(&["--size", "64M", "--memory-limit", "8M"]);
    let mut client = server.connect();
    let stored = fill(&mut client);
    assert!(stored > 1024 && stored <= 2048, "{stored} pages of noise fill 8 MiB");
    for number in 0..stored {
        assert!(holds(&mut client, number), "page {number} is kept");
    }
    let refused = client.read(stored * PAGE_SIZE, PAGE_SIZE as usize).unwrap();
    assert!(refused.iter().all(|&byte| byte == 0), "a refused write leaves nothing");

    let half = stored / 2;
    client.trim(0, (half * PAGE_SIZE) as u32).unwrap();
    for number in stored..stored + half / 2 {
        assert_eq!(put(&mut client, number), Ok(()), "discarding made room for page {number}");
    }
    assert!((half..stored + half / 2).all(|number| holds(&mut client, number)), "all is kept");
    server.check();
}

/// Writes pages of noise until one is refused; how many were stored.
fn fill(client: &mut Nbd) -> u64 {
    let pages = client.size() / PAGE_SIZE;
    for number in 0..pages {
        if let Err(error) = put(client, number) {
            assert_eq!(error, ENOSPC, "the client is told that there is no space");
            return number;
        }
    }
    panic!("{pages} pages of noise fitted below the limit");
}

fn put(client: &mut Nbd, number: u64) -> Result<(), u32> {
    client.write(number * PAGE_SIZE, &noise(number + 1, PAGE_SIZE as usize))
}

fn holds(client: &mut Nbd, number: u64) -> bool {
    let page = client.read(number * PAGE_SIZE, PAGE_SIZE as usize);
    page == Ok(noise(number + 1, PAGE_SIZE as usize))
}

#[test]
fn a_limit_set_later_counts_at_once() {
    let server = Server::of_size("64M");
    let mut client = server.connect();
    (0..512).for_each(|number| put(&mut client, number).unwrap());
    succeed(&mut ramfold(&["set", server.target(), "mem_limit", "1M"]));
    assert_eq!(put(&mut client, 512), Err(ENOSPC));
    assert!((0..512).all(|number| holds(&mut client, number)), "what was stored stays");
    succeed(&mut ramfold(&["set", server.target(), "mem_limit", "0"]));
    assert_eq!(put(&mut client, 512), Ok(()), "0 lifts the limit");
}

#[test]
fn a_socket_left_by_a_dead_server_is_replaced() {
    let scratch = Scratch::new();
    let path = scratch.path("stale.sock");
    let path = path.to_str().unwrap();
    let mut servers = (0..2).map(|_| {
        let mut command = Command::new(crate::rig::BINARY);
        command.args(["serve", "--size", "1M", "--unix", path]);
        command.env("XDG_RUNTIME_DIR", scratch.path("run"));
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    });
    let mut serve_and_kill = || {
        let mut child = servers.next().unwrap();
        let served = || Nbd::connect_if_serving(Path::new(path)).is_some();
        eventually("the server to serve", served);
        child.kill().unwrap();
        child.wait().unwrap();
    };
    serve_and_kill();
    assert!(Path::new(path).exists(), "a killed server leaves its socket");
    serve_and_kill();
}
