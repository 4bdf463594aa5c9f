//! A thread that serves the faults of others, for programs whose system calls touch folded memory.
//!
//! ```text
//!   poll -- message --> serve --> COPY wakes the thread | page was there: WAKE
//!     ^                   |                                     |
//!     |<------------------'-------------------------------------'
//!     `-- 64 faults of one thread: the follower serves, and this one looks after it
//! ```
//!
//! The place where it runs matters more than its work. Measured times of a fault whose page is only
//! copied:
//! - 50 us if the thread sleeps on another CPU, because each fault then wakes two idle CPUs;
//! - 16 us if it is awake on another CPU;
//! - 10 us if it runs on the CPU of the thread that faults.
//!
//! So while one thread alone faults, a [`Follower`] serves it on its CPU. Otherwise this thread
//! stays awake for a little while after a fault, on a CPU of its own. If there is one CPU only, it
//! sleeps at once.
//!
//! Invariant: if the thread ends for any reason except a request, the process ends with it, because
//! its threads would wait for ever. Lock: none.

use super::follower::{self, Follower};
use super::messages::{Messages, Reader, Streak};
use super::stuck::StuckLooks;
use crate::folding::FaultPath;
use crate::machine::{Vital, cpu};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the thread looks for the next fault before it sleeps.
const AWAKE: Duration = Duration::from_micros(50);

/// Faults of one thread, without one of another between them, from which on the thread is followed.
/// The number doubles up to the maximum if following did not last.
const STREAK_MIN: u32 = 64;
const STREAK_MAX: u32 = 1 << 16; // 65536

/// Faults from which on following has lasted.
const FOLLOWED_MIN: u64 = 16 * STREAK_MIN as u64; // 1024

/// The thread that serves faults. Dropping this ends it. No thread may be waiting for a page then.
#[derive(Debug)]
pub struct FaultThread {
    messages: Arc<Messages>,
    following: Option<Arc<follower::Shared>>,
    thread: Option<JoinHandle<()>>,
}

impl FaultThread {
    /// Starts the thread for the faults of one userfaultfd.
    ///
    /// # Errors
    ///
    /// If the system refuses a thread or a descriptor, or the userfaultfd is the parent process's,
    /// whose messages the thread would take.
    pub fn start(path: Arc<FaultPath>) -> std::io::Result<FaultThread> {
        path.expect_own().map_err(std::io::Error::other)?;
        let messages = Arc::new(Messages::of(path)?);
        let follower = Follower::start(&messages)?;
        let following = follower.as_ref().map(|follower| Arc::clone(follower.shared()));
        let told = Arc::clone(&messages);
        let thread = crate::machine::thread::spawn("ramfold-fault", move || {
            let vital = Vital::new("the thread that brings pages in has failed");
            run(&told, follower.as_ref());
            vital.end();
        })?;
        Ok(FaultThread { messages, following, thread: Some(thread) })
    }

    /// Faults that were served on the CPU of the thread that faulted, so far. `None` if the system
    /// does not allow that.
    pub fn followed(&self) -> Option<u64> {
        self.following.as_ref().map(|following| following.served())
    }
}

impl FaultThread {
    /// Looks whether a page that is being brought in waits for the thread that waits for the page.
    /// The process ends then. Call it once a second, with the `looks` of the last call.
    pub fn look(&self, looks: &mut StuckLooks) {
        looks.look(self.messages.serving());
    }
}

impl Drop for FaultThread {
    fn drop(&mut self) {
        self.messages.stop();
        if let Some(thread) = self.thread.take() {
            // The thread ends the process if it panics.
            drop(thread.join());
        }
    }
}

fn run(messages: &Messages, follower: Option<&Follower>) {
    let awake = if cpu::count() > 1 { AWAKE } else { Duration::ZERO };
    let mut alone = follower.map(|follower| Alone { follower, faults: STREAK_MIN });
    let mut reader = Reader::of(messages, 0);
    while messages.wait() {
        let mut last = Instant::now();
        loop {
            if reader.serve() > 0 {
                last = Instant::now();
            } else if last.elapsed() >= awake {
                break;
            }
            if alone.as_mut().is_some_and(|alone| !alone.look(&mut reader.streak)) {
                alone = None;
            }
            std::hint::spin_loop();
        }
    }
}

/// Decides when a thread is followed.
struct Alone<'f> {
    follower: &'f Follower,
    /// Faults in a row after which a thread is followed.
    faults: u32,
}

impl Alone<'_> {
    /// Makes the follower follow the thread of the streak, if the streak is long enough. False if
    /// no thread can be followed.
    fn look(&mut self, streak: &mut Streak) -> bool {
        if streak.faults < self.faults {
            return true;
        }
        let Some(served) = self.follower.follow(streak.thread) else { return false };
        let longer = (2 * self.faults).min(STREAK_MAX);
        self.faults = if served >= FOLLOWED_MIN { STREAK_MIN } else { longer };
        *streak = Streak::default();
        true
    }
}
