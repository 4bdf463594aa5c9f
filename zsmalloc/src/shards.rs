//! What the shards of a class do for each other.
//!
//! Invariant: a zspage changes its shard while the locks of both are held.
//!
//! Locks: a shard's while another is only tried; or one after the other.

use crate::class::{Class, Slot, State};
use crate::descriptor::DescriptorId;
use crate::object::Reserved;
use crate::pool::Pool;

impl Pool {
    /// Gets a zspage with room from another shard of a class, so that a new one is not needed.
    pub(crate) fn take_over(&self, class: &Class, state: &mut State) -> bool {
        let first = self.position(class.index, 0);
        let others = self.classes[first..first + self.shards].iter();
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

    /// Gives a zspage to another shard of its class; both locks are held. False when there is no
    /// memory for its number.
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

    /// A slot of any shard of a class, for when there can be no new zspage; where there is none,
    /// the entry goes back. Waits for each lock in turn, as [`Pool::take_over`] does not.
    pub(crate) fn take_next_door(&self, class: &Class, entry: u32) -> Option<Slot> {
        let (of, first) = (self.descriptors(class), self.position(class.index, 0));
        let shards = self.classes[first..first + self.shards].iter();
        let slot = shards.into_iter().find_map(|shard| self.lock(shard).take_slot(&of, entry));
        if slot.is_none() && entry != 0 {
            let mut state = self.lock(class);
            state.give_entry(entry, self);
            state.operated(1);
        }
        self.arrived(1);
        slot
    }

    /// A slot of another shard of the class, for when the frames of a reserved one would exceed the
    /// limit: one on frames that are touched already. The first slot goes back either way, its
    /// entry only where there is no other slot.
    #[cold]
    pub(crate) fn charge_next_door<'p>(
        &'p self,
        reserved: Reserved<'p>,
        len: usize,
    ) -> Option<Reserved<'p>> {
        let (class, mut object) = (reserved.class, reserved.object(self, len));
        let (of, first) = (self.descriptors(class), self.position(class.index, 0));
        let shards = self.classes[first..first + self.shards].iter();
        for other in shards.filter(|other| other.shard != class.shard) {
            let taken = self.lock(other).take_slot(&of, object.entry);
            let Some(slot) = taken else { continue };
            let mut found = Reserved { class: other, slot, entry: 0 };
            if self.charge(other, slot.at, len).is_ok() {
                std::mem::swap(&mut found.entry, &mut object.entry);
                return Some(found);
            }
            drop(found.object(self, len));
        }
        None
    }
}
