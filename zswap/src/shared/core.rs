//! What all areas of a cache share, and how a change of a cell is entered in the counts.
//!
//! ```text
//!   Core: pool, streams, words, algorithms, groups, order, backing, turn, worker
//!
//!   a cell's content changes --> settle: events, sums, order, groups; lets go of what it had
//! ```
//!
//! Invariants
//! - I1 every entry of every area is in the one pool, so one limit holds for all.
//! - I2 a limit of zero stores nothing.
//! - I3 the limit is kept once, by the pool.
//!
//! Locks: none of its own. A change is entered with its cell locked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use codec::same::Words;
use codec::{CodecError, Stream, Streams};
use host::{HeldRank, PAGE_SIZE, Rank, cpu};
use zsmalloc::{CellGuard, CellNumber, LeafSums, Memory, Pool, PoolConfig};

use crate::backing::Backing;
use crate::cells::{Algorithms, Counters, Event, Groups, Pending, Stored};
use crate::order::Orders;
use crate::terms::{GroupId, ZswapConfig, ZswapError};
use crate::writer::{Refaults, Turn, Worker};

/// The most bytes of frames that storing one page can touch first. An object may reach into two
/// frames.
const PAGE_BYTES_MAX: u64 = 2 * PAGE_SIZE as u64; // 8 KiB

/// What all areas share.
pub(crate) struct Core {
    pub(crate) config: ZswapConfig,
    pub(crate) watermark: usize,
    pub(crate) pool: Arc<Pool>,
    pub(crate) streams: Streams,
    pub(crate) words: Words,
    pub(crate) algorithms: Algorithms,
    pub(crate) counters: Counters,
    pub(crate) groups: Groups,
    pub(crate) orders: Orders,
    pub(crate) backing: Option<Backing>,
    pub(crate) turn: Turn,
    pub(crate) worker: Worker,
    pub(crate) refaults: Refaults,
    /// The limit was met, and the cache is not down to the accept threshold yet.
    full: AtomicBool,
}

impl Core {
    /// The core of an empty cache. A few kilobytes are touched.
    pub(crate) fn new(memory: Arc<Memory>, config: ZswapConfig) -> Result<Core, ZswapError> {
        let (chain, limit) = (config.check()?, config.limit.bytes()?);
        let pool_config = PoolConfig { chain, rule: config.rule, ..PoolConfig::default() };
        #[cfg(feature = "study")]
        let pool_config = PoolConfig { deferred: config.study.deferred, ..pool_config };
        let pool = Pool::new(memory, pool_config)?;
        let disk = config.backing.as_ref().map(|disk| Backing::open(Arc::clone(disk), &pool));
        let backing = disk.transpose()?;
        let core = Core {
            watermark: pool.geometry().huge_watermark(),
            streams: Streams::for_cpus(cpu::count()),
            words: Words::default(),
            algorithms: Algorithms::new(config.algorithm.clone()),
            counters: Counters::for_cpus(cpu::count()),
            groups: Groups::new(&pool)?,
            orders: Orders::new(config.order, pool.memory().cells_max() as u64)?,
            backing,
            turn: Turn::new(),
            worker: Worker::new(),
            refaults: Refaults::default(),
            full: AtomicBool::new(false),
            pool,
            config,
        };
        core.set_limit(limit);
        Ok(core)
    }

    /// Works with a stream. The rank of a stream's lock is kept here, because `codec` has none.
    pub(crate) fn with_stream<R>(&self, work: impl FnOnce(&mut Stream) -> R) -> R {
        let _held = HeldRank::enter(Rank::Stream);
        self.streams.with(cpu::current_hint(), work)
    }

    /// Sets the limit, in whole pages, or `u64::MAX` for none. The pool keeps the limit and refuses
    /// an object that would exceed it, so if two threads set one, both see the same afterwards. 0
    /// means "no limit" to the pool. Our 0 is therefore a limit of one byte, in which nothing fits.
    pub(crate) fn set_limit(&self, bytes: u64) {
        self.pool.set_limit(if bytes == u64::MAX { 0 } else { bytes.max(1) });
    }

    /// Bytes; `u64::MAX` = none.
    #[inline]
    pub(crate) fn limit(&self) -> u64 {
        match self.pool.limit() {
            0 => u64::MAX,
            bytes => bytes & !(PAGE_SIZE as u64 - 1),
        }
    }

    /// A cache that was full takes pages again from this many bytes on. At least room for one page
    /// is left, whatever the percentage. So a thread that makes room down to here has made some.
    pub(crate) fn accept_bytes(&self) -> u64 {
        let (limit, percent) = (self.limit(), u128::from(self.config.accept_threshold_percent));
        let accept = (u128::from(limit) * percent / 100) as u64;
        accept.min(limit.saturating_sub(PAGE_BYTES_MAX))
    }

    /// True while the cache is full: from when the limit is met until the cache is down to the
    /// accept threshold.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        let used = self.pool.object_bytes_resident();
        if used >= self.limit() {
            self.met_limit();
            return true;
        }
        // relaxed: a hint. A thread that races with this is a page late.
        if self.full.load(Ordering::Relaxed) {
            let full = used > self.accept_bytes();
            // relaxed: a hint.
            self.full.store(full, Ordering::Relaxed);
            return full;
        }
        false
    }

    /// Notes that the limit was met.
    pub(crate) fn met_limit(&self) {
        self.counters.happened(Event::PoolLimitHit, 1);
        // relaxed: a hint.
        self.full.store(true, Ordering::Relaxed);
    }

    /// Enters in the counts that a cell got other content than `before`, and why. Then it frees
    /// what `before` held outside the cell. The cell is still locked.
    pub(crate) fn settle(&self, slot: &CellGuard<'_>, before: Stored, group: GroupId, why: Event) {
        let (after, shard) = (Stored::in_cell(slot), self.counters.here());
        let (old, new) = (before.tally(), after.tally());
        shard.happened(why, 1);
        if LeafSums(slot.leaf_word()).replace(old, new) {
            shard.replace(old, new);
        } else {
            self.counters.replace_pending(Pending::of(old), Pending::of(new));
            // The leaf's tokens may have been given up before this one came.
            self.orders.remove(slot.number());
        }
        if before.algorithm() != after.algorithm() {
            before.algorithm().into_iter().for_each(|it| shard.algorithm(it, false));
            after.algorithm().into_iter().for_each(|it| shard.algorithm(it, true));
        }
        let cell = slot.number();
        self.let_go(cell, before);
        if let Stored::Blob { len, .. } = after {
            self.groups.charge(cell, group, len);
        }
    }

    /// Decodes a blob of an algorithm.
    pub(crate) fn decode(
        &self,
        algorithm: usize,
        blob: &[u8],
        stream: Option<&mut Stream>,
        data: &mut [u8],
    ) -> Result<(), CodecError> {
        if blob.len() == PAGE_SIZE {
            data.copy_from_slice(blob);
            return Ok(());
        }
        let codec = self.algorithms.codec(algorithm);
        match stream {
            Some(stream) => codec.decompress(stream, blob, data),
            None => codec.decompress_stateless(blob, data),
        }
    }

    /// The content of a cell is gone. This frees what it held outside the cell.
    pub(crate) fn let_go(&self, cell: CellNumber, before: Stored) {
        match before {
            Stored::Nothing | Stored::Unknown => {}
            Stored::Same(same) => self.words.release(same),
            Stored::Blob { len, .. } => self.groups.uncharge(cell, len),
            Stored::Disk { at, .. } => self.backing.iter().for_each(|backing| backing.free(at)),
        }
    }
}

#[cfg(all(test, debug_assertions, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::Zswap;
    use zsmalloc::MemoryConfig;

    /// Two threads that each have a stream and want another would wait for each other.
    #[test]
    #[should_panic(expected = "R1: waiting for a lock of rank Stream")]
    fn a_second_stream_is_caught() {
        let memory = MemoryConfig { worker: false, ..MemoryConfig::for_disk(1 << 20) };
        let memory = Memory::new(memory).expect("address space");
        let cache = Zswap::new(memory, ZswapConfig::new("ranks")).expect("a cache");
        cache.core.with_stream(|_| cache.core.with_stream(|_| ()));
    }
}
