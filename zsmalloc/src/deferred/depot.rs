//! Buffers that are in no shard: free ones, and those that wait to be drained.
//!
//! ```text
//!              give_free                queue                take
//!     free ---------------> a shard's ---------> queued -----------> being drained
//!      ^                                            ^                 |        |
//!      |                                            `-- values left --'        |
//!      `------------------------- finish: drained to the end ------------------'
//! ```
//!
//! Invariants
//! - I1 every buffer is free, a shard's, queued, or being drained; one is being drained at a time.
//! - I2 `left` + quotas of the shards' buffers + bytes of the others with values = the budget. So
//!   what is pending never exceeds the budget, and need not be added up.
//! - I3 buffers are drained in the order in which they were queued: those up to the nth are once
//!   `head` >= n. One that kept values goes back to the front, and `head` waits for it.
//!
//! No lock of its own: the queue keeps it under one.

use std::collections::{TryReserveError, VecDeque};

use super::buffer::{Buffer, Load};

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Depot<T> {
    free: Vec<Buffer<T>>,
    queued: VecDeque<Buffer<T>>,
    /// What the buffer being drained had when it was taken.
    draining: Load,
    /// Payload that may still be granted, in bytes.
    left: u64,
    /// Payload granted to a buffer that a shard takes, in bytes.
    grant: u64,
    /// Buffers queued, and drained, ever.
    tail: u64,
    head: u64,
    /// Values drained, ever.
    drained: u64,
    /// Times a shard's buffer came or went.
    changes: u64,
    /// The first queued buffer has lost values to a drain function that panicked.
    opened: bool,
}

impl<T> Depot<T> {
    /// So many buffers, all free, a budget, and what each buffer gets of it at most.
    pub(super) fn new(buffers: usize, budget: u64, grant: u64) -> Result<Self, TryReserveError> {
        let (mut free, mut queued) = (Vec::new(), VecDeque::new());
        free.try_reserve_exact(buffers)?;
        queued.try_reserve_exact(buffers)?;
        for _ in 0..buffers {
            free.push(Buffer::new()?);
        }
        let (draining, opened) = (Load::default(), false);
        let (left, tail, head, drained, changes) = (budget, 0, 0, 0, 0);
        Ok(Depot { free, queued, draining, left, grant, tail, head, drained, changes, opened })
    }

    /// A free buffer with a quota. If there is none, or no more payload may be pending,
    /// [`Buffer::NONE`].
    pub(super) fn give_free(&mut self) -> Buffer<T> {
        let quota = self.grant.min(self.left);
        if quota == 0 {
            return Buffer::NONE;
        }
        let Some(mut buffer) = self.free.pop() else { return Buffer::NONE };
        self.changes += 1;
        self.left -= quota;
        buffer.quota = quota;
        buffer
    }

    /// Takes a buffer that was a shard's. True if it has values, which wait from now on.
    pub(super) fn put(&mut self, mut buffer: Buffer<T>) -> bool {
        if !buffer.exists() {
            return false;
        }
        self.changes += 1;
        self.left += buffer.quota - buffer.bytes;
        buffer.quota = buffer.bytes;
        if buffer.is_empty() {
            self.free.push(buffer);
            return false;
        }
        self.queued.push_back(buffer);
        self.tail += 1;
        true
    }

    /// The buffer that has waited longest, to be drained.
    pub(super) fn take(&mut self) -> Option<Buffer<T>> {
        let buffer = self.queued.pop_front()?;
        self.draining = buffer.load();
        Some(buffer)
    }

    /// Takes back what [`Depot::take`] gave.
    pub(super) fn finish(&mut self, mut buffer: Buffer<T>) {
        let taken = std::mem::take(&mut self.draining);
        let values = taken.values - buffer.len() as u64;
        self.drained += values;
        if !buffer.is_empty() {
            self.opened |= values > 0;
            return self.queued.push_front(buffer);
        }
        self.opened = false;
        self.left += std::mem::take(&mut buffer.bytes);
        buffer.quota = 0;
        self.free.push(buffer);
        self.head += 1;
    }

    /// How many buffers have been queued so far.
    pub(super) fn tail(&self) -> u64 {
        self.tail
    }

    /// How many buffers have been drained so far.
    pub(super) fn head(&self) -> u64 {
        self.head
    }

    /// Values drained so far.
    pub(super) fn drained(&self) -> u64 {
        self.drained
    }

    /// What waits here, and what is being drained.
    pub(super) fn load(&self) -> Load {
        let mut load = self.draining;
        self.queued.iter().for_each(|buffer| load.add(buffer.load()));
        load
    }

    /// How often a shard's buffer came or went.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Payload that may still be granted, in bytes.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    /// Buffers that nobody uses.
    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// The buffers that wait, each with whether its payload is exact: it is of the values there
    /// were, and a panic may have taken some.
    pub(super) fn queued(&self) -> impl Iterator<Item = (&Buffer<T>, bool)> {
        let exact = |at: usize| at > 0 || !self.opened;
        self.queued.iter().enumerate().map(move |(at, buffer)| (buffer, exact(at)))
    }

    /// Bytes of the lists.
    pub(super) fn heap_bytes(&self) -> usize {
        (self.free.capacity() + self.queued.capacity()) * size_of::<Buffer<T>>()
    }
}
