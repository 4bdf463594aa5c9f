//! Memory for stacks of threads that are too small for the frames of our handlers.
//!
//! ```text
//!   | guard | below: open, and stays | what the C library asked for |
//! ```
//!
//! A thread of musl may have a stack of 2 KiB. A signal's frame alone takes more on some
//! processors, and each trapped call is a signal. So a small stack goes on in the memory below it.
//!
//! The C library gives its part back by a call that nobody looks at. So a place is free if its
//! upper part can be mapped. All of it is outside the yard, because that part is the program's
//! then.
//!
//! Invariant: the memory below a stack is used by one thread at a time. Lock: that of the state.

use crate::floor::passage::pass;
use crate::places::PAGE;

/// Bytes below a stack, with the guard.
const BELOW: usize = 32 << 10; // 32768
/// Larger stacks have room.
const NARROW: usize = 64 << 10; // 65536
/// At how many places is looked for one that is free.
const LOOKS: usize = 4;

const ACCESS: i32 = libc::PROT_READ | libc::PROT_WRITE;
const FLAGS: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

/// Whether a stack is small.
pub(crate) fn is_narrow(len: usize) -> bool {
    (1..NARROW).contains(&len)
}

/// The places, by the beginnings of their upper parts.
#[derive(Debug, Default)]
pub(crate) struct Narrow {
    all: Vec<usize>,
    /// Where the search for a free one goes on.
    next: usize,
}

impl Narrow {
    /// Maps memory for a stack, open in all its parts. `None` if the system has none.
    pub(crate) fn map(&mut self, len: usize) -> Option<usize> {
        for _ in 0..LOOKS.min(self.all.len()) {
            self.next = (self.next + 1) % self.all.len();
            let place = self.all[self.next];
            if map(place, len, FLAGS | libc::MAP_FIXED_NOREPLACE) == Some(place) {
                return Some(place);
            }
        }
        let guard = map(0, BELOW + len, FLAGS)?;
        // SAFETY: the page is new, and nothing uses it.
        unsafe { pass(libc::SYS_mprotect, [guard, PAGE, 0, 0, 0, 0]) };
        self.all.push(guard + BELOW);
        Some(guard + BELOW)
    }
}

fn map(at: usize, len: usize, flags: i32) -> Option<usize> {
    let arguments = [at, len, ACCESS as usize, flags as usize, usize::MAX, 0];
    // SAFETY: a new mapping that replaces no other.
    let mapped = unsafe { pass(libc::SYS_mmap, arguments) };
    usize::try_from(mapped).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_used_again_when_its_stack_has_gone() {
        crate::floor::passage::for_tests();
        // A process with one thread, so that nothing else takes the place.
        // SAFETY: the child makes system calls, uses memory of its own, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let done = uses_a_place_again();
            // SAFETY: it does not return.
            unsafe { libc::_exit(i32::from(done != Some(()))) };
        }
        let mut status = 1;
        // SAFETY: the child is ours.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0);
        assert!(is_narrow(PAGE) && !is_narrow(NARROW) && !is_narrow(0));
    }

    fn uses_a_place_again() -> Option<()> {
        let mut narrow = Narrow { all: Vec::with_capacity(8), next: 0 };
        let (first, second) = (narrow.map(2 * PAGE)?, narrow.map(PAGE)?);
        for byte in first - BELOW + PAGE..first + 2 * PAGE {
            // SAFETY: it is mapped, and ours.
            unsafe { (byte as *mut u8).write_volatile(1) };
        }
        // SAFETY: what was mapped above.
        unsafe { libc::munmap(first as *mut _, 2 * PAGE) };
        let (again, other) = (narrow.map(2 * PAGE)?, narrow.map(2 * PAGE)?);
        (first != second && again == first && other != first).then_some(())
    }
}
