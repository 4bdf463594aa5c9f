//! What the shards of a class do for each other.
//!
//! Invariant: a zspage changes its shard while the locks of both are held.
//!
//! Locks: one shard's, while that of another is only tried; or one after the other.

use host::sync::atomic::{AtomicU64, Ordering};

use super::{Found, Pool};
use crate::class::{Class, State};
use crate::zspages::DescriptorId;

impl Pool {
    /// From now on each CPU has a shard of its own; all have the first one where there is no memory
    /// for others.
    #[cold]
    pub(crate) fn spread(&self) {
        let make = |first: &Class, numbers| {
            Class::new(first.index, first.shape, numbers, self.locks.of_class())
        };
        let made = self.classes.make_others(make);
        // relaxed: a hint, stored once, as every CPU reads its cache line. A thread that sees it
        // before the shards uses the first.
        self.spread.store(made, Ordering::Relaxed);
    }

    /// Gets a zspage with room from another shard of a class, so that a new one is not needed.
    pub(crate) fn take_over(&self, class: &Class, state: &mut State) -> bool {
        let others = self.shards_of(class.index).iter();
        let others = others.filter(|other| other.shard != class.shard && other.may_have_partial());
        for other in others {
            let Some(mut theirs) = other.try_lock() else { continue };
            // Its first is the one that it allocates from.
            let Some(&spare) = theirs.fullness.partial(other.layout()).get(1) else {
                other.hint_partial(false);
                continue;
            };
            if self.adopt(class, state, &mut theirs, spare) {
                return true;
            }
        }
        false
    }

    /// Gives a zspage to another shard of its class, while both locks are held. False if there is
    /// no memory for its number.
    pub(crate) fn adopt(
        &self,
        class: &Class,
        state: &mut State,
        from: &mut State,
        descriptor: DescriptorId,
    ) -> bool {
        let of = self.descriptors(class);
        let room = self.reserve_position(state);
        if room {
            from.remove(&of, descriptor);
            of.header(descriptor).set_lock(class.number);
            state.insert(&of, descriptor);
            self.count_move();
        }
        room
    }

    /// Counts a move, after its words or its header were written. The lock under which it was done
    /// is held, and what was left is not given back yet.
    pub(crate) fn count_move(&self) {
        // Release pairs with the Acquire in `moves`, so that a thread that sees the move counted
        // sees what it wrote.
        self.moves.fetch_add(1, Ordering::Release);
    }

    /// Moves that were counted.
    #[inline]
    pub(crate) fn moves(&self) -> u64 {
        // Acquire pairs with the Release in `count_move`, so that words, and the locks of zspages,
        // are seen as counted moves left them.
        self.moves.load(Ordering::Acquire)
    }

    /// Where an object is, after something moved since it was looked for. `None` if it is not under
    /// the lock that is held, or if something moved again.
    #[cold]
    pub(crate) fn find_again(&self, held: &Class, cell: &AtomicU64) -> Option<Found<'_>> {
        let moves = self.moves();
        let found = self.tables().find(cell);
        (found.lock == held.number && self.moves() == moves).then_some(found)
    }
}
