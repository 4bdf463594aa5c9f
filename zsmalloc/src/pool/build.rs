//! Building a zspage for a class, and room in the class for its number.
//!
//! Invariant: a zspage that is being built is in no class. It is counted as being in transit until
//! it arrives in its class, or is given back.
//!
//! Locks: a zone's and the descriptor heap's for the zspage; a shard's of the class to give room
//! back.

use host::sync::atomic::Ordering;

use super::Pool;
use crate::class::{Class, State, set_hint};
use crate::numbers::AllocError;
use crate::zspages::{DescriptorId, zspage};

/// Frames of a pool that a cache may hold.
pub(crate) const CACHED_FRAMES: u64 = 8192; // 32 MiB

impl Pool {
    /// A zspage without objects, known to the caller alone. Only its first `touched` frames cost
    /// anything yet. It is in transit: it is to arrive in its class, or to be given back.
    pub(crate) fn new_zspage(
        &self,
        class: &Class,
        touched: u32,
    ) -> Result<DescriptorId, AllocError> {
        self.departs();
        self.build_zspage(class, touched).inspect_err(|_| self.arrived(1))
    }

    pub(crate) fn build_zspage(
        &self,
        class: &Class,
        touched: u32,
    ) -> Result<DescriptorId, AllocError> {
        let frames = u32::from(class.shape.frames);
        let descriptor = self.memory.descriptors.alloc(class.shape, class.shard)?;
        let taken = self.memory.take_run(class.shard, frames);
        let (mut run, mut resident) =
            taken.inspect_err(|_| self.memory.descriptors.free(&[descriptor]))?;
        // A run brings touched frames along that the first object may not need.
        if touched < frames {
            resident -= self.memory.purge_from(&mut run, touched);
        }
        if resident > 0 && !self.count_brought(resident.into()) {
            // What the system refuses to take back is there, limit or not.
            resident -= self.memory.purge_from(&mut run, 0);
            // relaxed: a total; the frames counted are this thread's.
            self.counters.resident.fetch_add(u64::from(resident), Ordering::Relaxed);
        }
        let pfn = zspage::adopt(run);
        let zspage = self.descriptors(class).get(descriptor);
        zspage.reset(pfn, class.number, self.id);
        zspage.set_touched(resident == frames);
        self.memory.set_owner(pfn, descriptor);
        // relaxed: a total; the frames counted are this thread's.
        let others = self.counters.frames.fetch_add(u64::from(frames), Ordering::Relaxed);
        self.hint_outgrown(others + u64::from(frames));
        Ok(descriptor)
    }

    /// Makes sure that a class has room for one zspage more. False if there is no memory.
    pub(crate) fn reserve_position(&self, state: &mut State) -> bool {
        let reserved = state.fullness.reserve();
        if reserved.is_err() {
            // The zspage that is given back now was in the totals.
            state.operated(1);
        }
        if let Ok(bytes @ 1..) = reserved {
            // relaxed: a total.
            self.counters.position_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        reserved.is_ok()
    }

    /// Gives back what classes that have become small no longer need for their zspages' numbers.
    pub(crate) fn shrink_positions(&self, class: &Class) {
        let mut state = self.lock(class);
        if let bytes @ 1.. = state.fullness.shrink() {
            state.operated(1);
            // relaxed: a total.
            self.counters.position_bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
        }
    }

    /// Takes note of how many frames the pool has, when it has taken some.
    fn hint_outgrown(&self, frames: u64) {
        set_hint(&self.outgrown, frames > CACHED_FRAMES);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::memory::{Memory, MemoryConfig};
    use crate::numbers::{ChainSize, Rule};
    use crate::pool::PoolConfig;
    use host::Pfn;

    /// Frames of a zspage of the class below, and an object of it.
    const FRAMES: u32 = 7;
    const OBJECT: [u8; 1584] = [7; 1584];
    /// The frame of the zspage that the program has locked.
    const LOCKED: u32 = 4;

    /// The story: the system took back the frames before a locked one and refused the rest. The
    /// pool counted all of them as resident from then on.
    #[test]
    fn frames_that_a_partly_refused_purge_took_are_not_counted() {
        let config = MemoryConfig { worker: false, ..MemoryConfig::for_disk(64 << 20) };
        let memory = Memory::new(config).expect("address space");
        let chain = ChainSize::from_order(3).expect("order 3 is a chain size");
        let config = PoolConfig { chain, rule: Rule::LeastWaste, lag: 0, ..PoolConfig::default() };
        let pool = Pool::new(memory, config).expect("a pool");
        let objects = [0; 18].map(|_| pool.alloc(&OBJECT).expect("room"));
        let resident = || pool.stats().object_bytes_resident / host::PAGE_SIZE as u64;
        assert_eq!(resident(), u64::from(FRAMES));
        let first = pool.memory().frames(1).expect("room").pfn().expect("a frame");
        let arena = &pool.memory().arena;
        let resident_in = |from| arena.resident_in(from, FRAMES);
        let mut before = Pfn::new(0).through(first.plus(FRAMES));
        let run = before.find(|&pfn| resident_in(pfn) == FRAMES).expect("the zspage");
        objects.into_iter().for_each(|object| pool.free_handle(object).expect("the pool's"));
        if let Err(error) = zspage::lock_in_memory(arena, run.plus(LOCKED), true) {
            assert!(std::env::var_os("CI").is_none(), "CI may lock memory");
            eprintln!("skipped: needs the right to lock a page: {error}");
            return;
        }
        // One frame less than the run brings along, so that all of them are to go first.
        pool.set_limit(u64::from(FRAMES - 1) * host::PAGE_SIZE as u64);
        let one = pool.alloc(&OBJECT).expect("the frames of before");
        let there = resident_in(run);
        zspage::lock_in_memory(arena, run.plus(LOCKED), false).expect("it was locked");
        assert_eq!(there, FRAMES - LOCKED + 1, "the first, the locked one and those after it");
        assert_eq!(resident(), u64::from(there));
        pool.check().expect("no defect");
        pool.free_handle(one).expect("the pool's");
        pool.check().expect("no defect");
    }
}
