//! Giving zspages back: what happens between the class that lost one and the zone that gets it.
//!
//! ```text
//!   class lock                         no lock              zone's lock     heap's lock
//!   out of the class -> Leaving -----> run -> unclaimed --> frames free --> descriptor freed
//!                       (a chain       32 zspages at a time
//!                        through next)
//! ```
//!
//! Source: step 3 of study S0.
//!
//! A zspage on its way is in no class, and a recount has to know of it. If it leaves a class, it
//! departs in the class's own count, under the lock. If it comes back to the same class, as a new
//! zspage does, it arrives there. If it is gone for good, or comes to another class, it arrives
//! where all threads count.
//!
//! Invariants
//! - I1 the frames of an emptied zspage go back once, by the thread that took it out of its class.
//! - I2 nobody reads or pins an object of such a zspage: it has none (handle I2).
//!
//! Locks: a zone's, then the descriptor heap's, one after the other, each once for many zspages.

use host::Run;
use host::sync::atomic::{AtomicU64, Ordering, fence};

use super::Pool;
use super::counters::Apart;
use crate::memory::Memory;
use crate::numbers::SHARDS_MAX;
use crate::zspages::{DescriptorId, zspage};

/// Zspages given back at once.
pub(crate) const AT_ONCE: usize = 32;

/// Zspages out of their classes' lists, chained through `next`.
#[must_use = "the frames of these zspages are to be given back"]
pub(crate) struct Leaving(DescriptorId);

impl Leaving {
    pub(crate) const NONE: Leaving = Leaving(DescriptorId::NONE);

    /// A zspage that was never in a class, and departed when it was made.
    pub(crate) fn of(memory: &Memory, descriptor: DescriptorId) -> Leaving {
        memory.descriptors.header(descriptor).set_next(DescriptorId::NONE);
        Leaving(descriptor)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0 == DescriptorId::NONE
    }

    /// Adds a zspage that was taken out of its class, where it departed.
    pub(crate) fn push(&mut self, memory: &Memory, descriptor: DescriptorId) {
        let header = memory.descriptors.header(descriptor);
        header.prefetch_body();
        header.set_next(self.0);
        self.0 = descriptor;
    }
}

impl Pool {
    /// A zspage is being built, or was taken out of a class whose lock is not held any more.
    pub(crate) fn departs(&self) {
        // relaxed: a total; its arrival publishes it.
        here(&self.counters.departed).fetch_add(1, Ordering::Relaxed);
        // Release pairs with the fence in `in_transit`, so that a recount that sees totals changed
        // from here on sees the departure. A departure under a class lock needs no fence, because
        // the recount takes that lock.
        fence(Ordering::Release);
    }

    /// Zspages on their way are in their class, or gone.
    pub(crate) fn arrived(&self, zspages: u64) {
        // Release pairs with the Acquire in `in_transit`, so that a recount that sees the arrival
        // sees the departure, and the totals as they were changed in between.
        here(&self.counters.arrived).fetch_add(zspages, Ordering::Release);
    }

    /// Zspages on their way, of which there are fewer than 2^32.
    pub(crate) fn in_transit(&self) -> u32 {
        // Acquire pairs with the fence in `departs`, so that totals read before are no newer than
        // what is read now.
        fence(Ordering::Acquire);
        // Acquire pairs with the Release in `arrived`, so that no arrival is counted without its
        // departure. Arrivals are read first; the departure is seen next, or under its class's lock
        // below.
        let arrived = sum(&self.counters.arrived, Ordering::Acquire);
        // relaxed: a total.
        let departed = sum(&self.counters.departed, Ordering::Relaxed).wrapping_sub(arrived) as u32;
        let of_classes = self.classes.iter().map(|class| class.lock().departed);
        of_classes.fold(departed, u32::wrapping_add)
    }

    /// Gives the frames of zspages back to the zone, touched as they are.
    pub(crate) fn release_zspages(&self, leaving: Leaving) {
        let mut next = leaving.0.some();
        while next.is_some() {
            let (mut ids, mut len) = ([DescriptorId::NONE; AT_ONCE], 0);
            while let Some(id) = next.filter(|_| len < AT_ONCE) {
                ids[len] = id;
                len += 1;
                next = self.memory.descriptors.header(id).next().some();
            }
            self.release_batch(&ids[..len]);
        }
    }

    /// The same, for a caller that most often has none.
    #[inline]
    pub(crate) fn release_any(&self, leaving: Leaving) {
        if !leaving.is_empty() {
            self.release_zspages(leaving);
        }
    }

    /// The same for a few, named one by one.
    pub(crate) fn release_batch(&self, ids: &[DescriptorId]) {
        let mut frames = 0;
        let mut dissolve = |&id| {
            let run = self.dissolve(id);
            frames += u64::from(run.frames());
            run
        };
        // Most often it is one.
        let resident = match ids {
            [id] => self.memory.give_run(dissolve(id)),
            _ => self.memory.give_runs(ids.iter().map(dissolve)),
        };
        self.forget(ids, frames, resident);
    }

    /// Frees the descriptors of zspages that are gone, with so many frames, so many of them
    /// resident.
    fn forget(&self, ids: &[DescriptorId], frames: u64, resident: u64) {
        self.memory.descriptors.free(ids);
        // relaxed: totals; the frames counted were this thread's.
        self.counters.frames.fetch_sub(frames, Ordering::Relaxed);
        self.counters.resident.fetch_sub(resident, Ordering::Relaxed);
        self.arrived(ids.len() as u64);
    }

    /// The run of a zspage that departed; its descriptor is to be freed.
    fn dissolve(&self, descriptor: DescriptorId) -> Run {
        let header = self.memory.descriptors.header(descriptor);
        let (pfn, class) = (header.pfn(), self.classes.at(header.lock()));
        header.set_pool(0);
        self.memory.set_owner(pfn, DescriptorId::NONE);
        zspage::surrender(&self.memory.arena, pfn, u32::from(class.shape.frames))
    }
}

/// A counter that few other threads use.
fn here(counters: &[Apart<AtomicU64>; SHARDS_MAX]) -> &AtomicU64 {
    &counters[host::cpu::thread_hint() % SHARDS_MAX].0
}

fn sum(counters: &[Apart<AtomicU64>; SHARDS_MAX], ordering: Ordering) -> u64 {
    // relaxed: or more, if the caller asks for more and says why.
    counters.iter().map(|counter| counter.0.load(ordering)).sum()
}
