//! Bytes that stay in memory while they are lent.
//!
//! Invariant: a group's `pins` is the number of values here that have pages of it.

use crate::RegionError;
use crate::fault_in::Why;
use crate::folded::Folded;
use crate::range::PageRange;
use crate::region::Region;
use std::ops::{Deref, DerefMut, Range};

impl Folded {
    /// Counts a pin in each group of `pages`, and has them all in memory.
    fn pin(&self, pages: &Range<usize>) -> Result<(), RegionError> {
        let groups = self.groups_of(pages);
        for index in groups.clone() {
            // Registered first, so that a page nobody has touched yet can be brought in. Counted
            // before the pages are looked at: who moves them out looks at the count under the same
            // lock, and either did so before and is seen to have, or finds the pin.
            match self.lock(index) {
                Ok(mut group) => group.pins += 1,
                Err(error) => {
                    self.unpin(groups.start..index);
                    return Err(error);
                }
            }
            if let Err(error) = self.bring_all(index, pages, Why::Pin) {
                self.unpin(groups.start..index + 1);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Takes a pin off each of `groups`.
    fn unpin(&self, groups: Range<usize>) {
        for index in groups {
            self.chunks.get_or_add(index).lock().pins -= 1;
        }
    }

    /// Takes off what a value here had pinned.
    fn unpin_touched(&self, range: &Range<usize>) {
        self.unpin(self.groups_of(&PageRange::touched(range)));
    }
}

/// Bytes of a region that stay in memory while this lives; forgotten, for as long as the region
/// does.
#[derive(Debug)]
pub struct Pinned<'r> {
    region: &'r Region,
    range: Range<usize>,
}

impl<'r> Pinned<'r> {
    /// The range was checked.
    pub(crate) fn new(region: &'r Region, range: Range<usize>) -> Result<Pinned<'r>, RegionError> {
        region.folded.pin(&PageRange::touched(&range))?;
        Ok(Pinned { region, range })
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
        self.region.folded.unpin_touched(&self.range);
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
    pub(crate) fn new(
        region: &'r mut Region,
        range: Range<usize>,
    ) -> Result<PinnedMut<'r>, RegionError> {
        region.folded.pin(&PageRange::touched(&range))?;
        Ok(PinnedMut { region, range })
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
        self.region.folded.unpin_touched(&self.range);
    }
}
