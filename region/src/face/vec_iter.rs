//! Vectors and iterators: elements go in one after the other, and come out the same way.
//!
//! Invariant: the room of a vector is fixed, so an element may be refused.
//! [`RegionVec::try_extend`] returns an error then. `Extend` cannot return one, and panics.

use super::vec::{PushError, RegionVec};
use crate::terms::{RegionConfig, RegionError};
use crate::upkeep::Pager;
use bytemuck::Pod;
use std::iter::FusedIterator;
use std::ops::Range;
use std::sync::Arc;

impl<T: Pod> RegionVec<T> {
    /// A vector of the elements of an iterator. It has room for as many elements as the iterator
    /// gives at most, by its own account. [`FromIterator`] cannot pass the pager that this needs.
    ///
    /// # Errors
    ///
    /// Those of [`Region::map`](crate::Region::map). [`RegionError::UnknownLength`] if the iterator
    /// does not say how many elements it gives at most. [`RegionError::OutOfRange`] if it gives
    /// more than it said.
    pub fn from_iter_in(
        pager: &Arc<Pager>,
        elements: impl IntoIterator<Item = T>,
        config: &RegionConfig,
    ) -> Result<RegionVec<T>, RegionError> {
        let elements = elements.into_iter();
        let room = elements.size_hint().1.ok_or(RegionError::UnknownLength)?;
        // A region has at least one byte.
        let mut vector = RegionVec::with_room(pager, room.max(1), config)?;
        let len = vector.room() * size_of::<T>();
        let more = |_| RegionError::OutOfRange { start: len, end: len + size_of::<T>(), len };
        vector.try_extend(elements).map_err(more)?;
        Ok(vector)
    }

    /// Adds the elements of an iterator, up to the first one that there is no room for.
    ///
    /// # Errors
    ///
    /// [`PushError`], which contains that element. The elements before it were added. Those after
    /// it are still in the iterator, if that was lent.
    pub fn try_extend(
        &mut self,
        elements: impl IntoIterator<Item = T>,
    ) -> Result<(), PushError<T>> {
        elements.into_iter().try_for_each(|element| self.push(element))
    }
}

impl<T: Pod> Extend<T> for RegionVec<T> {
    /// Adds the elements of an iterator.
    ///
    /// # Panics
    ///
    /// If there is no room for an element. [`RegionVec::try_extend`] returns an error instead.
    fn extend<I: IntoIterator<Item = T>>(&mut self, elements: I) {
        self.try_extend(elements).expect("a vector is extended within its room");
    }
}

impl<'e, T: Pod> Extend<&'e T> for RegionVec<T> {
    /// Adds the elements of an iterator, by reference.
    ///
    /// # Panics
    ///
    /// If there is no room for an element.
    fn extend<I: IntoIterator<Item = &'e T>>(&mut self, elements: I) {
        self.extend(elements.into_iter().copied());
    }
}

impl<'v, T: Pod> IntoIterator for &'v RegionVec<T> {
    type Item = &'v T;
    type IntoIter = std::slice::Iter<'v, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'v, T: Pod> IntoIterator for &'v mut RegionVec<T> {
    type Item = &'v mut T;
    type IntoIter = std::slice::IterMut<'v, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

impl<T: Pod> IntoIterator for RegionVec<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;

    fn into_iter(self) -> IntoIter<T> {
        IntoIter { left: 0..self.len(), vector: self }
    }
}

/// The elements of a vector, by value. The region is dropped with it.
#[derive(Debug)]
pub struct IntoIter<T: Pod> {
    vector: RegionVec<T>,
    left: Range<usize>,
}

impl<T: Pod> Iterator for IntoIter<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.left.next().map(|index| self.vector[index])
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.left.size_hint()
    }
}

impl<T: Pod> DoubleEndedIterator for IntoIter<T> {
    fn next_back(&mut self) -> Option<T> {
        self.left.next_back().map(|index| self.vector[index])
    }
}

impl<T: Pod> ExactSizeIterator for IntoIter<T> {}

impl<T: Pod> FusedIterator for IntoIter<T> {}
