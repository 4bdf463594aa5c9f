//! A thread that serves the faults of others, for programs whose system calls touch folded memory.
//!
//! ```text
//!   poll -- message --> serve --> COPY wakes the thread | page was there: WAKE
//!     ^                                                           |
//!     `-----------------------------------------------------------'
//! ```
//!
//! Where it runs matters more than what it does: on another CPU each fault wakes two idle CPUs, on
//! the CPU of the thread that faults it is two context switches (measured: 45 and 6.3 us). So while
//! one thread faults, this one follows it; while several do, it runs where the system likes.
//!
//! Should it end for whatever reason but being asked to, the process is ended with it: its threads
//! would wait for ever.

use super::signal::{die, serve};
use super::{Served, Touched};
use crate::PAGE_SIZE;
use crate::span::Userfault;
use crate::uffd::Waiting;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::ffi::CStr;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Faults of one thread after which it is asked again where it runs.
const FOLLOW_EVERY: u32 = 32;

/// The thread. Dropping it ends it; nobody may be waiting for a page then.
#[derive(Debug)]
pub struct FaultThread {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl FaultThread {
    /// Starts it for the faults of one userfaultfd.
    ///
    /// # Errors
    ///
    /// When the system refuses a thread or a descriptor.
    pub fn start(userfault: Arc<Userfault>) -> std::io::Result<FaultThread> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let told = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("ramfold-fault".into()).spawn(move || {
            let vital = Vital::new("the thread that brings pages in has failed");
            run(&userfault, &told);
            vital.end();
        })?;
        Ok(FaultThread { stop, thread: Some(thread) })
    }
}

impl Drop for FaultThread {
    fn drop(&mut self) {
        let told = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        debug_assert!(told.is_ok(), "an eventfd takes a 1");
        if let Some(thread) = self.thread.take() {
            // It ends the process if it panics.
            drop(thread.join());
        }
    }
}

/// Ends the process when it is dropped: by a panic of a thread that others cannot go on without.
#[derive(Debug)]
pub struct Vital(&'static str);

impl Vital {
    /// With these last words.
    pub fn new(words: &'static str) -> Vital {
        Vital(words)
    }

    /// The thread ends as it should.
    pub fn end(self) {
        std::mem::forget(self);
    }
}

impl Drop for Vital {
    fn drop(&mut self) {
        die(self.0, 0);
    }
}

fn run(userfault: &Userfault, stop: &OwnedFd) {
    let mut follower = Follower::new();
    let mut stray = None;
    loop {
        let mut fds =
            [PollFd::new(&userfault.uffd, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        // Interrupted, or refused for a moment: look at both all the same.
        let _ = poll(&mut fds, None);
        if !fds[1].revents().is_empty() {
            return;
        }
        let mut waiting = [Waiting { address: 0, thread: 0 }; 8];
        let Ok(count) = userfault.uffd.read(&mut waiting) else {
            die("the descriptor of folded memory was closed", 0)
        };
        for fault in &waiting[..count] {
            follower.follow(fault.thread);
            serve_one(userfault, *fault, &mut stray);
        }
    }
}

/// Serves a fault. `stray` is the last one that no region had.
fn serve_one(userfault: &Userfault, fault: Waiting, stray: &mut Option<Waiting>) {
    match serve(fault.address) {
        Touched::Served(served) => {
            *stray = None;
            if served == Served::Present {
                wake(userfault, fault.address);
            }
        }
        // A message may be late: others brought the page in, the thread went on, and the region was
        // dropped. Who does wait touches the page again when it is woken.
        Touched::Gone | Touched::Foreign if *stray != Some(fault) => {
            *stray = Some(fault);
            wake(userfault, fault.address);
        }
        Touched::Gone => die("memory of a region was touched after it was dropped", fault.address),
        Touched::Foreign => die("a fault in memory that is no region's", fault.address),
    }
}

fn wake(userfault: &Userfault, address: usize) {
    let page = address & !(PAGE_SIZE - 1);
    if userfault.uffd.wake(&(page..page + PAGE_SIZE)).is_err() {
        die("a thread that waits for a page cannot be woken", address);
    }
}

/// Which thread faults, and where it runs.
struct Follower {
    thread: u32,
    since: u32,
    everywhere: Option<CpuSet>,
    followed: bool,
}

impl Follower {
    fn new() -> Follower {
        Follower { thread: 0, since: 0, everywhere: sched_getaffinity(None).ok(), followed: false }
    }

    /// Goes where the thread is, if it alone faults; any CPU will do otherwise.
    fn follow(&mut self, thread: u32) {
        if thread != self.thread {
            (self.thread, self.since) = (thread, 0);
            self.let_go();
        } else {
            self.since += 1;
        }
        // The second fault in a row of one thread, and every so often from then on.
        if self.since % FOLLOW_EVERY == 1 {
            self.go_to(thread);
        }
    }

    fn let_go(&mut self) {
        if let (true, Some(everywhere)) = (self.followed, &self.everywhere) {
            self.followed = sched_setaffinity(None, everywhere).is_err();
        }
    }

    fn go_to(&mut self, thread: u32) {
        if let Some(cpu) = cpu_of(thread) {
            let mut there = CpuSet::new();
            there.set(cpu);
            self.followed |= sched_setaffinity(None, &there).is_ok();
        }
    }
}

/// The CPU that a thread of this process ran on last: field 39 of its `stat`. Allocates nothing:
/// the thread may be waiting inside the program's allocator.
fn cpu_of(thread: u32) -> Option<usize> {
    let mut path = [0; 40];
    write!(&mut path[..39], "/proc/self/task/{thread}/stat").ok()?;
    let path = CStr::from_bytes_until_nul(&path).ok()?;
    let file = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut stat = [0; 1024];
    let len = rustix::io::read(&file, &mut stat).ok()?;
    // The name, in parentheses, is field 2 and may hold anything.
    let name_end = stat[..len].iter().rposition(|&byte| byte == b')')?;
    let rest = std::str::from_utf8(&stat[name_end + 1..len]).ok()?;
    let cpu: usize = rest.split_ascii_whitespace().nth(39 - 3)?.parse().ok()?;
    (cpu < CpuSet::MAX_CPU).then_some(cpu)
}
