//! What answers requests, whichever way they come: the files, and what their answers wait for.
//!
//! Invariant: a panic of the files fails the request that met it, and no other. Locks: none.

use super::wire::{Body, Call, Caller, Range};
use rustix::io::Errno;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What an answer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Nothing but memory.
    Quick,
    /// Little data in memory, which takes the processor a few microseconds for each page.
    Short,
    /// As much data as one thread works on in the time that giving it to another one takes. It is
    /// short for a thread that has nothing else to answer, and slow for any other.
    Moderate,
    /// Data that the processor works on. As many such requests are answered at a time as there are
    /// threads, except one.
    Slow,
    /// A disk, another process, or a command that takes long.
    Waiting,
}

impl Pace {
    /// What it is for a thread that has `others` to answer besides.
    pub(super) fn among(self, others: usize) -> Pace {
        match (self, others) {
            (Pace::Moderate, 0) => Pace::Short,
            (Pace::Moderate, _) => Pace::Slow,
            _ => self,
        }
    }
}

/// What answers.
pub(crate) trait Files: Send + Sync {
    /// What the answer waits for.
    fn pace(&self, caller: &Caller, call: &Call<'_>) -> Pace;

    /// Reads a file into `buffer`, and gives how many bytes there were.
    fn read(&self, caller: &Caller, range: &Range, buffer: &mut [u8]) -> Result<usize, Errno>;

    /// Answers any other request. What the answer says besides success goes into `body`.
    fn answer(&self, caller: &Caller, call: &Call<'_>, body: &mut Body) -> Result<(), Errno>;
}

/// Keeps this thread from waiting for memory to be freed, because the kernel may wait for this very
/// thread to free memory. Without CAP_SYS_RESOURCE this is refused, and the two may wait for each
/// other.
pub(super) fn never_wait_for_oneself() {
    let _ = rustix::process::configure_io_flusher_behavior(true);
}

/// Answers EIO if `answer` panics, so that a bug fails only the request that met it.
pub(super) fn unwound<T>(answer: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    catch_unwind(AssertUnwindSafe(answer)).unwrap_or(Err(Errno::IO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moderate_data_is_short_for_a_thread_that_has_nothing_else_to_answer() {
        let rows = [(0, Pace::Short), (1, Pace::Slow), (9, Pace::Slow)];
        rows.iter().for_each(|&(others, pace)| assert_eq!(Pace::Moderate.among(others), pace));
        let others = [Pace::Quick, Pace::Short, Pace::Slow, Pace::Waiting];
        others.iter().for_each(|&pace| assert_eq!([pace.among(0), pace.among(1)], [pace; 2]));
    }
}
