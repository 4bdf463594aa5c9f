//! A vector of plain data in a region.
//!
//! Invariant: the first `len` elements were written; `len` is at most `room`, which fits in.

use crate::RegionConfig;
use crate::pager::Pager;
use crate::region::{Control, Region};
use crate::{RegionError, RegionStats};
use bytemuck::Pod;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A vector whose cold pages live compressed. Its room is fixed when it is made: address space
/// costs nothing until it is touched.
///
/// Elements are plain data, whose bytes may be anything ([`Pod`]); nothing is dropped.
pub struct RegionVec<T: Pod> {
    region: Region,
    len: usize,
    room: usize,
    elements: PhantomData<T>,
}

impl<T: Pod> RegionVec<T> {
    /// An empty vector with room for `room` elements.
    ///
    /// # Errors
    ///
    /// As [`Region::map`].
    pub fn with_room(
        pager: &Arc<Pager>,
        room: usize,
        config: &RegionConfig,
    ) -> Result<RegionVec<T>, RegionError> {
        const { assert!(size_of::<T>() > 0, "an element has a size") };
        const { assert!(align_of::<T>() <= host::PAGE_SIZE, "a page is aligned enough") };
        let bytes = room.checked_mul(size_of::<T>());
        let too_long = RegionError::OutOfRange { start: 0, end: room, len: isize::MAX as usize };
        let region = Region::map(pager, bytes.ok_or(too_long)?, config)?;
        Ok(RegionVec { region, len: 0, room, elements: PhantomData })
    }

    /// Elements there is room for.
    pub fn room(&self) -> usize {
        self.room
    }

    /// Adds an element; gives it back where there is no room.
    ///
    /// # Errors
    ///
    /// The element.
    pub fn push(&mut self, element: T) -> Result<(), T> {
        if self.len == self.room {
            return Err(element);
        }
        self.len += 1;
        if let Some(last) = self.last_mut() {
            *last = element;
        }
        Ok(())
    }

    /// Takes the last element.
    pub fn pop(&mut self) -> Option<T> {
        let last = self.last().copied()?;
        self.len -= 1;
        Some(last)
    }

    /// Shortens the vector to at most `len` elements.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// What may be done to the pages while the elements are lent. Bytes are those of the elements,
    /// from the first on.
    pub fn control(&self) -> Control {
        self.region.control()
    }

    /// Where the pages are, and what faults have cost.
    pub fn stats(&self) -> RegionStats {
        self.region.stats()
    }
}

impl<T: Pod> Deref for RegionVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        let bytes = self.region.memory().bytes(0..self.len * size_of::<T>());
        bytemuck::cast_slice(bytes.unwrap_or_default())
    }
}

impl<T: Pod> DerefMut for RegionVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        let bytes = self.region.memory_mut().bytes_mut(0..self.len * size_of::<T>());
        bytemuck::cast_slice_mut(bytes.unwrap_or_default())
    }
}

impl<T: Pod + std::fmt::Debug> std::fmt::Debug for RegionVec<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RegionVec({} of {} elements)", self.len, self.room)
    }
}
