//! What the server knows of a fork that is under way.
//!
//! ```text
//!   begin    the thread that forks stands at the threshold
//!            faults of other threads wait, so that our memory stays as it is
//!   end      the child needs its parent no more, or is served like one that passes no gate
//! ```
//!
//! The thread that forks takes locks of its C library, and another thread may have one of them and
//! wait for a page. So faults of others wait only as long as the forking thread does not wait.
//!
//! News that is read while a fork goes on may be of a call that was made before the kernel copied
//! the memory: the child's copy of the book does not know of it. A passage is *calm* if there was
//! no such news. Only then the child can be an heir.
//!
//! Invariant: the pager rests while a passage goes on. Lock: none; the server's thread has it.

use crate::floor::still::STILL;
use crate::kernel::Fault;
use std::time::{Duration, Instant};

/// How long a fork may take until its child is given all of its memory.
const PASSAGE_MAX: Duration = Duration::from_secs(2);
/// How long faults wait until it is asked what the forking thread does.
const HOLD: Duration = Duration::from_millis(2);
/// How long to wait until no news is unread.
const CALM_MAX: Duration = Duration::from_millis(20);

/// The system calls of forks: clone, fork and clone3.
const FORKS: [libc::c_long; 3] = [libc::SYS_clone, libc::SYS_fork, libc::SYS_clone3];

/// A fork, if one is under way.
#[derive(Debug, Default)]
pub(super) struct Passage {
    since: Option<Instant>,
    /// When it was last asked what the forking thread does.
    asked: Option<Instant>,
    /// News was read since the fork began.
    disturbed: bool,
}

impl Passage {
    /// A thread stands at the threshold.
    pub(super) fn begin(&mut self) {
        let now = Instant::now();
        self.since.get_or_insert(now);
        self.asked.get_or_insert(now);
    }

    /// Whether a fork is under way.
    pub(super) fn is_on(&self) -> bool {
        self.since.is_some()
    }

    /// News was read.
    pub(super) fn news(&mut self) {
        self.disturbed = true;
    }

    /// No news is unread, and the book knows all that was read. True if the thread at the threshold
    /// may go on.
    pub(super) fn calm(&mut self, is_quiet: bool) -> bool {
        self.disturbed &= !is_quiet;
        is_quiet || self.since.is_none_or(|since| since.elapsed() > CALM_MAX)
    }

    /// Whether the child of the fork can be an heir.
    pub(super) fn is_calm(&self) -> bool {
        self.is_on() && !self.disturbed && STILL.asked() != 0
    }

    /// Whether a fault waits until the fork is over.
    pub(super) fn holds(&self, fault: &Fault) -> bool {
        self.is_on() && fault.thread != STILL.asked()
    }

    /// Looks whether the fork is over, or takes too long. True if others have to be served, because
    /// the forking thread waits for something.
    pub(super) fn look(&mut self) -> bool {
        let Some(since) = self.since else { return false };
        let thread = STILL.asked();
        if thread == 0 || since.elapsed() > PASSAGE_MAX {
            self.end();
            return true;
        }
        if self.asked.is_some_and(|asked| asked.elapsed() < HOLD) {
            return false;
        }
        self.asked = Some(Instant::now());
        let path = format!("/proc/self/task/{thread}/syscall");
        std::fs::read_to_string(path).map_or(true, |text| waits(&text))
    }

    /// The fork is over.
    pub(super) fn end(&mut self) {
        if self.since.take().is_some() {
            self.asked = None;
            STILL.end();
        }
    }
}

/// Whether a thread waits in a system call that is no fork, by the text of its file `syscall`.
fn waits(text: &str) -> bool {
    // A thread that runs has a word there, and one that waits for a page a negative number.
    let number = text.split_ascii_whitespace().next().and_then(|number| number.parse().ok());
    number.is_some_and(|number: libc::c_long| number >= 0 && !FORKS.contains(&number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_waits_for_a_lock_is_known() {
        assert!(waits("202 0x7f 0x80 0x2 0x0 0x0 0x0 0x7ffc 0x7f12\n"));
        for text in ["running\n", "-1 0x7ffc 0x7f12\n", "56 0x1200011 0x0 0x0\n", "435 0x7f\n", ""]
        {
            assert!(!waits(text), "{text}");
        }
    }
}
