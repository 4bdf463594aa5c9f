//! Blocks of the backing disk: which of them are in use, and the checksum of each.
//!
//! ```text
//!   block        0   1   2   3   4 ...                 4096 bytes each
//!   in use     | 1 | 1 | 1 | 0 | 1 | ...   one bit
//!   tainted    | 0 | 1 | 0 | 1 | 0 | ...   one bit: it is not taken again
//!   checksum   | a | b | c |   | d | ...   of the whole block, keyed: `Backing::sum`
//! ```
//!
//! The lowest free block is taken, so that blocks taken together lie together. A block that is
//! tainted and not in use is *quarantined*: a write that was given up may still change it.
//!
//! One thread at a time takes blocks; any number of threads give them back. `start` is a word below
//! which no bit is free. The thread that takes exchanges it for "nowhere", and brings it back by a
//! minimum. So a block that is given back meanwhile, below the place of the search, is not lost.
//!
//! Invariants
//! - I1 a block is given back once, by the thread that ends its use.
//! - I2 no bit below word `start` is free while no thread takes or gives.
//! - I3 a block's checksum changes only while no cell names it.
//! - I4 a block is tainted while it is in use, and stays so.
//!
//! Locks: none. Only the one post-processing that runs takes blocks.

use std::ops::Range;

use host::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use host::{PAGE_SIZE, Table};
use zsmalloc::{MemoryError, Pool};

use super::place::BLOCKS_MAX;

/// Blocks whose bits share a word.
const PER_WORD: u64 = u64::BITS as u64;
const NOWHERE: u64 = u64::MAX;

/// The blocks of a backing disk.
pub(crate) struct Blocks {
    bits: Table<AtomicU64>,
    tainted: Table<AtomicU64>,
    sums: Table<AtomicU32>,
    /// The number of blocks of the disk.
    len: u64,
    start: AtomicU64,
    in_use: AtomicU64,
    quarantined: AtomicU64,
}

impl Blocks {
    /// The blocks of a disk of `bytes`, all free.
    pub(crate) fn new(pool: &Pool, bytes: u64) -> Result<Blocks, MemoryError> {
        let len = (bytes / PAGE_SIZE as u64).min(BLOCKS_MAX);
        let words = len.div_ceil(PER_WORD).max(1) as usize;
        Ok(Blocks {
            bits: pool.table(words)?,
            tainted: pool.table(words)?,
            sums: pool.table(len.max(1) as usize)?,
            len,
            start: AtomicU64::new(0),
            in_use: AtomicU64::new(0),
            quarantined: AtomicU64::new(0),
        })
    }

    /// Takes the lowest free block. `None` if there is none.
    pub(crate) fn take(&self) -> Option<u32> {
        // AcqRel pairs with the minimum in `give`, so that no free block is lost. If a minimum came
        // before, the bit that its thread cleared is seen. If it comes after, it is kept.
        let from = self.start.swap(NOWHERE, Ordering::AcqRel);
        let found =
            (from..self.len.div_ceil(PER_WORD)).find_map(|word| Some((word, self.take_in(word)?)));
        let start = found.map_or(self.len.div_ceil(PER_WORD), |(word, _)| word);
        // Release pairs with the exchange above in the next call, so that the next thread sees the
        // bit that this one set.
        self.start.fetch_min(start, Ordering::Release);
        let (_, block) = found?;
        // relaxed: a total.
        self.in_use.fetch_add(1, Ordering::Relaxed);
        Some(block)
    }

    /// Takes the lowest free block of a word.
    fn take_in(&self, word: u64) -> Option<u32> {
        let bits = &self.bits[word as usize];
        // Acquire pairs with the clearing in `give`, so that the block's last user no longer uses
        // it.
        let taken = bits.load(Ordering::Acquire);
        // relaxed: the load above ordered it, because a block is tainted before it is given (I4).
        let tainted = self.tainted[word as usize].load(Ordering::Relaxed);
        let free = !taken & !tainted & self.usable(word);
        if free == 0 {
            return None;
        }
        let bit = free.trailing_zeros();
        self.bits.touch(word as usize..word as usize + 1);
        // relaxed: no other thread sets bits, and the load above ordered this.
        bits.fetch_or(1 << bit, Ordering::Relaxed);
        Some((word * PER_WORD) as u32 + bit)
    }

    /// The bits of a word that stand for blocks of the disk.
    fn usable(&self, word: u64) -> u64 {
        let blocks = (self.len - word * PER_WORD).min(PER_WORD);
        if blocks == PER_WORD { u64::MAX } else { (1 << blocks) - 1 }
    }

    /// Has a block that is in use not be taken again once it is given back.
    pub(crate) fn taint(&self, block: u32) {
        let (word, bit) = place_of(block);
        self.tainted.touch(word as usize..word as usize + 1);
        // relaxed: the block's user gives it back later, or unlocks the cell that will name it.
        self.tainted[word as usize].fetch_or(bit, Ordering::Relaxed);
    }

    /// Gives a block back.
    pub(crate) fn give(&self, block: u32) {
        let (word, bit) = place_of(block);
        // relaxed: this thread has set it, or the lock of the cell that named the block shows it.
        if self.tainted[word as usize].load(Ordering::Relaxed) & bit != 0 {
            // relaxed: a total.
            self.quarantined.fetch_add(1, Ordering::Relaxed);
        }
        // Release pairs with the load in `take_in`, so that this use of the block ends before its
        // next one begins.
        let before = self.bits[word as usize].fetch_and(!bit, Ordering::Release);
        debug_assert!(before & bit != 0, "I1: block {block} was in use");
        // Release pairs with the exchange in `take`, so that a thread that finds the word sees the
        // bit.
        self.start.fetch_min(word, Ordering::Release);
        // relaxed: a total.
        self.in_use.fetch_sub(1, Ordering::Relaxed);
    }

    /// Notes the checksum of a block that was taken and that no cell names yet.
    pub(crate) fn set_sum(&self, block: u32, sum: u32) {
        let index = block as usize;
        self.sums.touch(index..index + 1);
        // relaxed: published by the unlocking of the cell that will name the block.
        self.sums[index].store(sum, Ordering::Relaxed);
    }

    /// The checksum of a block that a locked cell names (I3). If no cell is locked, the block may
    /// have another one by now.
    pub(crate) fn sum(&self, block: u32) -> u32 {
        // relaxed: if the cell is locked, its lock shows the sum from when the block went into the
        // cell. Otherwise the sum may also be a later one.
        self.sums.get(block as usize).map_or(0, |sum| sum.load(Ordering::Relaxed))
    }

    /// Blocks in use.
    pub(crate) fn in_use(&self) -> u64 {
        // relaxed: a total.
        self.in_use.load(Ordering::Relaxed)
    }

    /// Blocks that are not in use and are not taken again.
    pub(crate) fn quarantined(&self) -> u64 {
        // relaxed: a total.
        self.quarantined.load(Ordering::Relaxed)
    }

    /// Counts a block too many, for a test of a recount.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn miscount(&self) {
        // relaxed: one thread.
        self.in_use.fetch_add(1, Ordering::Relaxed);
    }

    /// Blocks in use, counted from their bits for a check.
    pub(crate) fn recount(&self) -> u64 {
        // relaxed: the count is exact when no thread takes or gives.
        let ones = |bits: &AtomicU64| u64::from(bits.load(Ordering::Relaxed).count_ones());
        self.bits.held().map(|(_, bits)| ones(bits)).sum()
    }

    /// Quarantined blocks, counted from their bits for a check.
    pub(crate) fn recount_quarantined(&self) -> u64 {
        // relaxed: as in `recount`.
        let read = |bits: &AtomicU64| bits.load(Ordering::Relaxed);
        let free = |(word, tainted): (usize, &AtomicU64)| read(tainted) & !read(&self.bits[word]);
        self.tainted.held().map(|word| u64::from(free(word).count_ones())).sum()
    }

    /// Bytes held: mapped, and on the heap.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        let (bits, tainted, sums) = (&self.bits, &self.tainted, &self.sums);
        let mapped = bits.held_bytes() + tainted.held_bytes() + sums.held_bytes();
        (mapped, bits.heap_bytes() + tainted.heap_bytes() + sums.heap_bytes())
    }

    /// The tables' addresses.
    pub(crate) fn ranges(&self) -> [Range<usize>; 3] {
        [self.bits.range(), self.tainted.range(), self.sums.range()]
    }
}

/// The word that has a block's bit, and the bit.
fn place_of(block: u32) -> (u64, u64) {
    (u64::from(block) / PER_WORD, 1 << (u64::from(block) % PER_WORD))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::small;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use zsmalloc::PoolConfig;

    fn blocks(count: u64) -> Blocks {
        let pool = Pool::new(small::memory(), PoolConfig::default()).expect("a pool");
        Blocks::new(&pool, count * PAGE_SIZE as u64 + 4095).expect("address space")
    }

    proptest! {
        /// Compares with a set of the free blocks. Every fifth block is tainted when it is given
        /// back, and is free no more.
        #[test]
        fn the_lowest_free_block_is_taken(
            count in 0u64..200,
            steps in prop::collection::vec(prop::option::of(0usize..200), 0..600),
        ) {
            let blocks = blocks(count);
            let mut free: BTreeSet<u32> = (0..count as u32).collect();
            let (mut taken, mut quarantined) = (Vec::new(), 0);
            for step in steps {
                match step.filter(|_| !taken.is_empty()) {
                    None => {
                        let lowest = free.pop_first();
                        prop_assert_eq!(blocks.take(), lowest);
                        taken.extend(lowest);
                    }
                    Some(which) => {
                        let block = taken.swap_remove(which % taken.len());
                        if which % 5 == 0 {
                            blocks.taint(block);
                            quarantined += 1;
                        } else {
                            free.insert(block);
                        }
                        blocks.give(block);
                    }
                }
                prop_assert_eq!(blocks.in_use(), taken.len() as u64);
                prop_assert_eq!(blocks.recount(), taken.len() as u64);
                prop_assert_eq!(blocks.quarantined(), quarantined);
                prop_assert_eq!(blocks.recount_quarantined(), quarantined);
            }
        }
    }

    #[test]
    fn a_checksum_is_its_blocks() {
        let blocks = blocks(2000);
        (0..2000).for_each(|block| blocks.set_sum(block, block * 7));
        assert!((0..2000).all(|block| blocks.sum(block) == block * 7));
    }
}
