//! Finds threads that wait for a page which waits for them, when another thread serves faults.
//!
//! ```text
//!   program      begin a call --> locks a group --signal--> handler touches a page of it, sleeps
//!   fault thread                                             message --> waits for that lock
//!   looks        1 s ...... 2 s ...... 3 s: still the same message, the same call, the same sleep
//! ```
//!
//! A message alone does not tell. It may be late, and its thread may be in an ordinary call by now.
//! So a look must find all of these, and three looks in a row must find the same:
//! - the message is being served;
//! - its thread is in a call;
//! - the system says that the thread sleeps outside of a system call, and where.
//!
//! A thread that waits for no lock has to look. In `region` it is `ramfold-watch`.
//!
//! The system tells it by `/proc/self/task/N/syscall`. If a kernel does not have that file, or the
//! handler touched the page by a system call, this stays unnoticed.
//!
//! Invariant: a process is ended only after `LOOKS` equal looks. Lock: none.

use super::signal::call_of;
use crate::machine::die;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Looks after which it is certain. They are at least a second apart.
const LOOKS: u32 = 3;

/// Readers of messages: the fault thread and its follower.
pub(super) const READERS: usize = 2;

/// The message that each reader is serving.
#[derive(Debug, Default)]
pub(super) struct Serving {
    numbers: AtomicU32,
    /// The number of the message in the upper half, and of the waiting thread in the lower. 0 means
    /// none.
    now: [AtomicU64; READERS],
}

impl Serving {
    /// `reader` begins to serve a message of `thread`.
    pub(super) fn begin(&self, reader: usize, thread: u32) {
        // relaxed: a number that is only compared.
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let message = u64::from(number) << u32::BITS | u64::from(thread);
        // relaxed: the thread that looks does so again a second later.
        self.now[reader].store(message, Ordering::Relaxed);
    }

    /// `reader` has served its message.
    pub(super) fn end(&self, reader: usize) {
        // relaxed: for the reason in `begin`.
        self.now[reader].store(0, Ordering::Relaxed);
    }
}

/// What the last look has seen of each reader.
#[derive(Debug, Default)]
pub struct StuckLooks([Look; READERS]);

#[derive(Debug, Default)]
struct Look {
    seen: Option<Seen>,
    times: u32,
}

#[derive(Debug, PartialEq, Eq)]
struct Seen {
    message: u64,
    call: u64,
    asleep: String,
}

impl StuckLooks {
    /// Looks once more, and ends the process if a page has been waiting for the thread that waits
    /// for it.
    pub(super) fn look(&mut self, serving: &Serving) {
        for (look, now) in self.0.iter_mut().zip(&serving.now) {
            // relaxed: for the reason in `Serving::begin`.
            let seen = seen(now.load(Ordering::Relaxed));
            look.times = if seen.is_some() && seen == look.seen { look.times + 1 } else { 1 };
            look.seen = seen;
            if look.seen.is_some() && look.times >= LOOKS {
                die(RE_ENTERED);
            }
        }
    }
}

/// The last words of the process.
const RE_ENTERED: &str = "a thread touched a region in the middle of its own call on regions, in a \
                          signal handler or a disk of the program's: the page waits for that call";

fn seen(message: u64) -> Option<Seen> {
    let thread = message as u32;
    let call = (thread != 0).then(|| call_of(thread)).flatten()?;
    let line = std::fs::read_to_string(format!("/proc/self/task/{thread}/syscall")).ok()?;
    // -1, followed by the place of the thread, means that it sleeps and is in no system call.
    line.starts_with("-1 ").then_some(Seen { message, call, asleep: line })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::begin_call;
    use std::sync::mpsc;

    /// A message that came late: its thread went on, and is in a call now. It sleeps there, as one
    /// that waits for a disk does.
    #[test]
    fn a_thread_that_is_in_a_call_and_in_no_fault_is_left_alone() {
        let (tell, told) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let sleeper = std::thread::spawn(move || {
            let _call = begin_call();
            tell.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).expect("heard");
            assert!(ended.recv().is_err(), "until the test ends it");
        });
        let serving = Serving::default();
        serving.begin(1, told.recv().expect("its number"));
        let mut looks = StuckLooks::default();
        (0..2 * LOOKS).for_each(|_| looks.look(&serving));
        assert!(looks.0[1].seen.is_none(), "{looks:?}");
        serving.end(1);
        drop(end);
        sleeper.join().expect("it sleeps only");
    }
}
