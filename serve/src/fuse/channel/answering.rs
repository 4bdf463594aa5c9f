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
    /// Data in memory, as much as a request by io_uring has. It takes the processor a few
    /// microseconds for each page.
    Short,
    /// More than that, or what takes as long. As many such requests are answered at a time as there are
    /// threads, except one.
    Slow,
    /// A disk, another process, or a command that takes long.
    Waiting,
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
