//! A thread that serves the faults of others, for programs whose system calls touch folded memory.
//!
//! ```text
//!   poll -- message --> serve --> COPY wakes the thread | page was there: WAKE
//!     ^                   |                                     |
//!     |<------------------'-------------------------------------'
//!     `-- 64 faults of one thread: the follower serves, and this one looks after it
//! ```
//!
//! Where it runs matters more than what it does (measured, a page that is only copied): asleep on
//! another CPU 50 us a fault, since each wakes two idle CPUs; awake on another CPU 16 us; on the
//! CPU of the thread that faults 10 us. So while one thread alone faults, a [`Follower`] serves it
//! there. Else this one stays awake for a little while after a fault, on a CPU of its own; where
//! there is one CPU, it sleeps at once.
//!
//! Should it end for whatever reason but being asked to, the process is ended with it: its threads
//! would wait for ever.

use super::follower::{self, Follower};
use super::messages::{Messages, Reader, Streak};
use super::stuck::Looks;
use crate::machine::{Vital, cpu};
use crate::userfault::Userfault;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long it looks for the next fault before it sleeps.
const AWAKE: Duration = Duration::from_micros(50);

/// Faults of one thread, with none of another between them, from which on it is followed; and how
/// many at most, where following did not last.
const ALONE: u32 = 64;
const ALONE_MAX: u32 = 1 << 16;

/// It lasted.
const WORTH: u64 = 16 * ALONE as u64;

/// The thread. Dropping it ends it; nobody may be waiting for a page then.
#[derive(Debug)]
pub struct FaultThread {
    messages: Arc<Messages>,
    following: Option<Arc<follower::Shared>>,
    thread: Option<JoinHandle<()>>,
}

impl FaultThread {
    /// Starts it for the faults of one userfaultfd.
    ///
    /// # Errors
    ///
    /// When the system refuses a thread or a descriptor, or the userfaultfd is the parent
    /// process's, whose messages it would take.
    pub fn start(userfault: Arc<Userfault>) -> std::io::Result<FaultThread> {
        userfault.uffd.expect_own().map_err(std::io::Error::other)?;
        let messages = Arc::new(Messages::of(userfault)?);
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

    /// Faults that were served on the CPU of the thread that faulted, so far; none where the system
    /// does not allow for that.
    pub fn followed(&self) -> Option<u64> {
        self.following.as_ref().map(|following| following.served())
    }
}

impl FaultThread {
    /// Looks whether a page that is being brought in waits for the thread that waits for it, which
    /// ends the process. To be called once a second, with what the last look saw.
    pub fn look(&self, looks: &mut Looks) {
        looks.look(self.messages.serving());
    }
}

impl Drop for FaultThread {
    fn drop(&mut self) {
        self.messages.stop();
        if let Some(thread) = self.thread.take() {
            // It ends the process if it panics.
            drop(thread.join());
        }
    }
}

fn run(messages: &Messages, follower: Option<&Follower>) {
    let awake = if cpu::count() > 1 { AWAKE } else { Duration::ZERO };
    let mut alone = follower.map(|follower| Alone { follower, faults: ALONE });
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

/// When to have a thread followed.
struct Alone<'f> {
    follower: &'f Follower,
    /// Faults of one thread that it takes.
    faults: u32,
}

impl Alone<'_> {
    /// Has the thread of the streak followed, if that is long enough; false where nobody can be.
    fn look(&mut self, streak: &mut Streak) -> bool {
        if streak.faults < self.faults {
            return true;
        }
        let Some(served) = self.follower.follow(streak.thread) else { return false };
        let longer = (2 * self.faults).min(ALONE_MAX);
        self.faults = if served >= WORTH { ALONE } else { longer };
        *streak = Streak::default();
        true
    }
}
