//! Building a zspage for a class, and room in the class for its number.
//!
//! A zspage that is being built is in no class. It is counted as being in transit until it arrives
//! in its class, or is given back.

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

    /// Makes sure that a class has room for one zspage more; false when there is no memory.
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
