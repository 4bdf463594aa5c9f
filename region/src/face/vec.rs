//! A vector of plain data in a region.
//!
//! ```text
//!   region   | 0 | 1 | ... | len - 1 |   room for more   |
//!            `---- lent as a slice ---'                   fixed when the vector is made
//! ```
//!
//! Invariant: the first `len` elements were written. `len` is at most `room`, and `room` elements
//! fit.

use super::control::RegionControl;
use super::pinned::{Pinned, PinnedMut};
use super::region::Region;
use crate::terms::{PageRange, RegionConfig, RegionError, RegionStats};
use crate::upkeep::Pager;
use bytemuck::Pod;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range, RangeBounds};
use std::sync::Arc;

/// A vector whose cold pages live compressed. Its room is fixed when it is made, because address
/// space costs nothing until it is touched.
///
/// Elements are plain data, whose bytes may be anything ([`Pod`]). Their destructors never run.
///
/// It is used as a slice, but not as the buffer of a system call. In
/// [`FaultMode::Signal`](crate::FaultMode) the call fails with `EFAULT` (`Bad address`) if a page
/// is out. [`RegionVec::pin`] keeps the pages in memory while its result lives:
///
/// ```
/// # use ramfold_region::{Memory, MemoryConfig, Pager, PagerConfig, RegionConfig, RegionVec};
/// # let memory = Memory::new(MemoryConfig::for_disk(1 << 20))?;
/// # let pager = match Pager::new(memory, &PagerConfig::default()) {
/// #     Ok(pager) => pager,
/// #     Err(error) => {
/// #         eprintln!("skipped: needs {error}");
/// #         return Ok(());
/// #     }
/// # };
/// # let path = std::env::temp_dir().join(format!("ramfold-words-{}", std::process::id()));
/// let words = RegionVec::from_iter_in(&pager, 0..1000u64, &RegionConfig::default())?;
/// words.control().page_out(0..8192)?;
/// // std::fs::write(&path, words.as_bytes()) fails now with EFAULT. These two lines do not:
/// let pinned = words.pin(..)?;
/// std::fs::write(&path, &pinned)?;
/// # assert_eq!(std::fs::read(&path)?, words.as_bytes());
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// `FromIterator` cannot pass the pager that a vector needs. [`RegionVec::from_iter_in`] takes it.
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
    /// Those of [`Region::map`].
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

    /// The number of elements that there is room for.
    pub fn room(&self) -> usize {
        self.room
    }

    /// Adds an element.
    ///
    /// # Errors
    ///
    /// [`PushError`], which contains the element, if there is no room.
    pub fn push(&mut self, element: T) -> Result<(), PushError<T>> {
        if self.len == self.room {
            return Err(PushError { element, room: self.room });
        }
        self.len += 1;
        if let Some(last) = self.last_mut() {
            *last = element;
        }
        Ok(())
    }

    /// Removes the last element and returns it.
    pub fn pop(&mut self) -> Option<T> {
        let last = self.last().copied()?;
        self.len -= 1;
        Some(last)
    }

    /// Shortens the vector to at most `len` elements.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// The bytes of the elements.
    pub fn as_bytes(&self) -> &[u8] {
        self.region.memory().bytes(self.filled()).unwrap_or_default()
    }

    /// The bytes of the elements, writable.
    pub fn as_bytes_mut(&mut self) -> &mut [u8] {
        let filled = self.filled();
        self.region.memory_mut().bytes_mut(filled).unwrap_or_default()
    }

    /// Keeps the pages of elements in memory while the result lives, so that system calls may use
    /// them. The result is a slice of the elements, and gives their bytes to a call that wants
    /// those.
    ///
    /// # Errors
    ///
    /// [`RegionError::OutOfRange`], which counts in bytes of the elements, and those of
    /// [`Region::pin`].
    pub fn pin(&self, elements: impl RangeBounds<usize>) -> Result<Pinned<'_, T>, RegionError> {
        self.region.pinned(self.bytes_of(elements)?)
    }

    /// As [`RegionVec::pin`], and writable: for example the buffer of a `read`.
    ///
    /// # Errors
    ///
    /// Those of [`RegionVec::pin`].
    pub fn pin_mut(
        &mut self,
        elements: impl RangeBounds<usize>,
    ) -> Result<PinnedMut<'_, T>, RegionError> {
        let bytes = self.bytes_of(elements)?;
        self.region.pinned_mut(bytes)
    }

    /// The right to move the pages while the elements are lent. Its ranges count the bytes of the
    /// elements, from the first element on.
    pub fn control(&self) -> RegionControl {
        self.region.control()
    }

    /// Where the pages are, and what faults have cost.
    pub fn stats(&self) -> RegionStats {
        self.region.stats()
    }

    /// The range of bytes that the elements take.
    fn filled(&self) -> Range<usize> {
        0..self.len * size_of::<T>()
    }

    /// The range of bytes that some elements take.
    fn bytes_of(&self, elements: impl RangeBounds<usize>) -> Result<Range<usize>, RegionError> {
        let elements = PageRange::bounds(&elements, self.len);
        let byte = |element: usize| element.saturating_mul(size_of::<T>());
        let (start, end, len) = (byte(elements.start), byte(elements.end), self.filled().end);
        let fits = elements.start <= elements.end && elements.end <= self.len;
        if fits { Ok(start..end) } else { Err(RegionError::OutOfRange { start, end, len }) }
    }
}

impl<T: Pod> Deref for RegionVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        bytemuck::cast_slice(self.as_bytes())
    }
}

impl<T: Pod> DerefMut for RegionVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(self.as_bytes_mut())
    }
}

impl<T: Pod + std::fmt::Debug> std::fmt::Debug for RegionVec<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RegionVec({} of {} elements)", self.len, self.room)
    }
}

/// There was no room for an element. This contains the element.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PushError<T> {
    element: T,
    room: usize,
}

impl<T> PushError<T> {
    /// The element.
    pub fn into_value(self) -> T {
        self.element
    }
}

impl<T> std::fmt::Debug for PushError<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PushError").field("room", &self.room).finish_non_exhaustive()
    }
}

impl<T> std::fmt::Display for PushError<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the vector is full: it has room for {} elements", self.room)
    }
}

impl<T> std::error::Error for PushError<T> {}
