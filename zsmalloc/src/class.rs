//! One size class: its zspages by fullness, and the slots in them.
//!
//! ```text
//!   take_slot     head of the fullest group with room -> lowest free slot
//!   give_slot     slot back; zspage refiled, or taken out when it became empty
//! ```
//!
//! The zspage is chosen as the kernel chooses it (`find_get_zspage`), the slot is the lowest free
//! one where the kernel takes the one freed last: a frame that no object reached is never touched.
//!
//! Invariants
//! - I1 `objects` = sum of the slots in use over the zspages of all groups.
//! - I2 no zspage stays in group 0: an empty one is taken out and released by whoever emptied it.
//!
//! Lock: `Class::state`, rank Class. Frames are taken and given back outside it.

use host::{Lock, LockGuard, Rank};

use crate::descriptor::DescriptorId;
use crate::geometry::{ClassIndex, Shape};
use crate::group::{GROUPS, Groups, List};

/// A class of one pool.
pub(crate) struct Class {
    pub(crate) index: ClassIndex,
    pub(crate) shape: Shape,
    state: Lock<State>,
}

/// What the class lock protects.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) groups: Groups,
    /// Slots in use.
    pub(crate) objects: u64,
    /// Zspages in all groups.
    pub(crate) zspages: u64,
    /// Allocations and frees so far: tells a check what moved while it looked elsewhere.
    pub(crate) operations: u64,
}

/// A slot that was taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) descriptor: DescriptorId,
    pub(crate) pfn: u32,
    pub(crate) object: u8,
}

impl Class {
    pub(crate) fn new(index: ClassIndex, shape: Shape) -> Class {
        Class { index, shape, state: Lock::new(Rank::Class, State::default()) }
    }

    pub(crate) fn lock(&self) -> LockGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    /// Takes a slot of a zspage that has room.
    pub(crate) fn take_slot(&mut self, list: &List<'_>) -> Option<Slot> {
        let descriptor = self.groups.fullest_with_room()?;
        Some(self.take_slot_of(list, descriptor))
    }

    /// Takes the lowest free slot of a zspage that has room.
    pub(crate) fn take_slot_of(&mut self, list: &List<'_>, descriptor: DescriptorId) -> Slot {
        let zspage = list.get(descriptor);
        let object = zspage.take_lowest().expect("a zspage below group 100 has a free slot");
        self.groups.refile(list, descriptor);
        self.objects += 1;
        self.operations += 1;
        Slot { descriptor, pfn: zspage.pfn(), object: object as u8 }
    }

    /// Gives a slot back. The zspage comes back when it is empty: it is out of the lists, and the
    /// caller releases it after the lock.
    pub(crate) fn give_slot(&mut self, list: &List<'_>, slot: Slot) -> Option<DescriptorId> {
        let zspage = list.get(slot.descriptor);
        zspage.give(usize::from(slot.object));
        self.objects -= 1;
        self.operations += 1;
        if zspage.in_use() > 0 {
            self.groups.refile(list, slot.descriptor);
            return None;
        }
        self.remove_zspage(list, slot.descriptor);
        Some(slot.descriptor)
    }

    /// Enters a zspage that has no objects; the caller takes a slot of it before unlocking.
    pub(crate) fn insert_zspage(&mut self, list: &List<'_>, descriptor: DescriptorId) {
        self.groups.insert(list, descriptor);
        self.zspages += 1;
    }

    /// Takes a zspage out of the lists.
    pub(crate) fn remove_zspage(&mut self, list: &List<'_>, descriptor: DescriptorId) {
        self.groups.remove(list, descriptor);
        self.zspages -= 1;
    }

    /// Frames that compaction could free: whole zspages' worth of free slots.
    pub(crate) fn freeable_frames(&self, shape: Shape) -> u64 {
        let allocated = self.zspages * u64::from(shape.objects);
        (allocated - self.objects) / u64::from(shape.objects) * u64::from(shape.frames)
    }

    /// Every zspage, group by group.
    pub(crate) fn zspages<'a>(&'a self, list: List<'a>) -> impl Iterator<Item = DescriptorId> + 'a {
        (0..GROUPS).flat_map(move |group| list.walk(self.groups.head(group)))
    }
}
