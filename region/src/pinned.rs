//! Bytes that stay in memory while they are lent.
//!
//! Invariant: a group's `pins` is the number of values here that have pages of it.

use crate::fault_in::Why;
use crate::folded::Folded;
use crate::range::PageRange;
use crate::region::Region;
use std::ops::{Deref, DerefMut, Range};

impl Folded {
    /// Counts a pin in each group of `pages`, and has them all in memory.
    fn pin(&self, pages: &Range<usize>) {
        for index in self.groups_of(pages) {
            // Counted before the pages are looked at: who moves them out looks at the count under
            // the same lock, and either did so before and is seen to have, or finds the pin.
            self.chunks.get_or_add(index).lock().pins += 1;
            self.bring_all(index, pages, Why::Pin);
        }
    }

    fn unpin(&self, pages: &Range<usize>) {
        for index in self.groups_of(pages) {
            self.chunks.get_or_add(index).lock().pins -= 1;
        }
    }
}

/// Bytes of a region that stay in memory while this lives.
#[derive(Debug)]
pub struct Pinned<'r> {
    region: &'r Region,
    range: Range<usize>,
}

impl<'r> Pinned<'r> {
    /// The range was checked.
    pub(crate) fn new(region: &'r Region, range: Range<usize>) -> Pinned<'r> {
        region.folded.pin(&PageRange::touched(&range));
        Pinned { region, range }
    }
}

impl Deref for Pinned<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.region.memory().bytes(self.range.clone()).unwrap_or_default()
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        self.region.folded.unpin(&PageRange::touched(&self.range));
    }
}

/// As [`Pinned`], to be written too.
#[derive(Debug)]
pub struct PinnedMut<'r> {
    region: &'r mut Region,
    range: Range<usize>,
}

impl<'r> PinnedMut<'r> {
    /// The range was checked.
    pub(crate) fn new(region: &'r mut Region, range: Range<usize>) -> PinnedMut<'r> {
        region.folded.pin(&PageRange::touched(&range));
        PinnedMut { region, range }
    }
}

impl Deref for PinnedMut<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.region.memory().bytes(self.range.clone()).unwrap_or_default()
    }
}

impl DerefMut for PinnedMut<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.region.memory_mut().bytes_mut(self.range.clone()).unwrap_or_default()
    }
}

impl Drop for PinnedMut<'_> {
    fn drop(&mut self) {
        self.region.folded.unpin(&PageRange::touched(&self.range));
    }
}
