//! What a cell says about a page.
//!
//! ```text
//!   cell        content                 client's bits   5..3 | 2              | 1..0
//!   nothing     empty                                    -   | being written  | algorithm
//!   in memory   object: the blob                             | back           |
//!   same-filled value, tags 1 and 2 (codec::same)
//!   on disk     value, tag 3: sector 29 bits, length - 1 12 bits
//! ```
//!
//! Invariants
//! - I1 an object of 4096 bytes, and an entry on disk of that length, is a raw page. The algorithm
//!   in its bits means nothing.
//! - I2 the thread that has the turn to write sets the mark "being written back", once in a turn.
//!   Every change of the content clears it. So if the thread finds its mark again, the content is
//!   what was written.

use codec::same::Same;
use host::PAGE_SIZE;
use zsmalloc::{CellGuard, Content, LeafTally};

use crate::backing::OnDisk;

/// Algorithms that can have entries at once, because two bits of a cell name one.
pub(crate) const LIVE_MAX: usize = 4;
/// The client's bits that say which algorithm made a blob.
const ALGORITHM: u8 = 0b011;
/// The content is being written to the disk.
const MARK: u8 = 0b100;
const _: () = assert!(ALGORITHM & MARK == 0, "the fields do not overlap");
const _: () = assert!(LIVE_MAX == ALGORITHM as usize + 1, "two bits name an algorithm");
const _: () = assert!(ALGORITHM + MARK < 1 << 6, "a cell has six bits for its client");
/// Tag of a value that says where on the disk a page is.
const DISK: u8 = 3;

/// The kinds that the counts of a [`LeafTally`] count.
pub(crate) mod kind {
    /// Objects, raw ones included: entries in memory.
    pub(crate) const BLOB: usize = 0;
    /// Same-filled pages.
    pub(crate) const SAME: usize = 1;
    /// Raw objects.
    pub(crate) const HUGE: usize = 2;
    /// Entries on disk.
    pub(crate) const DISK: usize = 3;
}

/// What a cell holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    Nothing,
    /// A value that nothing here writes. The page is lost, and loading it is an error.
    Unknown,
    Same(Same),
    /// An object, made by an algorithm.
    Blob {
        algorithm: usize,
        len: usize,
    },
    /// A blob on the disk.
    Disk {
        algorithm: usize,
        at: OnDisk,
    },
}

impl Stored {
    /// What a cell with this content and these client's bits holds.
    pub(crate) fn of(content: Content, client: u8) -> Stored {
        let algorithm = usize::from(client & ALGORITHM);
        match content {
            Content::Empty => Stored::Nothing,
            Content::Object { len } => Stored::Blob { algorithm, len },
            Content::Value { tag: DISK, value } => {
                Stored::Disk { algorithm, at: OnDisk::from_value(value) }
            }
            Content::Value { tag, value } => {
                Same::from_cell(tag, value).map_or(Stored::Unknown, Stored::Same)
            }
        }
    }

    /// What a locked cell holds.
    pub(crate) fn in_cell(slot: &CellGuard<'_>) -> Stored {
        Stored::of(slot.content(), slot.client())
    }

    /// What it adds to the sums.
    pub(crate) fn tally(self) -> LeafTally {
        let mut tally = LeafTally::default();
        match self {
            Stored::Nothing | Stored::Unknown => {}
            Stored::Same(_) => tally.counts[kind::SAME] = 1,
            Stored::Disk { .. } => tally.counts[kind::DISK] = 1,
            Stored::Blob { len, .. } => {
                tally.counts[kind::BLOB] = 1;
                tally.counts[kind::HUGE] = u64::from(len == PAGE_SIZE);
                tally.bytes = len as u64;
            }
        }
        tally
    }

    /// The algorithm that decodes it. A raw page has none (I1).
    pub(crate) fn algorithm(self) -> Option<usize> {
        match self {
            Stored::Blob { len: PAGE_SIZE, .. } => None,
            Stored::Disk { at, .. } if usize::from(at.len) == PAGE_SIZE => None,
            Stored::Blob { algorithm, .. } | Stored::Disk { algorithm, .. } => Some(algorithm),
            Stored::Nothing | Stored::Unknown | Stored::Same(_) => None,
        }
    }
}

/// True while the content is being written back.
pub(crate) fn is_marked(slot: &CellGuard<'_>) -> bool {
    slot.client() & MARK != 0
}

/// The content is about to be written back.
pub(crate) fn mark(slot: &mut CellGuard<'_>) {
    slot.set_client(slot.client() | MARK);
}

/// The content stays, and its write-back is given up.
pub(crate) fn unmark(slot: &mut CellGuard<'_>) {
    slot.set_client(slot.client() & !MARK);
}

/// Empties a cell.
pub(crate) fn clear(slot: &mut CellGuard<'_>) {
    slot.clear();
    slot.set_client(0);
}

/// Keeps a same-filled page in a cell.
pub(crate) fn put_same(slot: &mut CellGuard<'_>, same: Same) {
    slot.put_value(same.tag, same.value);
    slot.set_client(0);
}

/// Puts a blob of an algorithm in a cell.
pub(crate) fn put_blob<'p>(
    slot: &mut CellGuard<'p>,
    algorithm: usize,
    object: zsmalloc::Object<'p>,
) {
    slot.put(object);
    slot.set_client(algorithm as u8 & ALGORITHM);
}

/// Says in a cell where on the disk its page is.
pub(crate) fn put_disk(slot: &mut CellGuard<'_>, algorithm: usize, at: OnDisk) {
    slot.put_value(DISK, at.value());
    slot.set_client(algorithm as u8 & ALGORITHM);
}
