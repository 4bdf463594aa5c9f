//! Charging: which frames an object touches first, and whether the limit lets them be touched.
//!
//! ```text
//!   object -> its zspage touched?   yes: nothing to do, known since it was built of such frames
//!          -> its frames resident?  yes: nothing to do, two bits looked at
//!                                   no:  over the limit: refused
//!                                        else: the object's, touched by the copy that follows,
//!                                        and first of a zspage in a large class: all its frames
//!                                        where more than a few are untouched
//! ```
//!
//! A zspage is touched frame by frame as objects come, so that a class with few objects takes no
//! more than they need. Where many came before, and the limit is not near, one call to the system
//! for the whole zspage costs two thirds of what as many page faults cost. A zspage of frames that
//! were used before lacks one or two as a rule, which the copies fault in as they come to them.
//!
//! Invariant: `resident` counts the resident bits of the pool's frames. A thread that sets one adds
//! it.
//!
//! Lock: none.

use host::sync::atomic::Ordering;
use host::{PAGE_SIZE, Pfn};

use super::Pool;
use crate::class::Class;
use crate::numbers::{AllocError, Slot};
use crate::zspages::zspage;

/// Zspages that may be touched as a whole at the same moment without passing the limit.
const THREADS: u64 = 64;

/// Fewer untouched frames of a zspage are not worth a call, which takes as long as their faults.
const FEW: u32 = 4;

/// True if so many frames are more than a limit in bytes. A limit of 0 is none.
fn exceeds(frames: u64, limit: u64) -> bool {
    limit != 0 && frames * PAGE_SIZE as u64 > limit
}

impl Pool {
    /// True when `frames` more touched frames would exceed the limit.
    pub(crate) fn is_over_limit(&self, frames: u64) -> bool {
        // relaxed: a total; the overshoot of racing threads is bounded and documented in `store`.
        let resident = self.counters.resident.load(Ordering::Relaxed);
        exceeds(resident + frames, self.limit())
    }

    /// True if so many more bytes in frames of their own would not exceed the limit.
    pub fn has_room_for(&self, bytes: u64) -> bool {
        !self.is_over_limit(bytes.div_ceil(PAGE_SIZE as u64))
    }

    /// Counts frames that a run brings along touched. If they would exceed the limit, none is
    /// counted, and this is false. The look and the count are one step. Otherwise threads that pass
    /// the look together would exceed the limit by a run each, and not by an object's frames.
    pub(crate) fn count_brought(&self, frames: u64) -> bool {
        let limit = self.limit();
        let counted = |resident: u64| Some(resident + frames).filter(|&sum| !exceeds(sum, limit));
        // relaxed: a total; the frames counted are this thread's.
        let before =
            self.counters.resident.fetch_update(Ordering::Relaxed, Ordering::Relaxed, counted);
        before.is_ok()
    }

    /// Counts the frames that writing the first `len` bytes of a slot touches for the first time.
    pub(crate) fn charge(&self, class: &Class, slot: Slot, len: usize) -> Result<(), AllocError> {
        if self.is_charged(class, slot, len) {
            return Ok(());
        }
        self.charge_untouched(class, slot, len)
    }

    /// Whether writing the first `len` bytes of a slot touches no frame for the first time.
    #[inline]
    pub(crate) fn is_charged(&self, class: &Class, slot: Slot, len: usize) -> bool {
        let arena = &self.memory.arena;
        // An object reaches into two frames at most. Both bits are looked at, even if it is one
        // frame, because no branch could predict that.
        let (first, last) = zspage::frames_of(class.shape, slot, len);
        arena.is_resident(first) & arena.is_resident(last)
    }

    /// As [`Pool::charge`], of a slot with an untouched frame.
    #[cold]
    pub(crate) fn charge_untouched(
        &self,
        class: &Class,
        slot: Slot,
        len: usize,
    ) -> Result<(), AllocError> {
        let (first, last) = zspage::frames_of(class.shape, slot, len);
        let untouched = |pfn: &Pfn| !self.memory.arena.is_resident(*pfn);
        if self.is_over_limit(first.through(last).filter(untouched).count() as u64) {
            return Err(AllocError::OverLimit { limit: self.limit() });
        }
        if slot.object == 0 && class.is_large() {
            self.touch_zspage(class, slot.pfn);
        }
        self.touch(class, slot, len);
        Ok(())
    }

    /// Touches a zspage as a whole, whose first object is about to come, well below the limit.
    fn touch_zspage(&self, class: &Class, pfn: Pfn) {
        let (arena, frames) = (&self.memory.arena, u32::from(class.shape.frames));
        let untouched = frames - arena.resident_in(pfn, frames);
        if untouched < FEW || self.is_over_limit(u64::from(frames) * THREADS) {
            return;
        }
        // Counted before it is done, which takes a while.
        self.count_resident(pfn.run(frames).filter(|&pfn| arena.mark_resident(pfn)).count());
        arena.populate(pfn, frames);
    }

    /// Marks the frames of the first `len` bytes of a slot as touched, and counts those that were
    /// not.
    pub(crate) fn touch(&self, class: &Class, slot: Slot, len: usize) {
        let (first, last) = zspage::frames_of(class.shape, slot, len);
        let arena = &self.memory.arena;
        self.count_resident(first.through(last).filter(|&pfn| arena.mark_resident(pfn)).count());
    }

    fn count_resident(&self, touched: usize) {
        if touched > 0 {
            // relaxed: a total; `mark_resident` is true for one thread per frame.
            self.counters.resident.fetch_add(touched as u64, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::{ChainSize, Handle, MemoryConfig, PoolConfig, Rule};
    use std::sync::Arc;

    /// Bytes of an object of which 18 fill a zspage of 7 frames.
    const LEN: usize = 1584;
    const OBJECTS: usize = 18;
    const FRAMES: u32 = 7;
    /// Zspages that make a class a large one.
    const LARGE: usize = 32;

    fn pool() -> Arc<Pool> {
        let config = MemoryConfig { worker: false, ..MemoryConfig::for_disk(64 << 20) };
        let chain = ChainSize::from_order(3).expect("order 3 is a chain size");
        let memory = crate::Memory::new(config).expect("address space");
        let config = PoolConfig { chain, rule: Rule::LeastWaste, ..PoolConfig::default() };
        Pool::new(memory, config).expect("a pool")
    }

    fn store(pool: &Pool, objects: usize) -> Vec<Handle> {
        (0..objects).map(|_| pool.alloc(&[1; LEN]).expect("room")).collect()
    }

    /// Frames that are touched when the first object is stored in a zspage whose first `untouched`
    /// ones were not.
    #[track_caller]
    fn expect(untouched: u32, touched: u32) {
        let pool = pool();
        let full = store(&pool, LARGE * OBJECTS);
        let (run, resident) = pool.memory.take_run(0, FRAMES).expect("frames");
        assert_eq!(resident, 0);
        let mut rest = run.pfn().run(FRAMES).skip(untouched as usize);
        assert!(rest.all(|pfn| pool.memory.arena.mark_resident(pfn)));
        pool.memory.give_runs(std::iter::once(run));
        let before = pool.stats().object_bytes_resident;
        let one = store(&pool, 1);
        let bytes = pool.stats().object_bytes_resident - before;
        assert_eq!(bytes, u64::from(touched) * PAGE_SIZE as u64, "{untouched} untouched");
        assert!(pool.check().is_ok());
        drop((full, one));
    }

    #[test]
    fn a_pool_fills_its_limit_and_no_more() {
        let pool = pool();
        pool.set_limit(PAGE_SIZE as u64);
        let halves = [1, 2].map(|byte| pool.alloc(&[byte; 2048]).expect("both fill one frame"));
        assert_eq!(pool.stats().object_bytes_resident, PAGE_SIZE as u64);
        assert!(matches!(pool.alloc(&[3; 2048]), Err(AllocError::OverLimit { .. })));
        assert!(pool.check().is_ok());
        halves.into_iter().for_each(|half| pool.free_handle(half).expect("ours"));
    }

    #[test]
    fn a_few_untouched_frames_are_touched_as_objects_come() {
        expect(1, FRAMES); // its own
        expect(3, FRAMES - 2);
        expect(FEW, FRAMES);
        expect(FRAMES, FRAMES);
    }
}
