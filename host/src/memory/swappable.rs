//! Plain private memory that the system's own swap may take. Folded memory is compared with it.
//!
//! ```text
//!   Swappable::new -> resident on first touch --page_out--> in the system's swap --touch--> back
//!        drop: munmap, wherever the pages are; the system frees what it swapped out of them
//! ```
//!
//! Invariant: the memory is a slice like any other. Paging out changes where its bytes are, and
//! never their values. A request to page out may do nothing.
//! [`smaps::swap_of`](crate::smaps::swap_of) and [`smaps::rss_of`](crate::smaps::rss_of) tell where
//! the pages of [`Swappable::addresses`] are. Lock: none.

use super::error::HostError;
use super::mapping::{Access, Core, Mapping};
use rustix::mm::{Advice, madvise};
use std::ops::Range;
use std::slice;

/// Zeroed memory of whole pages between guard pages. It has no huge pages, and a forked child does
/// not inherit it.
#[derive(Debug)]
pub struct Swappable {
    mapping: Mapping,
}

impl Swappable {
    /// Reserves `pages` pages, at least one. They cost nothing until they are touched.
    ///
    /// # Errors
    ///
    /// [`HostError::Reserve`] if `pages` is 0, or the system has no address space for them.
    pub fn new(pages: usize) -> Result<Swappable, HostError> {
        let mapping = Mapping::reserve(pages, Access::Open, Core::Kept)?;
        Ok(Swappable { mapping })
    }

    /// The bytes. A touch of one that is swapped out waits until it is back.
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

    /// The addresses of the bytes.
    pub fn addresses(&self) -> Range<usize> {
        self.mapping.range()
    }

    /// Asks the system to write all pages to its swap now (`MADV_PAGEOUT`, Linux 5.4). Pages that
    /// are in use by the system, or for which there is no swap, stay in memory.
    ///
    /// # Errors
    ///
    /// [`HostError::Advise`] if the system does not know the request.
    pub fn page_out(&self) -> Result<(), HostError> {
        let start = self.mapping.base().as_ptr().cast();
        // SAFETY: these pages are ours (M1), and the request changes no byte of them.
        let advised = unsafe { madvise(start, self.len(), Advice::LinuxPageOut) };
        advised.map_err(|errno| HostError::Advise {
            advice: "MADV_PAGEOUT",
            bytes: self.len() as u64,
            source: errno.into(),
        })
    }

    fn len(&self) -> usize {
        self.mapping.range().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{PAGE_SIZE, smaps};

    /// With or without swap on this machine.
    #[test]
    fn paging_out_changes_no_byte() {
        const PAGES: usize = 16;
        let mut memory = Swappable::new(PAGES).unwrap();
        assert!(memory.as_slice().iter().all(|&byte| byte == 0));
        for (number, page) in memory.as_mut_slice().chunks_mut(PAGE_SIZE).enumerate() {
            page.fill(number as u8 + 1);
        }
        memory.page_out().unwrap();
        let ranges = [memory.addresses()];
        let there = smaps::rss_of(&ranges).unwrap() + smaps::swap_of(&ranges).unwrap();
        assert_eq!(there, (PAGES * PAGE_SIZE) as u64, "a page is in memory or in the swap");
        for (number, page) in memory.as_slice().chunks(PAGE_SIZE).enumerate() {
            assert!(page.iter().all(|&byte| byte == number as u8 + 1), "page {number}");
        }
    }

    #[test]
    fn no_pages_are_refused() {
        assert!(matches!(Swappable::new(0), Err(HostError::Reserve { .. })));
    }
}
