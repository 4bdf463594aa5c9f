//! A thread that serves the faults of others, for programs whose system calls touch folded memory.
//!
//! ```text
//!   poll -- message --> serve --> COPY wakes the thread | page was there: WAKE
//!     ^                                                           |
//!     `-----------------------------------------------------------'
//! ```
//!
//! Where it runs matters more than what it does: asleep on another CPU, each fault wakes two idle
//! CPUs; on the CPU of the thread that faults it is two context switches (measured: 45 and 6.3 us).
//! But a thread that is woken there moves to an idle CPU, if there is one, and this one would chase
//! it. So it stays awake for a little while after a fault, on a CPU of its own (14 us), and where
//! there is one CPU, sleeps at once.
//!
//! Should it end for whatever reason but being asked to, the process is ended with it: its threads
//! would wait for ever.

use super::signal::{die, serve};
use super::{Served, Touched};
use crate::span::Userfault;
use crate::uffd::Waiting;
use crate::{PAGE_SIZE, cpu};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long it looks for the next fault before it sleeps.
const AWAKE: Duration = Duration::from_micros(50);

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
    let awake = if cpu::count() > 1 { AWAKE } else { Duration::ZERO };
    let mut stray = None;
    while !sleep(userfault, stop) {
        let mut last = Instant::now();
        loop {
            if serve_all(userfault, &mut stray) {
                last = Instant::now();
            } else if last.elapsed() >= awake {
                break;
            }
            std::hint::spin_loop();
        }
    }
}

/// Sleeps until there are messages; true when the thread is to end.
fn sleep(userfault: &Userfault, stop: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(&userfault.uffd, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
    // Interrupted, or refused for a moment: look at both all the same.
    let _ = poll(&mut fds, None);
    !fds[1].revents().is_empty()
}

/// Serves what there is; false when there is nothing.
fn serve_all(userfault: &Userfault, stray: &mut Option<Waiting>) -> bool {
    let mut waiting = [Waiting { address: 0, thread: 0 }; 8];
    let Ok(count) = userfault.uffd.read(&mut waiting) else {
        die("the descriptor of folded memory was closed", 0)
    };
    waiting[..count].iter().for_each(|fault| serve_one(userfault, *fault, stray));
    count > 0
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
