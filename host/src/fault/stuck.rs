//! Threads that wait for a page which waits for them, where another thread serves faults.
//!
//! ```text
//!   program      begin a call --> locks a group --signal--> handler touches a page of it, sleeps
//!   fault thread                                             message --> waits for that lock
//!   who looks    1 s ...... 2 s ...... 3 s: still the same message, the same call, the same sleep
//! ```
//!
//! A message alone does not tell: it may be late, and its thread be in a call like any other. So it
//! takes a thread that the system says to be asleep, outside of a system call and at one place, in
//! one call, while its one message is being served, at three looks in a row.
//!
//! To be asked for by a thread that waits for no lock: in `region` it is `ramfold-watch`.
//!
//! What the system says is `/proc/self/task/N/syscall`. Where a kernel does not have that, or the
//! handler touched the page by a system call, this stays unnoticed.

use super::signal::call_of;
use crate::machine::die;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Looks after which it is certain, at the least a second apart.
const LOOKS: u32 = 3;

/// Who reads messages: the fault thread and its follower.
pub(super) const READERS: usize = 2;

/// What each reader serves just now.
#[derive(Debug, Default)]
pub(super) struct Serving {
    numbers: AtomicU32,
    /// The message's number in the upper half, the thread that waits in the lower; 0: nothing.
    now: [AtomicU64; READERS],
}

impl Serving {
    /// `reader` begins to serve a message of `thread`.
    pub(super) fn begin(&self, reader: usize, thread: u32) {
        // relaxed: a number that is only compared.
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let message = u64::from(number) << u32::BITS | u64::from(thread);
        // relaxed: who looks does so again a second later.
        self.now[reader].store(message, Ordering::Relaxed);
    }

    /// It is served.
    pub(super) fn end(&self, reader: usize) {
        // relaxed: as above.
        self.now[reader].store(0, Ordering::Relaxed);
    }
}

/// What was seen at the last look, of each reader.
#[derive(Debug, Default)]
pub struct Looks([Look; READERS]);

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

impl Looks {
    /// Looks once more, and ends the process where a page has been waiting for who waits for it.
    pub(super) fn look(&mut self, serving: &Serving) {
        for (look, now) in self.0.iter_mut().zip(&serving.now) {
            // relaxed: as in `Serving::begin`.
            let seen = seen(now.load(Ordering::Relaxed));
            look.times = if seen.is_some() && seen == look.seen { look.times + 1 } else { 1 };
            look.seen = seen;
            if look.seen.is_some() && look.times >= LOOKS {
                die(RE_ENTERED);
            }
        }
    }
}

/// What ends the process.
const RE_ENTERED: &str = "a thread touched a region in the middle of its own call on regions, in a \
                          signal handler or a disk of the program's: the page waits for that call";

fn seen(message: u64) -> Option<Seen> {
    let thread = message as u32;
    let call = (thread != 0).then(|| call_of(thread)).flatten()?;
    let line = std::fs::read_to_string(format!("/proc/self/task/{thread}/syscall")).ok()?;
    // -1, and where the thread is: it sleeps, and in no system call.
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
        let mut looks = Looks::default();
        (0..2 * LOOKS).for_each(|_| looks.look(&serving));
        assert!(looks.0[1].seen.is_none(), "{looks:?}");
        serving.end(1);
        drop(end);
        sleeper.join().expect("it sleeps only");
    }
}
