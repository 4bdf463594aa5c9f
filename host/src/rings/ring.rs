//! An io_uring of 128-byte commands that one thread submits and waits for.
//!
//! ```text
//!   push --> submission queue --enter--> driver --later, inside enter--> completion --reap-->
//! ```
//!
//! The ring is made disabled, in any thread. The thread that enables it is the only one that may
//! enter it. A driver does the work that it put off for this thread only while the thread is inside
//! `enter` (`DEFER_TASKRUN`).
//!
//! Invariant R1: between two calls of `enter` no driver touches the memory of a command that is
//! under way. The ring's owner relies on it to give memory back. Lock: none.

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// Commands that are collected before they have to be submitted.
const COMMANDS: u32 = 64;
/// Completions that have room. The kernel keeps those beyond it until they have room.
const COMPLETIONS: u32 = 512;

/// A command that is complete.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completion {
    /// The number that the command was given.
    pub(super) number: u64,
    /// What came of it.
    pub(super) result: Result<u32, Errno>,
}

/// One ring.
pub(super) struct Ring {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
}

impl Ring {
    /// A ring that is not enabled yet.
    pub(super) fn new() -> io::Result<Ring> {
        let ring = IoUring::builder()
            .dontfork()
            .setup_r_disabled()
            .setup_single_issuer()
            .setup_defer_taskrun()
            // Without it, only waiting would have drivers do their work.
            .setup_taskrun_flag()
            .setup_cqsize(COMPLETIONS)
            .build(COMMANDS)?;
        let parameters = ring.params();
        // Without the first, completions may be lost. Without the second, waiting has no end.
        if !parameters.is_feature_nodrop() || !parameters.is_feature_ext_arg() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(Ring { ring })
    }

    /// Makes this thread the one that enters the ring.
    pub(super) fn enable(&self) -> io::Result<()> {
        self.ring.submitter().register_enable_rings()
    }

    /// Collects a command, and first submits what was collected if there is no room.
    ///
    /// # Safety
    ///
    /// Memory that the command names stays valid until its completion was reaped, or for ever if it
    /// never is. Nobody else touches it meanwhile, except between two calls of `enter` (R1).
    pub(super) unsafe fn push(&mut self, command: &squeue::Entry128) -> io::Result<()> {
        if self.ring.submission().is_full() {
            self.enter(0, None)?;
        }
        // SAFETY: the caller's promise is the one that is asked for.
        unsafe { self.ring.submission().push(command) }.map_err(io::Error::other)
    }

    /// Collects the question whether a descriptor can be read. It is answered once.
    pub(super) fn poll(&mut self, descriptor: BorrowedFd<'_>, number: u64) -> io::Result<()> {
        const READABLE: u32 = rustix::event::PollFlags::IN.bits() as u32;
        let poll = opcode::PollAdd::new(types::Fd(descriptor.as_raw_fd()), READABLE).build();
        // SAFETY: the command names no memory. The kernel takes a reference to the file when the
        // command is submitted, and a descriptor that is closed before is an error.
        unsafe { self.push(&poll.user_data(number).into()) }
    }

    /// Submits what was collected, and waits for `completions` or until `timeout` is over.
    pub(super) fn enter(
        &mut self,
        completions: usize,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        let limit = timeout.map(types::Timespec::from);
        let mut arguments = types::SubmitArgs::new();
        if let Some(limit) = &limit {
            arguments = arguments.timespec(limit);
        }
        loop {
            match self.ring.submitter().submit_with_args(completions, &arguments) {
                Ok(_) => return Ok(()),
                Err(error) => match error.raw_os_error().map(Errno::from_raw_os_error) {
                    Some(Errno::TIME) => return Ok(()),
                    // Completions must be reaped first.
                    Some(Errno::BUSY | Errno::AGAIN) if !self.ring.completion().is_empty() => {
                        return Ok(());
                    }
                    Some(Errno::INTR | Errno::AGAIN) => {}
                    _ => return Err(error),
                },
            }
        }
    }

    /// The next completion that is there.
    pub(super) fn reap(&mut self) -> Option<Completion> {
        let entry = self.ring.completion().next()?;
        let result = entry.result();
        let result =
            u32::try_from(result).map_err(|_| Errno::from_raw_os_error(result.wrapping_neg()));
        Some(Completion { number: entry.user_data(), result })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use std::os::fd::AsFd;

    /// More than the kernel has room for, of commands and of completions.
    const MANY: u64 = 3 * COMPLETIONS as u64;

    #[test]
    fn every_command_of_many_is_completed_once() {
        let Ok(mut ring) = Ring::new() else {
            println!("skipped: needs io_uring");
            assert!(std::env::var_os("CI").is_none(), "io_uring is refused");
            return;
        };
        ring.enable().expect("the first thread that asks");
        let bell = eventfd(1, EventfdFlags::CLOEXEC).expect("there are descriptors");
        for number in 0..MANY {
            ring.poll(bell.as_fd(), number).expect("room is made");
        }
        let mut seen = vec![false; MANY as usize];
        while seen.contains(&false) {
            ring.enter(1, None).expect("this thread may");
            while let Some(Completion { number, result }) = ring.reap() {
                assert!(result.is_ok(), "{number}: {result:?}");
                assert!(!std::mem::replace(&mut seen[number as usize], true), "{number} twice");
            }
        }
        ring.enter(1, Some(Duration::from_millis(1))).expect("the time is up");
        assert!(ring.reap().is_none(), "nothing is left");
    }
}
