//! Messages about missing pages: waiting for them, reading, serving and answering them.
//!
//! ```text
//!   read --> region: filled --> COPY woke the thread
//!                    there  --> WAKE
//!            nobody's       --> WAKE; the same once more: the process ends
//! ```
//!
//! Invariant: several threads may read, and each message goes to one of them, which answers it.
//! Lock: none.

use super::regions::{Served, Touched};
use super::signal::{DROPPED, serve};
use super::stuck::Serving;
use crate::folding::{FaultPath, Uffd, Waiting};
use crate::machine::{PAGE_SIZE, die, die_at};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// The messages of one userfaultfd, until their readers are told to end.
#[derive(Debug)]
pub(super) struct Messages {
    path: Arc<FaultPath>,
    stop: OwnedFd,
    serving: Serving,
}

impl Messages {
    pub(super) fn of(path: Arc<FaultPath>) -> std::io::Result<Messages> {
        if path.uffd().is_none() {
            return Err(std::io::Error::new(
                std::io::ErrorKind::Unsupported,
                "without a userfaultfd there are no messages about missing pages",
            ));
        }
        let stop = eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok(Messages { path, stop, serving: Serving::default() })
    }

    fn uffd(&self) -> &Uffd {
        self.path.uffd().expect("`of` has seen it")
    }

    /// The messages that are being served.
    pub(super) fn serving(&self) -> &Serving {
        &self.serving
    }

    /// Tells all readers to end.
    pub(super) fn stop(&self) {
        let told = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        debug_assert!(told.is_ok(), "an eventfd takes a 1");
    }

    /// Sleeps until there are messages. False if the reader has to end.
    pub(super) fn wait(&self) -> bool {
        let uffd = PollFd::new(self.uffd(), PollFlags::IN);
        let mut fds = [uffd, PollFd::new(&self.stop, PollFlags::IN)];
        // Both are looked at even if the call was interrupted, or refused for a moment.
        let _ = poll(&mut fds, None);
        fds[1].revents().is_empty()
    }

    /// Sleeps for `time`, even if there are messages. False if the reader has to end. `time` is
    /// less than a second.
    pub(super) fn rest(&self, time: Duration) -> bool {
        let time = Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
        let mut fds = [PollFd::new(&self.stop, PollFlags::IN)];
        let _ = poll(&mut fds, Some(&time));
        fds[0].revents().is_empty()
    }
}

/// A reader of messages.
#[derive(Debug)]
pub(super) struct Reader<'m> {
    messages: &'m Messages,
    /// Its number among the readers.
    number: usize,
    /// The last fault, if its address was in no region.
    stray: Option<Waiting>,
    /// The thread that faults, and how often in a row.
    pub(super) streak: Streak,
}

/// Faults of one thread, without one of another thread between them.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Streak {
    pub(super) thread: u32,
    pub(super) faults: u32,
}

impl Streak {
    fn add(&mut self, thread: u32) {
        let faults = if self.thread == thread { self.faults.saturating_add(1) } else { 1 };
        *self = Streak { thread, faults };
    }
}

impl Reader<'_> {
    pub(super) fn of(messages: &Messages, number: usize) -> Reader<'_> {
        Reader { messages, number, stray: None, streak: Streak::default() }
    }

    /// Serves the messages that there are, and gives their number. It returns at once if there are
    /// none.
    pub(super) fn serve(&mut self) -> usize {
        let mut waiting = [Waiting { address: 0, thread: 0 }; 8];
        let Ok(count) = self.messages.uffd().read(&mut waiting) else {
            die("the descriptor of folded memory was closed")
        };
        waiting[..count].iter().for_each(|fault| self.serve_one(*fault));
        count
    }

    fn serve_one(&mut self, fault: Waiting) {
        self.streak.add(fault.thread);
        self.messages.serving.begin(self.number, fault.thread);
        let touched = serve(fault.address, fault.thread);
        self.messages.serving.end(self.number);
        match touched {
            Touched::Served(served) => {
                self.stray = None;
                if served == Served::Present {
                    self.wake(fault.address);
                }
            }
            // A message may be late, and the region dropped.
            Touched::Gone | Touched::Foreign if self.stray != Some(fault) => {
                self.stray = Some(fault);
                self.wake(fault.address);
            }
            Touched::Gone => die_at(DROPPED, fault.address),
            Touched::Foreign => die_at("a fault in memory that is no region's", fault.address),
        }
    }

    fn wake(&self, address: usize) {
        let page = address & !(PAGE_SIZE - 1);
        if self.messages.uffd().wake(&(page..page + PAGE_SIZE)).is_err() {
            die_at("a thread that waits for a page cannot be woken", address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_streak_ends_with_the_fault_of_another_thread() {
        let mut streak = Streak::default();
        let mut after = |thread| {
            streak.add(thread);
            streak.faults
        };
        assert_eq!([7, 7, 7, 8, 7, 7].map(&mut after), [1, 2, 3, 1, 1, 2]);
    }
}
