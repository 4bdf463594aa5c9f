//! Memory that `mremap` makes longer, and fills before it tells that it moved.
//!
//! The kernel fills what a call adds to locked memory. The memory has its new place by then, so a
//! userfaultfd gets a fault for each page of the new part. Until it has told of the move, the
//! kernel lets no page come. The call tells of the move when all is filled. So both would wait for
//! ever.
//!
//! Such memory is left to the kernel, as a whole, until it is told that it moved. Nothing of it is
//! out, because it is locked.
//!
//! Invariant: what is left to the kernel is registered again before the book knows that it moved.
//!
//! Lock: the caller's, that of the book.

use super::end::lost;
use super::uffd::Uffd;
use crate::places::PAGE;
use std::ops::Range;
use std::time::{Duration, Instant};

/// A fault that meets an event for so long may be of the call that is to tell of it.
const LONG: Duration = Duration::from_millis(2);

/// Memory that is left to the kernel.
#[derive(Debug, Default)]
pub(crate) struct Fills {
    /// Since when faults have met events.
    met: Option<Instant>,
    left: Vec<Range<usize>>,
}

impl Fills {
    /// A page came.
    pub(crate) fn came(&mut self) {
        self.met = None;
    }

    /// The fault of a thread met an event. True if its memory is left to the kernel, and the thread
    /// goes on. `is_whole` says whether no page of a range is out.
    pub(crate) fn leave(
        &mut self,
        uffd: &Uffd,
        (thread, address): (u32, usize),
        is_whole: impl FnOnce(&Range<usize>) -> bool,
    ) -> bool {
        let is_long = self.met.get_or_insert_with(Instant::now).elapsed() > LONG;
        let path = || format!("/proc/self/task/{thread}/syscall");
        let text = is_long.then(|| std::fs::read_to_string(path()).ok()).flatten();
        let Some((old, new)) = text.and_then(|text| parse(&text, address)) else { return false };
        // Unregistered as a whole, it stays one mapping. The kernel moves no part of two.
        let is_left = is_whole(&old) && uffd.unregister(&new).is_ok();
        self.left.extend(is_left.then_some(new));
        is_left
    }

    /// Memory has moved to a place. If it was left to the kernel, it is not any more.
    pub(crate) fn moved(&mut self, uffd: &Uffd, to: usize) {
        let Some(at) = self.left.iter().position(|range| range.start == to) else { return };
        if uffd.register(&self.left.swap_remove(at)).is_err() {
            lost("its memory cannot be registered after a move");
        }
    }
}

/// Where memory was, and where it is with what a call adds, by the text of the thread's file
/// `syscall`: a number, and six arguments. The page at the address is the first that was added.
fn parse(text: &str, address: usize) -> Option<(Range<usize>, Range<usize>)> {
    let mut words = text.split_ascii_whitespace();
    if words.next()?.parse() != Ok(libc::SYS_mremap) {
        return None;
    }
    let mut argument = || usize::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let (from, old, new) = (argument()?, argument()?, argument()?);
    let [old, new] = [old, new].map(|len| len.next_multiple_of(PAGE));
    let to = address.checked_sub(old)?;
    (old < new && to != from).then_some((from..from + old, to..to + new))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_makes_memory_longer_is_known_by_what_it_was_given() {
        let text = "25 0x7000 0x1800 0x4000 0x1 0x0 0x7ffc 0x7f12\n";
        assert_eq!(parse(text, 0x2_2000), Some((0x7000..0x9000, 0x2_0000..0x2_4000)));
        assert_eq!(parse(text, 0x9000), None, "it did not move");
        for other in ["running\n", "", "9 0x7000 0x1800 0x4000\n", "25 0x7000 0x4000 0x4000 0x1\n"]
        {
            assert_eq!(parse(other, 0x2_2000), None, "{other}");
        }
    }
}
