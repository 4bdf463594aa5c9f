//! Bytes that stay in memory while they are lent.
//!
//! Invariant: a group's `pins` is the number of values of this file that pin a page of it, and of
//! pins of a `RawRegion` that do.
//!
//! Lock: a group's, one after the other. None is held while pages are brought in.

use crate::places::Chunks;
use crate::state::Folded;
use crate::terms::{PageRange, RegionError};
use crate::way_in::Why;
use bytemuck::Pod;
use host::SpanMemory;
use host::fault::begin_call;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};

impl Folded {
    /// Counts a pin in each group of `pages`, and brings all of them to memory.
    pub(super) fn pin(&self, pages: &Range<usize>) -> Result<(), RegionError> {
        let _call = begin_call();
        let groups = Chunks::groups_of(pages);
        for index in groups.clone() {
            // The chunk is registered first, so that a page no thread has touched yet can be
            // brought in. The pin is counted before the pages are looked at. A thread that moves
            // pages out looks at the count under the same lock. If it did so before, this finds the
            // pages gone; otherwise that thread finds the pin.
            match self.lock(index) {
                Ok(mut group) => group.pin(),
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
    pub(super) fn unpin(&self, groups: Range<usize>) {
        for index in groups {
            self.chunks.get_or_add(index).lock().unpin();
        }
    }

    /// Removes the pins of a value of this file.
    fn unpin_touched(&self, range: &Range<usize>) {
        let _call = begin_call();
        self.unpin(Chunks::groups_of(&PageRange::touched(range)));
    }
}

/// Bytes of a region, or elements of a [`RegionVec`](crate::RegionVec), that stay in memory while
/// this lives. If it is forgotten, they stay as long as the region does.
///
/// It is a slice of the elements. It is also their bytes (`AsRef<[u8]>`), for passing on to the
/// system.
pub struct Pinned<'r, T: Pod = u8> {
    folded: &'r Folded,
    memory: &'r SpanMemory,
    /// Bytes, which are whole elements.
    range: Range<usize>,
    elements: PhantomData<T>,
}

impl<'r, T: Pod> Pinned<'r, T> {
    /// The caller has checked the range.
    pub(super) fn new(
        folded: &'r Folded,
        memory: &'r SpanMemory,
        range: Range<usize>,
    ) -> Result<Self, RegionError> {
        folded.pin(&PageRange::touched(&range))?;
        Ok(Pinned { folded, memory, range, elements: PhantomData })
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.memory.bytes(self.range.clone()).unwrap_or_default()
    }
}

impl<T: Pod> Deref for Pinned<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        bytemuck::cast_slice(self.as_bytes())
    }
}

impl<T: Pod> AsRef<[u8]> for Pinned<'_, T> {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl<T: Pod> Drop for Pinned<'_, T> {
    fn drop(&mut self) {
        self.folded.unpin_touched(&self.range);
    }
}

impl<T: Pod> fmt::Debug for Pinned<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pinned").field("range", &self.range).finish_non_exhaustive()
    }
}

/// As [`Pinned`], and writable.
pub struct PinnedMut<'r, T: Pod = u8> {
    folded: &'r Folded,
    memory: &'r mut SpanMemory,
    /// Bytes, which are whole elements.
    range: Range<usize>,
    elements: PhantomData<T>,
}

impl<'r, T: Pod> PinnedMut<'r, T> {
    /// The caller has checked the range.
    pub(super) fn new(
        folded: &'r Folded,
        memory: &'r mut SpanMemory,
        range: Range<usize>,
    ) -> Result<Self, RegionError> {
        folded.pin(&PageRange::touched(&range))?;
        Ok(PinnedMut { folded, memory, range, elements: PhantomData })
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.memory.bytes(self.range.clone()).unwrap_or_default()
    }

    /// The bytes, writable.
    pub fn as_bytes_mut(&mut self) -> &mut [u8] {
        self.memory.bytes_mut(self.range.clone()).unwrap_or_default()
    }
}

impl<T: Pod> Deref for PinnedMut<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        bytemuck::cast_slice(self.as_bytes())
    }
}

impl<T: Pod> DerefMut for PinnedMut<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(self.as_bytes_mut())
    }
}

impl<T: Pod> AsRef<[u8]> for PinnedMut<'_, T> {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl<T: Pod> AsMut<[u8]> for PinnedMut<'_, T> {
    fn as_mut(&mut self) -> &mut [u8] {
        self.as_bytes_mut()
    }
}

impl<T: Pod> Drop for PinnedMut<'_, T> {
    fn drop(&mut self) {
        self.folded.unpin_touched(&self.range);
    }
}

impl<T: Pod> fmt::Debug for PinnedMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedMut").field("range", &self.range).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use crate::{Memory, MemoryConfig, Pager, PagerConfig, Region, RegionConfig};
    use std::sync::atomic::Ordering;

    const PAGE: usize = 4096;

    /// If the system refused to watch a group, the pin of its pages was once counted all the same.
    #[test]
    fn a_refused_pin_is_no_pin() {
        let memory = Memory::new(MemoryConfig::for_disk(4 << 20)).expect("a memory");
        let pager = match Pager::new(memory, &PagerConfig::default()) {
            Ok(pager) => pager,
            Err(error) => return eprintln!("skipped: needs {error}"),
        };
        let mut region = Region::map(&pager, 4 << 20, &RegionConfig::default()).expect("one");
        region.as_mut_slice().fill(5);
        let within = 5 * PAGE..6 * PAGE;
        // relaxed: one thread.
        let refuse = |refuses| region.folded.chunks.refuses.store(refuses, Ordering::Relaxed);
        refuse(true);
        let refused = region.pin(within.clone()).expect_err("it is not watched").to_string();
        assert!(refused.contains("vm.max_map_count"), "{refused}");
        refuse(false);
        let out = || region.control().page_out(0..64 * PAGE).expect("registered now");
        assert_eq!((out().stored, out().busy), (64, 0), "somebody has pinned it");
        let pinned = region.pin(within).expect("a pin");
        assert_eq!(out().stored, 0, "a page that was lent has left");
        assert!(pinned.iter().all(|&byte| byte == 5));
        drop(pinned);
        assert_eq!(region.control().check().expect("alive"), [""; 0]);
    }
}
