//! `UFFDIO_MOVE`, with a count that is right.
//!
//! ```text
//!   the system moves page after page, and counts
//!     page A changes meanwhile: it tries A again, moves A and others, and counts none of them
//!     it tries A once more: its place is taken
//! ```
//!
//! Linux 6.18 does this, for example if a thread writes to a page which a fork shares. It answers
//! with the pages that it moved before A. The pages from A on would be in neither place by our
//! books, and the program would find zeros. So both places are looked at.
//!
//! Invariant: a page is counted if it is gone from where it was, and stands where it was to go.
//! Lock: the caller's. Nobody else puts pages in either place.

use super::resident::Resident;
use super::uffd::{Progress, Uffd};
use crate::places::PAGE;

/// Moves `pages` pages from `from` on to where they are missing at `to`, and counts those that the
/// system did not count. If there were such pages and others are left, the error is EAGAIN.
///
/// # Safety
///
/// - `from` is registered with this descriptor, so that a touch of what has left is a fault.
/// - `to` is registered, and what belongs there is what is moved, or it is memory of ours that
///   nothing refers to.
pub(crate) unsafe fn move_pages(
    (uffd, resident): (&Uffd, &Resident),
    to: usize,
    from: usize,
    pages: usize,
) -> Progress {
    // SAFETY: the caller's contract.
    let counted = unsafe { uffd.move_pages(to, from, pages) };
    let done = counted.pages;
    // With another error, and no page before it, the first page was not tried twice.
    if done == pages || (done == 0 && counted.errno != libc::EEXIST) {
        return counted;
    }
    let has_moved = |page: &usize| {
        let at = page * PAGE;
        resident.is_empty(from + at) && !resident.is_empty(to + at)
    };
    match (done..pages).take_while(has_moved).count() {
        0 => counted,
        more if done + more == pages => Progress { pages, errno: 0 },
        more => Progress { pages: done + more, errno: libc::EAGAIN },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A new mapping that is registered.
    fn memory(uffd: &Uffd, pages: usize) -> usize {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), pages * PAGE, access, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        uffd.register(&(start as usize..start as usize + pages * PAGE)).expect("registered");
        start as usize
    }

    /// The state is the one that the system leaves if it moves pages and does not count them.
    #[test]
    fn pages_that_were_moved_without_a_word_are_counted() {
        let uffd = match Uffd::open() {
            Ok(uffd) => uffd,
            Err(error) => {
                assert!(std::env::var_os("CI").is_none(), "CI has a userfaultfd: {error}");
                return println!("skipped: needs a userfaultfd: {error}");
            }
        };
        let resident = Resident::open().expect("a process has these files");
        let (from, to) = (memory(&uffd, 8), memory(&uffd, 8));
        let place = |page: usize| (to + page * PAGE, from + page * PAGE);
        // SAFETY: all of it is this test's, and nothing refers to it.
        let put = |at: usize, byte: u8| unsafe { uffd.copy(at, &[byte; PAGE]) };
        (0..8).for_each(|page| assert_eq!(put(from + page * PAGE, page as u8 + 1).pages, 1));
        let raw = |first: usize, pages: usize| {
            let (to, from) = place(first);
            // SAFETY: as above.
            assert_eq!(unsafe { uffd.move_pages(to, from, pages) }.pages, pages);
        };
        let counted = |first: usize, pages: usize| {
            let (to, from) = place(first);
            // SAFETY: as above.
            let moved = unsafe { move_pages((&uffd, &resident), to, from, pages) };
            (moved.pages, moved.errno)
        };
        raw(1, 2);
        assert_eq!(counted(0, 4), (3, libc::EAGAIN));
        raw(3, 1);
        assert_eq!(counted(3, 2), (1, libc::EAGAIN), "the first of them");
        raw(5, 1);
        assert_eq!(counted(4, 2), (2, 0), "the last of them");
        assert_eq!(put(place(6).0, 0).pages, 1);
        assert_eq!(counted(6, 2), (0, libc::EEXIST), "another page has its place");
        assert_eq!(counted(7, 1), (1, 0));
        for page in [0, 1, 2, 3, 4, 5, 7] {
            // SAFETY: the page is there, and this test's.
            assert_eq!(unsafe { *(place(page).0 as *const u8) }, page as u8 + 1);
        }
    }
}
