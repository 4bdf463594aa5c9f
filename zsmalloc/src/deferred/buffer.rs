//! A page of values that wait together, and the view of it that a drain function gets.
//!
//! ```text
//!   values   | a | b | c |   |   |        one page; popped from the end
//!   bytes    of all that ever entered since it was empty       <= quota
//! ```
//!
//! Invariants
//! - I1 a buffer never grows: a value enters where there is room, or not at all.
//! - I2 `bytes` is at most `quota`, which the depot granted and takes back with the buffer.
//!
//! Lock: none of its own. Its one owner is a shard, the depot or a drain.

use std::collections::TryReserveError;
use std::time::Instant;

/// Bytes of a buffer's values.
const BUFFER_BYTES: usize = host::PAGE_SIZE; // 4 KiB

/// Values that wait together, and what they stand for.
#[derive(Debug)]
pub(super) struct Buffer<T> {
    values: Vec<T>,
    /// Payload of the values, in bytes; kept until the last of them is drained.
    pub(super) bytes: u64,
    /// The most that `bytes` may be.
    pub(super) quota: u64,
    /// When the first of the values entered.
    since: Option<Instant>,
}

impl<T> Buffer<T> {
    /// The most values of a buffer. They are few in a model, so that buffers are changed in it.
    pub(super) const CAPACITY: usize =
        if cfg!(any(loom, shuttle)) { 2 } else { BUFFER_BYTES / const { nonzero(size_of::<T>()) } };

    /// The buffer of a shard that has none: there is never room in it.
    pub(super) const NONE: Buffer<T> =
        Buffer { values: Vec::new(), bytes: 0, quota: 0, since: None };

    /// An empty buffer without a quota.
    pub(super) fn new() -> Result<Buffer<T>, TryReserveError> {
        let mut values = Vec::new();
        values.try_reserve_exact(Self::CAPACITY)?;
        Ok(Buffer { values, ..Buffer::NONE })
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Whether it has a page of its own: [`Buffer::NONE`] has not.
    pub(super) fn exists(&self) -> bool {
        self.values.capacity() > 0
    }

    /// True when a value of `bytes` may enter (I1, I2).
    #[inline]
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        let slots = self.values.capacity().min(Self::CAPACITY);
        self.values.len() < slots && bytes <= self.quota - self.bytes
    }

    /// True when no value can enter any more.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.values.len() == Self::CAPACITY
    }

    /// Enters a value that there is room for.
    #[inline]
    pub(super) fn push(&mut self, value: T, bytes: u64) {
        debug_assert!(self.has_room(bytes), "I1");
        if self.values.is_empty() {
            self.since = Some(Instant::now());
        }
        self.values.push(value);
        self.bytes += bytes;
    }

    /// The values, to be taken.
    pub(super) fn values(&mut self) -> Values<'_, T> {
        Values(&mut self.values)
    }

    /// The values, to be looked at.
    pub(super) fn iter(&self) -> std::slice::Iter<'_, T> {
        self.values.iter()
    }

    /// What is in it.
    pub(super) fn load(&self) -> Load {
        let since = self.since.filter(|_| !self.is_empty());
        Load { values: self.values.len() as u64, bytes: self.bytes, since }
    }
}

const fn nonzero(size: usize) -> usize {
    assert!(size > 0 && size <= BUFFER_BYTES, "a buffer holds 1 to 4096 values");
    size
}

/// Values, what they stand for, and since when the oldest of them waits.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    pub(super) values: u64,
    pub(super) bytes: u64,
    pub(super) since: Option<Instant>,
}

impl Load {
    pub(super) fn add(&mut self, other: Load) {
        self.values += other.values;
        self.bytes += other.bytes;
        self.since = self.since.into_iter().chain(other.since).min();
    }
}

/// The values of one buffer, given to the drain function: a value is drained when it is taken.
#[derive(Debug)]
pub struct Values<'q, T>(&'q mut Vec<T>);

impl<T> Iterator for Values<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.0.pop()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.0.len(), Some(self.0.len()))
    }
}

impl<T> ExactSizeIterator for Values<'_, T> {}
