//! Buffers that hold pages before these are put in place. Their number is fixed, and all are made
//! beforehand.
//!
//! Lock: one per buffer. It is held while pages of one group are decoded and copied (rank
//! `FaultBuffer`), or read from a disk and copied (rank `ReadBuffer`).

use crate::terms::AROUND_PAGES;
use host::{Lock, LockGuard, PAGE_SIZE, Rank, cpu};

/// Buffers for each CPU. If a thread is preempted with one, others are left.
const PER_CPU: usize = 4;

pub(crate) struct Buffers {
    buffers: Box<[Lock<Box<[u8]>>]>,
    zeros: Box<[u8]>,
}

impl Buffers {
    pub(crate) fn new(rank: Rank) -> Buffers {
        let buffer = || vec![0; AROUND_PAGES * PAGE_SIZE].into_boxed_slice();
        let count = cpu::count() * PER_CPU;
        Buffers {
            buffers: (0..count).map(|_| Lock::new(rank, buffer())).collect(),
            zeros: buffer(),
        }
    }

    /// A buffer that no thread uses. If there is none, it waits for one.
    pub(crate) fn get(&self) -> LockGuard<'_, Box<[u8]>> {
        let first = cpu::current_hint() * PER_CPU % self.buffers.len();
        let (before, after) = self.buffers.split_at(first);
        let free = after.iter().chain(before).find_map(Lock::try_lock);
        free.unwrap_or_else(|| self.buffers[first].lock())
    }

    /// `pages` pages of zeros.
    pub(crate) fn zeros(&self, pages: usize) -> &[u8] {
        &self.zeros[..pages * PAGE_SIZE]
    }

    /// Bytes of heap.
    pub(crate) fn heap_bytes(&self) -> u64 {
        let each = AROUND_PAGES * PAGE_SIZE + size_of::<Lock<Box<[u8]>>>();
        (self.buffers.len() * each + self.zeros.len()) as u64
    }
}
