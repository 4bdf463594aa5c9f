//! Free blocks by order, migratetype and warmth.
//!
//! ```text
//!   order 3, Movable:   Resident   [head] <-> [ ] <-> [tail]     count 3
//!                       Untouched  [head = tail]                 count 1
//! ```
//!
//! The links lie in the metadata of each block's first frame, so adding and taking a given block
//! are a handful of stores, and a list costs nothing but its ends and its count.
//!
//! Invariants
//!
//! * L1: a block is on exactly the list of its order, its pageblock's type and its warmth, and its
//!   state byte says the order and the warmth.
//! * L2: a list's count is its length; empty means count 0, and then its ends mean nothing.
//! * L3: `frames` is the number of frames in all blocks on all lists.

use crate::directory::Directory;
use crate::migratetype::Migratetype;
use crate::order::{ORDERS, Order};
use crate::pfn::Pfn;
use crate::state::{Role, State, Warm};

/// No frame, in a link: the one number that no frame of a whole pageblock has.
const NONE: u32 = u32::MAX;

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

#[derive(Clone, Copy)]
struct List {
    head: u32,
    tail: u32,
    count: u32,
}

/// Which list: an order, a migratetype and a warmth.
#[derive(Clone, Copy)]
pub(crate) struct Which {
    pub(crate) order: Order,
    pub(crate) migratetype: Migratetype,
    pub(crate) warm: Warm,
}

impl Which {
    /// Every list: by order, then type, then warmth.
    pub(crate) fn all() -> impl Iterator<Item = Which> {
        Order::all().flat_map(|order| {
            Migratetype::ALL.into_iter().flat_map(move |migratetype| {
                Warm::ALL.into_iter().map(move |warm| Which { order, migratetype, warm })
            })
        })
    }
}

/// All the lists of a zone.
pub(crate) struct Lists {
    lists: [[[List; Warm::ALL.len()]; Migratetype::COUNT]; ORDERS],
    frames: u64,
}

impl Lists {
    pub(crate) fn new() -> Lists {
        let empty = List { head: NONE, tail: NONE, count: 0 };
        Lists { lists: [[[empty; Warm::ALL.len()]; Migratetype::COUNT]; ORDERS], frames: 0 }
    }

    /// Frames in all free blocks.
    pub(crate) fn frames(&self) -> u64 {
        self.frames
    }

    /// Blocks on one list.
    pub(crate) fn count(&self, which: Which) -> u32 {
        self.list(which).count
    }

    /// The block a request would take from one list.
    pub(crate) fn first(&self, which: Which) -> Option<FreeBlock> {
        let list = self.list(which);
        let block = |pfn| FreeBlock { pfn: Pfn::new(pfn), order: which.order, warm: which.warm };
        (list.count > 0).then(|| block(list.head))
    }

    /// The other end of one list.
    pub(crate) fn last(&self, which: Which) -> Option<Pfn> {
        let list = self.list(which);
        (list.count > 0).then(|| Pfn::new(list.tail))
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
        let list = self.list_mut(Which { order, migratetype, warm });
        list.link(directory, pfn, end);
        directory.set_state(pfn, State::free(order, warm));
        self.frames += u64::from(order.frames());
    }

    /// Takes a block off its list. Its head is inner afterwards: the caller says what it becomes.
    pub(crate) fn take(&mut self, directory: &mut Directory, block: FreeBlock) {
        let FreeBlock { pfn, order, warm } = block;
        debug_assert_eq!(directory.role(pfn), Some(Role::Free { order, warm }), "L1 at {pfn}");
        let migratetype = directory.migratetype(pfn.pageblock());
        let list = self.list_mut(Which { order, migratetype, warm });
        list.unlink(directory, pfn);
        directory.set_state(pfn, State::INNER);
        self.frames -= u64::from(order.frames());
    }

    fn list(&self, which: Which) -> &List {
        &self.lists[which.order.index()][which.migratetype.index()][which.warm.index()]
    }

    fn list_mut(&mut self, which: Which) -> &mut List {
        &mut self.lists[which.order.index()][which.migratetype.index()][which.warm.index()]
    }
}

impl List {
    fn link(&mut self, directory: &mut Directory, pfn: Pfn, end: End) {
        let (head, tail) = if self.count == 0 { (NONE, NONE) } else { (self.head, self.tail) };
        let (prev, next) = match end {
            End::Head => (NONE, head),
            End::Tail => (tail, NONE),
        };
        let links = directory.links_mut(pfn);
        (links.prev, links.next) = (prev, next);
        self.join(directory, prev, pfn.get());
        self.join(directory, pfn.get(), next);
        self.count += 1;
    }

    fn unlink(&mut self, directory: &mut Directory, pfn: Pfn) {
        let links = directory.links(pfn);
        self.join(directory, links.prev, links.next);
        self.count -= 1;
    }

    /// Makes `next` follow `prev`; at an end, where one of them is none, moves the end.
    fn join(&mut self, directory: &mut Directory, prev: u32, next: u32) {
        match prev {
            NONE => self.head = next,
            prev => directory.links_mut(Pfn::new(prev)).next = next,
        }
        match next {
            NONE => self.tail = prev,
            next => directory.links_mut(Pfn::new(next)).prev = prev,
        }
    }
}
