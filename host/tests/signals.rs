//! Claim: threads of ours take no signal of the program that they run in.
//!
//! Tests that send signals do so in a forked child. There the program has only the threads that the
//! test gives it, and a signal that finds no handler ends only the child.

#![cfg(not(any(loom, shuttle, miri)))]

use disk::RamDisk;
use ramfold_host::{FaultMode, thread};
use region::zswap::{GroupId, Limit, Zswap, ZswapConfig};
use region::{FaultError, StoreConfig};
use region::{Memory, MemoryConfig, Pager, PagerConfig, Region, RegionConfig, RegionError};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::time::Duration;
use zram::{Policy, PolicyConfig, Zram, ZramConfig};

const SIGNALS: usize = 2000;
const PAGES: usize = 1024;
const PAGE: usize = 4096;

/// Signals of a fault, as bits of a mask: what every thread takes.
const FAULTS: u64 = bit(libc::SIGBUS)
    | bit(libc::SIGSEGV)
    | bit(libc::SIGFPE)
    | bit(libc::SIGILL)
    | bit(libc::SIGTRAP)
    | bit(libc::SIGSYS);
/// What can be blocked: neither KILL and STOP nor the two that the C library keeps for itself.
const ALL: u64 = !(bit(libc::SIGKILL) | bit(libc::SIGSTOP) | bit(32) | bit(33));

const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// What this thread blocks, as the system says.
fn blocked() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").expect("proc is mounted");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).expect("a mask");
    u64::from_str_radix(mask.trim(), 16).expect("a number")
}

/// Sets what this thread blocks.
fn block(signals: &[i32]) {
    // SAFETY: a set of this function's, and the mask that of a thread of this test.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for &signal in signals {
            libc::sigaddset(&raw mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
    }
}

#[test]
fn a_thread_blocks_everything_but_faults() {
    let mask = thread::spawn("ours", blocked).expect("a thread").join().expect("it asks only");
    assert_eq!(mask, ALL & !FAULTS, "what a thread blocks");
    let scoped = std::thread::scope(|scope| {
        let started = thread::spawn_scoped(scope, "ours", blocked);
        started.expect("a thread").join().expect("it asks only")
    });
    assert_eq!(scoped, ALL & !FAULTS, "what a thread of a scope blocks");
}

#[test]
fn a_thread_takes_the_signals_it_was_started_for() {
    let (term, int) = (libc::SIGTERM, libc::SIGINT);
    let mask = thread::spawn_taking(&[term, int], "ours", blocked).expect("a thread").join();
    assert_eq!(mask.expect("it asks only"), ALL & !FAULTS & !bit(term) & !bit(int));
    let error = thread::spawn_taking(&[4711], "ours", blocked).expect_err("no such signal");
    assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
}

/// A worker thread of a program often blocks everything. A thread that it starts for us must take
/// the SIGBUS of a region all the same: else the fault ends the process.
#[test]
fn a_caller_that_blocks_faults_starts_threads_that_take_them() {
    let all: Vec<i32> = (1..=64).filter(|&signal| ALL & bit(signal) != 0).collect();
    let caller = std::thread::spawn(move || {
        block(&all);
        let mask = thread::spawn("ours", blocked).expect("a thread").join();
        (mask.expect("it asks only"), blocked())
    });
    let (thread, caller) = caller.join().expect("it asks only");
    assert_eq!(thread, ALL & !FAULTS, "what the thread blocks");
    assert_eq!(caller, ALL, "what the caller blocks is what it blocked before");
}

/// A program with one of everything that starts threads.
struct Program {
    _policy: Policy,
    /// The policy's thread ends without it.
    _device: Arc<Zram>,
    _regions: Vec<Region>,
}

fn pager(fault_mode: FaultMode) -> Option<Arc<Pager>> {
    let memory = Memory::new(MemoryConfig {
        arena_frames: 1 << 16,
        entries_max: 1 << 18,
        expected_bytes: 64 << 20,
        worker: true,
    });
    let config = PagerConfig { fault_mode: Some(fault_mode), ..PagerConfig::default() };
    match Pager::new(memory.expect("a memory"), &config) {
        Ok(pager) => Some(pager),
        Err(RegionError::Fault(
            error @ (FaultError::Denied { .. } | FaultError::Unsupported { .. }),
        )) => {
            eprintln!("skipped: needs {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A region whose pages are out: in a cache that is too small for them, before a disk.
fn folded(pager: &Arc<Pager>) -> Region {
    let backing = Some(Arc::new(RamDisk::new(16 << 20).expect("a disk")) as Arc<_>);
    let limit = Limit::Bytes((PAGES * PAGE / 4) as u64);
    let config = ZswapConfig { limit, backing, worker: true, ..ZswapConfig::new("signals") };
    let cache = Arc::new(Zswap::new(Arc::clone(pager.memory()), config).expect("a cache"));
    let store = StoreConfig::Zswap { cache, group: GroupId::ROOT };
    let config = RegionConfig { store, ..RegionConfig::default() };
    let mut region = Region::map(pager, PAGES * PAGE, &config).expect("a region");
    let mut random = 1u64;
    for bytes in region.as_mut_slice().chunks_mut(16) {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        bytes[..8].copy_from_slice(&random.to_le_bytes());
    }
    region.control().page_out(0..PAGES * PAGE).expect("out");
    region
}

impl Program {
    fn start() -> Option<Program> {
        let pagers = [pager(FaultMode::Signal)?, pager(FaultMode::Thread)?];
        let mut regions: Vec<Region> = pagers.iter().map(folded).collect();
        // What is stored of them is freed, so that the memory's worker has something to do.
        regions.iter_mut().for_each(|region| region.as_mut_slice()[..PAGES * PAGE / 2].fill(1));
        let device = ZramConfig { track_ages: true, ..ZramConfig::new("signals", 1 << 20) };
        let device = Zram::new(Arc::clone(pagers[0].memory()), device).expect("a device");
        let device = Arc::new(device);
        let policy = Policy::start(&device, PolicyConfig::new(1 << 20)).expect("a policy");
        Some(Program { _policy: policy, _device: device, _regions: regions })
    }
}

/// The threads of this process, by name.
fn threads() -> Vec<(i32, String)> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("proc is mounted");
    let numbers = tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok());
    let name = |number: i32| std::fs::read_to_string(format!("/proc/self/task/{number}/comm"));
    numbers.filter_map(|number| Some((number, name(number).ok()?.trim().to_owned()))).collect()
}

/// Says why a child fails; what a test prints in the usual way is kept until its end.
fn say(words: &str) {
    let _ = writeln!(std::io::stderr(), "{words}");
}

/// Waits until every kind of thread there is runs, for some seconds; says which does not.
fn has_every_thread() -> bool {
    let mut missing = missing_threads();
    for _ in 0..1000 {
        if missing.is_empty() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
        missing = missing_threads();
    }
    say(&format!("no thread is called {missing:?}: {:?}", threads()));
    false
}

fn missing_threads() -> Vec<&'static str> {
    let threads = threads();
    let mut wanted = vec!["ramfold-pager", "ramfold-worker", "ramfold-fault", "ramfold-fetch"];
    wanted.extend(["zswap-shrink", "zram policy"]);
    wanted.retain(|name| threads.iter().all(|thread| thread.1 != *name));
    wanted
}

/// How a forked child ends: with 0 where the answer is true.
fn forked(answer: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child's threads are this one, which holds no lock.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends a child that hangs.
        unsafe { libc::alarm(60) };
        let right = std::panic::catch_unwind(std::panic::AssertUnwindSafe(answer));
        // SAFETY: without what a test's end would do.
        unsafe { libc::_exit(i32::from(!right.unwrap_or(false))) };
    }
    let mut status = 0;
    // SAFETY: waits for a child of this process.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    status
}

fn send(signal: i32) {
    // SAFETY: to this process.
    unsafe { libc::kill(libc::getpid(), signal) };
}

/// The threads that took a signal, in the order of the signals.
static TAKERS: [AtomicI32; SIGNALS] = [const { AtomicI32::new(0) }; SIGNALS];
static TAKEN: AtomicUsize = AtomicUsize::new(0);

extern "C" fn take(_signal: libc::c_int) {
    // SAFETY: asks only.
    let thread = unsafe { libc::gettid() };
    let at = TAKEN.load(Ordering::SeqCst);
    TAKERS[at % SIGNALS].store(thread, Ordering::SeqCst);
    TAKEN.store(at + 1, Ordering::SeqCst);
}

/// Sends signals, each after the one before was taken, and looks at which thread took them.
fn all_go_to(listener: i32) -> bool {
    for number in 0..SIGNALS {
        send(libc::SIGUSR1);
        while TAKEN.load(Ordering::SeqCst) <= number {
            std::thread::yield_now();
        }
    }
    let strays = TAKERS.iter().map(|taker| taker.load(Ordering::SeqCst));
    let strays: Vec<i32> = strays.filter(|&taker| taker != listener).collect();
    let names = threads();
    let name = strays.first().and_then(|&stray| names.iter().find(|thread| thread.0 == stray));
    if !strays.is_empty() {
        let strays = strays.len();
        say(&format!("{strays} of {SIGNALS} signals were taken by others, such as {name:?}"));
    }
    strays.is_empty()
}

/// A program's handler ran on a pager's thread, 2998 times of 2999: the thread blocked nothing, and
/// the system gives a signal to whichever thread takes it.
#[test]
fn a_handler_runs_on_threads_of_the_program() {
    if pager(FaultMode::Thread).is_none() {
        return;
    }
    let status = forked(|| {
        let Some(_program) = Program::start() else { return false };
        if !has_every_thread() {
            return false;
        }
        // SAFETY: the handler stores to atomics only.
        unsafe { libc::signal(libc::SIGUSR1, take as extern "C" fn(i32) as usize) };
        // This thread sends, and leaves the signals to the one that listens.
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            // SAFETY: asks only.
            let sent = tell.send(unsafe { libc::gettid() });
            sent.expect("the sender waits for it");
            loop {
                std::thread::sleep(Duration::from_secs(60));
            }
        });
        let number = told.recv().expect("it says its number first");
        block(&[libc::SIGUSR1]);
        all_go_to(number)
    });
    assert_eq!(status, 0, "signals of the program were taken by a thread of ours");
}

/// A program that waits for its signals with `sigwait` missed those that a thread of ours took;
/// where it has no handler, that ended it.
#[test]
fn a_program_that_waits_for_signals_gets_all_of_them() {
    if pager(FaultMode::Thread).is_none() {
        return;
    }
    let status = forked(|| {
        let Some(_program) = Program::start() else { return false };
        if !has_every_thread() {
            return false;
        }
        block(&[libc::SIGUSR2]);
        // SAFETY: a set of this function's; no handler runs.
        let next = || unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, libc::SIGUSR2);
            let limit = libc::timespec { tv_sec: 10, tv_nsec: 0 };
            libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const limit)
        };
        let taken = (0..SIGNALS).take_while(|_| {
            send(libc::SIGUSR2);
            next() == libc::SIGUSR2
        });
        let taken = taken.count();
        if taken < SIGNALS {
            say(&format!("{taken} of {SIGNALS} signals reached the thread that waits for them"));
        }
        taken == SIGNALS
    });
    assert_eq!(status, 0, "a signal of the program was taken by a thread of ours");
}
