//! Free blocks by order, migratetype and warmth.
//!
//! ```text
//!   order 3, Movable:   Resident   [head] <-> [ ] <-> [tail]     count 3
//!                       Untouched  [head = tail]                 count 1
//! ```
//!
//! The links lie in the metadata of each block's first frame, so adding and taking a given block
//! are a handful of stores, and a list costs nothing but its ends and its count. The counts lie
//! apart from the ends, where anybody can read them: looking for the smallest block that fits
//! walks over counts of one type, side by side, and touches only the ends it takes from.
//!
//! Invariants
//!
//! * L1: a block is on exactly the list of its order, its pageblock's type and its warmth, and its
//!   state byte says the order and the warmth.
//! * L2: a list's count is its length; empty means count 0, and then its ends are none.
//! * L3: `frames` is the number of frames in all blocks on all lists.

pub(crate) mod counts;
mod directory;
mod pageblock;
mod published;

pub(crate) use counts::Counts;
pub(crate) use directory::Directory;
pub(crate) use published::frames_in;
pub use published::{Published, ZoneCounts};

use crate::numbers::{Arc, Migratetype, Order, Pfn, Role, SLOTS, State, Warm, Which};
use pageblock::Links;

/// No frame, in a link: the one number that no frame of a whole pageblock has.
pub(crate) const NONE: u32 = u32::MAX;

/// A free block off its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FreeBlock {
    pub(crate) pfn: Pfn,
    pub(crate) order: Order,
    pub(crate) warm: Warm,
}

/// Which end of its list a block is put to. Requests take from the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Head,
    Tail,
}

/// The ends of one list: none while its count is 0.
#[derive(Clone, Copy, Debug)]
pub struct List {
    pub(crate) head: u32,
    tail: u32,
}

/// All lists of one order and type.
pub(crate) type OfSlot = [List; Warm::ALL.len()];

/// All the lists of a zone.
pub(crate) struct Lists<C: Counts> {
    lists: [OfSlot; SLOTS],
    frames: u64,
    counts: C,
}

impl<C: Counts> Lists<C> {
    /// Empty lists, whose counts are published there.
    pub(crate) fn new(counts: C) -> Lists<C> {
        let empty = List { head: NONE, tail: NONE };
        Lists { lists: [[empty; Warm::ALL.len()]; SLOTS], frames: 0, counts }
    }

    /// The counts, for readers without the lock.
    pub(crate) fn published(&self) -> &Arc<Published> {
        self.counts.published()
    }

    /// Frames in all free blocks.
    pub(crate) fn frames(&self) -> u64 {
        self.frames
    }

    /// Blocks on one list.
    pub(crate) fn count(&self, which: Which) -> u32 {
        self.published().count(which)
    }

    /// The block a request would take from one list.
    pub(crate) fn first(&self, which: Which) -> Option<FreeBlock> {
        let block = |pfn| FreeBlock { pfn: Pfn::new(pfn), order: which.order, warm: which.warm };
        let list = self.list(which);
        (!self.counts.is_empty(which, list)).then(|| block(list.head))
    }

    /// The first block of the smallest order from `order` on, of one type and warmth.
    pub(crate) fn smallest(&self, order: Order, mt: Migratetype, warm: Warm) -> Option<FreeBlock> {
        let order = self.counts.smallest(order, mt, warm, &self.lists)?;
        let head = self.list(Which { order, migratetype: mt, warm }).head;
        Some(FreeBlock { pfn: Pfn::new(head), order, warm })
    }

    /// Both ends of one list, whatever its count says.
    pub(crate) fn ends(&self, which: Which) -> [Option<Pfn>; 2] {
        let List { head, tail } = *self.list(which);
        [head, tail].map(|end| (end != NONE).then(|| Pfn::new(end)))
    }

    /// The block after `pfn` on its list.
    pub(crate) fn next(&self, directory: &Directory, pfn: Pfn) -> Option<Pfn> {
        let next = directory.links(pfn).next;
        (next != NONE).then(|| Pfn::new(next))
    }

    /// The block before `pfn` on its list.
    pub(crate) fn prev(&self, directory: &Directory, pfn: Pfn) -> Option<Pfn> {
        let prev = directory.links(pfn).prev;
        (prev != NONE).then(|| Pfn::new(prev))
    }

    /// Puts a block on the list of its order, warmth and pageblock's type.
    pub(crate) fn add(&mut self, directory: &mut Directory, block: FreeBlock, end: End) {
        let FreeBlock { pfn, order, warm } = block;
        let migratetype = directory.migratetype(pfn.pageblock());
        self.link(directory, Which { order, migratetype, warm }, pfn, end);
        directory.set_state(pfn, State::free(order, warm));
        self.frames += u64::from(order.frames());
    }

    /// Takes a block off its list. Its head is inner afterwards: the caller says what it becomes.
    pub(crate) fn take(&mut self, directory: &mut Directory, block: FreeBlock) {
        let FreeBlock { pfn, order, warm } = block;
        debug_assert_eq!(directory.role(pfn), Some(Role::Free { order, warm }), "L1 at {pfn}");
        let migratetype = directory.migratetype(pfn.pageblock());
        self.unlink(directory, Which { order, migratetype, warm }, pfn);
        directory.set_state(pfn, State::INNER);
        self.frames -= u64::from(order.frames());
    }

    /// Moves a block to the list of another type, behind what is there: the kernel's
    /// `move_to_free_list`. The pageblock gets that type when all its blocks are moved.
    pub(crate) fn relist(&mut self, directory: &mut Directory, block: FreeBlock, to: Migratetype) {
        let FreeBlock { pfn, order, warm } = block;
        let from = directory.migratetype(pfn.pageblock());
        self.unlink(directory, Which { order, migratetype: from, warm }, pfn);
        self.link(directory, Which { order, migratetype: to, warm }, pfn, End::Tail);
    }

    #[inline(always)]
    fn link(&mut self, directory: &mut Directory, which: Which, pfn: Pfn, end: End) {
        let list = self.list_mut(which);
        let (prev, next) = match end {
            End::Head => (NONE, list.head),
            End::Tail => (list.tail, NONE),
        };
        *directory.links_mut(pfn) = Links { prev, next };
        list.set_next(directory, prev, pfn.get());
        list.set_prev(directory, next, pfn.get());
        self.counts.count_added(which);
    }

    #[inline(always)]
    fn unlink(&mut self, directory: &mut Directory, which: Which, pfn: Pfn) {
        let Links { prev, next } = directory.links(pfn);
        let list = self.list_mut(which);
        list.set_next(directory, prev, next);
        list.set_prev(directory, next, prev);
        self.counts.count_taken(which);
    }

    fn list(&self, which: Which) -> &List {
        &self.lists.as_flattened()[which.number()]
    }

    fn list_mut(&mut self, which: Which) -> &mut List {
        &mut self.lists.as_flattened_mut()[which.number()]
    }
}

#[cfg(test)]
impl Lists<Arc<Published>> {
    /// Damages a list.
    pub(crate) fn set_ends(&mut self, which: Which, head: u32, tail: u32) {
        *self.list_mut(which) = List { head, tail };
    }
}

impl List {
    /// Says that `next` follows `prev`: is the head, if that is none.
    fn set_next(&mut self, directory: &mut Directory, prev: u32, next: u32) {
        match prev {
            NONE => self.head = next,
            prev => directory.links_mut(Pfn::new(prev)).next = next,
        }
    }

    /// Says that `prev` is before `next`: is the tail, if that is none.
    fn set_prev(&mut self, directory: &mut Directory, next: u32, prev: u32) {
        match next {
            NONE => self.tail = prev,
            next => directory.links_mut(Pfn::new(next)).prev = prev,
        }
    }
}
