//! Requests of a mounted tree that come by io_uring, beyond the tests that run both ways.
//!
//! Claims: where the system refuses io_uring, the tree is served by `/dev/fuse`, and `stat` says
//! why. Names and numbers are answered on every CPU while more reads than a queue has entries wait
//! for a disk that stands still, also if all of them come at once. A server that ends under load
//! leaves nobody waiting.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::rig::{
    Alone, Disabled, Offer, Stopped, Tree, by_io_uring, eventually, needs, needs_io_uring,
    needs_tree, noise, ramfold, succeed, tool,
};

/// Reads that wait on one CPU.
const READERS: usize = 40;
/// Reads that come at once by one CPU. A queue has 64 entries at first.
const BURST: usize = 200;

/// What `stat` says of the way.
fn way(tree: &Tree) -> String {
    succeed(ramfold(&["stat"]).arg(tree.scratch.path("run/ramfold/zram0.ctl")))
}

/// Options of a tree that takes its requests by io_uring if it can.
const AUTO: [&str; 4] = ["--size", "1M", "--fuse-io-uring", "auto"];

fn works(tree: &Tree) {
    fs::write(tree.disk(), noise(1, 1 << 20)).expect("it has room");
    assert!(fs::read(tree.disk()).expect("it is served") == noise(1, 1 << 20));
}

#[test]
fn a_ring_that_is_refused_is_named_with_the_reason() {
    if !needs_tree(&[]) || !needs_io_uring() {
        return;
    }
    let alone = Alone::new();
    let expect = |tree: &Tree, words: &str| {
        let said = way(tree);
        let line: Vec<&str> = said.lines().filter(|line| line.contains("requests by")).collect();
        assert!(matches!(line[..], [line] if line.contains(words)), "once: {said}");
        works(tree);
    };
    expect(
        &Tree::with(&AUTO),
        "/dev/fuse (the kernel does not offer io_uring: /sys/module/fuse/param",
    );
    let _offer = Offer::alone(&alone);
    expect(&Tree::with(&AUTO), "requests by io_uring");
    expect(&Tree::with(&["--size", "1M"]), "/dev/fuse (io_uring is turned off)");
    let _disabled = Disabled::new(&alone);
    expect(&Tree::with(&AUTO), "/dev/fuse (the system refuses io_uring: Operation not permitted");
}

/// A container's filter of system calls. The two calls are refused one after the other.
#[test]
fn a_filter_of_system_calls_leaves_the_device() {
    if !needs_tree(&["python3"]) || !needs_io_uring() || cfg!(not(target_arch = "x86_64")) {
        return;
    }
    let _offer = Offer::new();
    for call in [425, 426] {
        let script = format!(
            "import ctypes, os, struct, sys
load, equal, allow, deny = (0x20, 0, 0, 0), (0x15, 0, 1, {call}), 0x7fff0000, 0x50001
program = [load, equal, (6, 0, 0, deny), (6, 0, 0, allow)]
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *line) for line in program))
class Filter(ctypes.Structure):
    _fields_ = [('len', ctypes.c_ushort), ('code', ctypes.c_void_p)]
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
filter = Filter(len(program), ctypes.addressof(code))
assert libc.prctl(22, 2, ctypes.byref(filter)) == 0
os.execv(sys.argv[1], sys.argv[1:])
"
        );
        let mut tree = Tree::with(&["--size", "1M"]);
        tree.process.kill();
        let serve = Tree::command(&tree.scratch, tree.directory(), &AUTO);
        let mut command = Command::new("python3");
        command.args(["-c", &script]).arg(serve.get_program()).args(serve.get_args());
        command.envs(serve.get_envs().filter_map(|(name, value)| Some((name, value?))));
        tree.process = crate::rig::Process::start(&mut command, "mounted at");
        let said = way(&tree);
        assert!(said.contains("(the system refuses io_uring: Operation not permitted"), "{said}");
        works(&tree);
    }
}

#[test]
fn names_and_numbers_wait_for_no_stalled_disk_on_any_cpu() {
    by_io_uring(|| {
        if needs_tree(&["taskset", "dd"]) {
            numbers_while_a_disk_stalls();
        }
    });
}

/// Two trees, and what is written. It is on the backing device of the second, which is a disk of
/// the first.
fn written_back() -> (Tree, Tree, Vec<u8>) {
    let below = Tree::with(&["--size", "8M"]);
    let tree = Tree::new();
    tree.write("zram0/backing_dev", &below.disk().display().to_string());
    tree.write("zram0/disksize", "4M");
    let data = noise(1, 4 << 20);
    fs::write(tree.disk(), &data).expect("it has room");
    tree.write("zram0/idle", "all");
    tree.write("zram0/writeback", "idle");
    (below, tree, data)
}

fn numbers_while_a_disk_stalls() {
    let (below, tree, expected) = written_back();
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let stopped = Stopped::new(below.process.pid());
    let mut readers: Vec<Child> =
        (0..cpus * READERS).map(|number| reader(&tree, number / READERS, number)).collect();
    let under_way = || {
        let in_read = |child: &Child| {
            let path = format!("/proc/{}/syscall", child.id());
            // If the system does not say, it may be about to.
            fs::read_to_string(path).is_ok_and(|call| call.starts_with("0 0x0 "))
        };
        readers.iter().filter(|child| in_read(child)).count()
    };
    eventually("every reader to wait", || under_way() == readers.len());
    for cpu in 0..cpus {
        for name in ["zram0/mm_stat", "zram0/initstate", "zram-control/hot_remove"] {
            let mut stat = tool("taskset");
            stat.args(["-c", &cpu.to_string(), "timeout", "20"]);
            let what = if name.ends_with("remove") { ["stat", "-L"] } else { ["cat", "-u"] };
            succeed(stat.args(what).arg(tree.path(name)));
        }
    }
    assert!(
        readers.iter_mut().all(|reader| reader.try_wait().expect("ours").is_none()),
        "they wait"
    );
    drop(stopped);
    for (page, reader) in expected.chunks(4096).zip(readers) {
        assert!(reader.wait_with_output().expect("ours").stdout == page);
    }
    tree.check();
}

/// While the server stands still, more requests come by one CPU than its queue has entries. Nobody
/// asks for anything on that CPU afterwards.
#[test]
fn a_burst_that_takes_all_entries_of_a_queue_keeps_nothing_waiting() {
    by_io_uring(|| {
        // The test knows the number of one system call.
        if needs_tree(&[]) && cfg!(target_arch = "x86_64") {
            burst_while_a_disk_stalls();
        }
    });
}

fn burst_while_a_disk_stalls() {
    let (below, tree, data) = written_back();
    let disk = File::open(tree.disk()).expect("root may");
    let figures = File::open(tree.path("zram0/mm_stat")).expect("root may");
    let stopped = Stopped::new(below.process.pid());
    let burst = Stopped::new(tree.process.pid());
    let (began, told) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let readers: Vec<_> = (0..BURST)
            .map(|page| {
                let (disk, began) = (&disk, began.clone());
                scope.spawn(move || {
                    begin_on_one_cpu(&began);
                    let mut bytes = [0; 4096];
                    disk.read_exact_at(&mut bytes, page as u64 * 4096).map(|()| bytes)
                })
            })
            .collect();
        let wait_for_all = |count| {
            let threads: Vec<i32> = (0..count).map(|_| told.recv().expect("one each")).collect();
            eventually("all to ask", || threads.iter().all(|thread| is_in_read(*thread)));
        };
        wait_for_all(BURST);
        // It is behind all the others.
        let asks = scope.spawn(|| {
            begin_on_one_cpu(&began);
            figures.read_at(&mut [0; 200], 0)
        });
        wait_for_all(1);
        drop(burst);
        eventually("the figures", || asks.is_finished());
        assert!(asks.join().expect("it reads").expect("it is served") > 0);
        assert!(readers.iter().all(|reader| !reader.is_finished()), "the disk stands still");
        drop(stopped);
        for (page, reader) in data.chunks(4096).zip(readers) {
            assert!(reader.join().expect("it reads").expect("it is served") == page);
        }
    });
    tree.check();
}

/// From here on, this thread runs on the first CPU that it may use. Its number is told.
fn begin_on_one_cpu(began: &std::sync::mpsc::Sender<i32>) {
    use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};
    let allowed = sched_getaffinity(None).expect("the system says");
    let mut one = CpuSet::new();
    one.set((0..CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu)).expect("it runs"));
    sched_setaffinity(None, &one).expect("it may run there");
    began.send(gettid().as_raw_nonzero().get()).expect("the test listens");
}

/// Whether a thread of this process is in `pread64`.
fn is_in_read(thread: i32) -> bool {
    let path = format!("/proc/self/task/{thread}/syscall");
    fs::read_to_string(path).is_ok_and(|call| call.starts_with("17 "))
}

/// A process that reads one page on one CPU.
fn reader(tree: &Tree, cpu: usize, page: usize) -> Child {
    let mut dd = Command::new("taskset");
    dd.args(["-c", &cpu.to_string(), "dd", "bs=4096", "count=1", "status=none"]);
    dd.arg(format!("skip={page}")).arg(format!("if={}", tree.disk().display()));
    dd.stdout(Stdio::piped()).spawn().expect("it is installed")
}

#[test]
fn a_server_that_ends_under_load_leaves_nobody_waiting() {
    by_io_uring(|| {
        if needs_tree(&["umount"]) && needs(&["sh"]) {
            ["KILL", "TERM"].into_iter().for_each(ends_under_load);
        }
    });
}

fn ends_under_load(signal: &str) {
    let mut tree = Tree::with(&["--size", "16M"]);
    let (over, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let workers: Vec<_> = (0..6)
            .map(|number| {
                let disk = OpenOptions::new().read(true).write(true).open(tree.disk());
                let disk = disk.expect("root may");
                let (over, rounds) = (&over, &rounds);
                scope.spawn(move || works_until(&disk, number, over, rounds))
            })
            .collect();
        // relaxed: counts and flags for the test to look at.
        let count = || rounds.load(Ordering::Relaxed);
        eventually("the load", || count() > 100);
        match signal {
            "KILL" => tree.process.kill(),
            _ => {
                for said in ["is in use", "unmounted lazily"] {
                    tree.process.signal(signal);
                    eventually(said, || tree.process.said().contains(said));
                }
                let before = count();
                eventually("who has it open to go on", || count() > before + 100);
                over.store(true, Ordering::Relaxed);
            }
        }
        let failed = workers.into_iter().map(|worker| worker.join().expect("it asserts"));
        let failed = failed.filter(|&failed| failed).count();
        assert_eq!(failed, if signal == "KILL" { 6 } else { 0 }, "after {signal}");
    });
    if signal == "TERM" {
        assert_eq!(tree.process.wait().code(), Some(0), "{}", tree.process.said());
    }
}

/// Writes and reads until it is told to end, or gets an error: then true.
fn works_until(disk: &File, number: u64, over: &AtomicBool, rounds: &AtomicU64) -> bool {
    let len = [4096, 8192, 65536, 1 << 20][number as usize % 4];
    let (data, mut bytes) = (noise(number, len), vec![0; len]);
    // relaxed: a flag and a count.
    while !over.load(Ordering::Relaxed) {
        if disk.write_all_at(&data, number << 20).is_err() {
            return true;
        }
        if disk.read_exact_at(&mut bytes, number << 20).is_err() {
            return true;
        }
        assert!(bytes == data, "what was written is read");
        rounds.fetch_add(1, Ordering::Relaxed);
    }
    false
}
