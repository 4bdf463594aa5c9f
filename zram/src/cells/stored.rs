//! What a cell says about a page.
//!
//! ```text
//!   cell         content                                         client's bits: see `flags`
//!   nothing      empty
//!   in memory    object: the blob, 4096 bytes if it is huge      priority of its algorithm
//!   same-filled  value, tags 1 and 2 (`codec::same`)
//!   on disk      value, tag 3: a place                           the same
//!   shared       value, tag 4: the number of a shared object      none
//!   in a unit    value, tag 5: the number of the page             that of the densest algorithm
//! ```
//!
//! This is the only form of a cell's content. Code that looks at a cell matches it.
//!
//! Invariant: content and client's bits change in one word, so that what is read here was written
//! by one change.

use codec::same::Same;
use host::PAGE_SIZE;
use zsmalloc::{CellGuard, Content, LeafTally, Object};

use super::flags::{of_priority, priority};
use crate::backing::Place;

/// Tag of a value that says where on the backing disk a page is.
const DISK: u8 = 3;
/// Tag of a value that is the number of an object that several cells name.
const SHARED: u8 = 4;
/// Tag of a value that says that a page is in the unit of its run.
const UNIT: u8 = 5;

/// The kinds that the counts of a [`LeafTally`] count.
pub(crate) mod kind {
    /// Pages in memory that have an object: their own, a shared one or a unit's. Huge ones too.
    pub(crate) const BLOB: usize = 0;
    /// Same-filled pages.
    pub(crate) const SAME: usize = 1;
    /// Huge objects of one cell.
    pub(crate) const HUGE: usize = 2;
    /// Pages on the backing disk.
    pub(crate) const DISK: usize = 3;
}

/// What a cell holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    Nothing,
    /// A value that nothing here writes. The page is lost, and reading it is an error.
    Unknown,
    Same(Same),
    /// An object, made by the algorithm of a priority.
    Blob {
        priority: u8,
        len: usize,
    },
    /// A blob on the backing disk.
    Disk {
        priority: u8,
        at: Place,
    },
    /// An object that other cells may name too, see `sharing`. The algorithm of priority 0 made it.
    Shared {
        number: u32,
    },
    /// In a unit with its neighbours, see `units`.
    Unit {
        page: u64,
    },
}

impl Stored {
    /// What a cell with this content and these client's bits holds.
    pub(crate) fn of(content: Content, client: u8) -> Stored {
        let priority = priority(client);
        match content {
            Content::Empty => Stored::Nothing,
            Content::Object { len } => Stored::Blob { priority, len },
            Content::Value { tag: DISK, value } => {
                Stored::Disk { priority, at: Place::from_value(value) }
            }
            Content::Value { tag: SHARED, value } => {
                u32::try_from(value).map_or(Stored::Unknown, |number| Stored::Shared { number })
            }
            Content::Value { tag: UNIT, value } => Stored::Unit { page: value },
            Content::Value { tag, value } => {
                Same::from_cell(tag, value).map_or(Stored::Unknown, Stored::Same)
            }
        }
    }

    /// What a locked cell holds.
    pub(crate) fn in_cell(slot: &CellGuard<'_>) -> Stored {
        #[cfg(feature = "study")]
        if super::flags::is_marked(slot) {
            return Stored::Nothing;
        }
        Stored::of(slot.content(), slot.client())
    }

    /// What it adds to the sums.
    pub(crate) fn tally(self) -> LeafTally {
        let mut tally = LeafTally::default();
        match self {
            Stored::Nothing | Stored::Unknown => {}
            Stored::Same(_) => tally.counts[kind::SAME] = 1,
            Stored::Disk { .. } => tally.counts[kind::DISK] = 1,
            // The bytes of its object are counted once, in `sharing` or in `units`.
            Stored::Shared { .. } | Stored::Unit { .. } => tally.counts[kind::BLOB] = 1,
            Stored::Blob { len, .. } => {
                tally.counts[kind::BLOB] = 1;
                tally.counts[kind::HUGE] = u64::from(len == PAGE_SIZE);
                tally.bytes = len as u64;
            }
        }
        tally
    }
}

/// Pages that a tally counts, wherever they are.
pub(crate) fn pages(tally: LeafTally) -> u64 {
    tally.counts[kind::BLOB] + tally.counts[kind::SAME] + tally.counts[kind::DISK]
}

/// Keeps a same-filled page in a cell.
pub(crate) fn put_same(slot: &mut CellGuard<'_>, same: Same) {
    slot.put_value(same.tag, same.value);
    slot.set_client(0);
}

/// Puts a blob in a cell that the algorithm of a priority made.
pub(crate) fn put_blob<'p>(slot: &mut CellGuard<'p>, priority: u8, object: Object<'p>) {
    slot.put(object);
    slot.set_client(of_priority(priority));
}

/// Says in a cell where on the backing disk its page is.
pub(crate) fn put_disk(slot: &mut CellGuard<'_>, priority: u8, at: Place) {
    slot.put_value(DISK, at.value());
    slot.set_client(of_priority(priority));
}

/// Names a shared object in a cell.
pub(crate) fn put_shared(slot: &mut CellGuard<'_>, number: u32) {
    slot.put_value(SHARED, number.into());
    slot.set_client(0);
}

/// Says in a cell that its page is in the unit of its run, which an algorithm made.
pub(crate) fn put_unit(slot: &mut CellGuard<'_>, priority: u8, page: u64) {
    slot.put_value(UNIT, page);
    slot.set_client(of_priority(priority));
}

#[cfg(test)]
mod tests {
    use super::*;
    use codec::same::Words;

    #[test]
    fn a_same_filled_page_is_not_on_the_backing_disk() {
        let words = Words::default();
        for word in [0, u64::MAX, 0x1234_5678_9abc_def0] {
            let same = words.intern(word).expect("the table is empty");
            let content = Content::Value { tag: same.tag, value: same.value };
            assert_eq!(Stored::of(content, 0), Stored::Same(same));
        }
        assert_eq!(Stored::of(Content::Empty, 0), Stored::Nothing);
        for tag in [0, 7] {
            assert_eq!(Stored::of(Content::Value { tag, value: 9 }, 0), Stored::Unknown);
        }
    }
}
