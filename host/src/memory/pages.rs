//! Pages of memory with one owner, straight from the system and not from the heap.
//!
//! ```text
//!   Pages::new -> untouched, and costs nothing --touched--> resident --give_back--> untouched
//!        drop: unmapped, all of it gone
//! ```
//!
//! They are for buffers that come and go. A heap keeps freed memory for the next allocation, so a
//! process holds more than anybody counts. The system takes back what is given back here.
//!
//! Invariant: the memory is a slice like any other. It is zero if it was not written since it was
//! made or given back. Lock: none.

use super::error::HostError;
use super::mapping::{Access, Core, Mapping};
use std::ops::Range;
use std::slice;

/// Zeroed memory of whole pages between guard pages. It has no huge pages, and a forked child does
/// not inherit it.
#[derive(Debug)]
pub struct Pages {
    mapping: Mapping,
}

impl Pages {
    /// Reserves `pages` pages, at least one. They cost nothing until they are touched.
    ///
    /// # Errors
    ///
    /// [`HostError::Reserve`] if `pages` is 0, or the system has no address space or no mapping for
    /// them.
    pub fn new(pages: usize) -> Result<Pages, HostError> {
        Mapping::reserve(pages, Access::Open, Core::LeftOut).map(|mapping| Pages { mapping })
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: mapped, initialised by the system, and ours as long as `self` lives (M1). Only
        // `&mut self` writes to it.
        unsafe { slice::from_raw_parts(self.mapping.base().as_ptr(), self.len()) }
    }

    /// The bytes, to be written.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: mapped and initialised (M1); `&mut self` keeps every other reference away.
        unsafe { slice::from_raw_parts_mut(self.mapping.base().as_ptr(), self.len()) }
    }

    /// Gives pages back to the system. They are zeros then, and cost nothing until they are
    /// touched.
    ///
    /// # Errors
    ///
    /// [`HostError::Advise`] if the system refuses, for example because the program locked its
    /// memory. Their contents stay then.
    ///
    /// # Panics
    ///
    /// If there are no such pages: a broken caller.
    pub fn give_back(&mut self, pages: Range<usize>) -> Result<(), HostError> {
        // SAFETY: `&mut self` keeps every reference to the bytes away.
        unsafe { self.mapping.discard(pages) }
    }

    /// The addresses of the bytes.
    pub fn addresses(&self) -> Range<usize> {
        self.mapping.range()
    }

    fn len(&self) -> usize {
        self.mapping.range().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{PAGE_SIZE, smaps};
    #[cfg(not(miri))]
    #[test]
    fn what_is_given_back_is_zeros_and_the_rest_stays() {
        let mut pages = Pages::new(4).unwrap();
        assert!(pages.as_slice().iter().all(|&byte| byte == 0));
        pages.as_mut_slice().fill(7);
        pages.give_back(1..3).unwrap();
        let expected = [[7; PAGE_SIZE], [0; PAGE_SIZE], [0; PAGE_SIZE], [7; PAGE_SIZE]].concat();
        assert!(pages.as_slice() == expected);
        pages.give_back(4..4).expect("nothing is something that can be given back");
    }

    #[cfg(not(miri))]
    #[test]
    fn only_what_is_touched_is_resident() {
        let mut pages = Pages::new(64).unwrap();
        let resident = |pages: &Pages| smaps::rss_of(&[pages.addresses()]).unwrap();
        assert_eq!(resident(&pages), 0);
        pages.as_mut_slice()[..10 * PAGE_SIZE].fill(1);
        assert_eq!(resident(&pages), 10 * PAGE_SIZE as u64);
        pages.give_back(2..64).unwrap();
        assert_eq!(resident(&pages), 2 * PAGE_SIZE as u64);
    }

    #[test]
    fn no_pages_are_refused() {
        assert!(matches!(Pages::new(0), Err(HostError::Reserve { .. })));
    }
}
