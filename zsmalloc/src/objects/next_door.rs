//! What a store takes of the other shards of its class, when its own has nothing left to give.
//!
//! Locks: one shard's after the other's.

use super::object::Object;
use super::store::Reserved;
use crate::class::{Age, Class};
use crate::numbers::{CellNumber, Slot};
use crate::pool::Pool;

impl Pool {
    /// A slot of any shard of a class, for when there can be no new zspage. If there is none, the
    /// entry goes back. It waits for each lock in turn, which [`Pool::take_over`] does not.
    pub(crate) fn take_next_door(&self, class: &Class, entry: CellNumber) -> Option<(Slot, Age)> {
        let (of, mut shards) = (self.descriptors(class), self.shards_of(class.index).iter());
        let slot = shards.find_map(|shard| shard.lock().take_slot(&of, entry));
        if slot.is_none() && entry != CellNumber::NONE {
            let mut state = class.lock();
            state.give_entry(entry, &self.memory.leaves, &self.stocks);
            state.operated(1);
        }
        self.arrived(1);
        slot
    }

    /// An object in another shard of the class, on frames that are touched already. It is for when
    /// the frames of a new one would exceed the limit. The first slot goes back either way; its
    /// entry goes back only if there is no other slot.
    #[cold]
    pub(crate) fn charge_next_door<'p>(
        &'p self,
        Reserved { mut object, class, .. }: Reserved<'p>,
        len: usize,
    ) -> Option<Reserved<'p>> {
        let (of, shards) = (self.descriptors(class), self.shards_of(class.index).iter());
        for other in shards.filter(|other| other.shard != class.shard) {
            let taken = other.lock().take_slot(&of, object.entry);
            let Some((slot, age)) = taken else { continue };
            let place = other.place(slot, len);
            let mut found = Object { pool: self, place, entry: CellNumber::NONE };
            if self.charge(other, slot, len).is_ok() {
                std::mem::swap(&mut found.entry, &mut object.entry);
                return Some(Reserved { object: found, age, class: other });
            }
        }
        None
    }
}
