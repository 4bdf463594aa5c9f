//! What a cell says of a page.
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
//! - I1 an object of 4096 bytes, and an entry on disk of that length, is a raw page: what its bits
//!   say of an algorithm means nothing.
//! - I2 the mark "being written back" is set by who has the turn to write, once in a turn, and goes
//!   with every change of the content: found again, the content is what was written.

use codec::same::Same;
use zsmalloc::{CellGuard, Content, LeafTally, PAGE_SIZE};

use crate::algorithms::LIVE_MAX;

/// Bits of the client's that say which algorithm made a blob.
const ALGORITHM: u8 = 0b011;
/// The content is being written to the disk.
const MARK: u8 = 0b100;
const _: () = assert!(ALGORITHM & MARK == 0, "the fields do not overlap");
const _: () = assert!(LIVE_MAX == ALGORITHM as usize + 1, "two bits name an algorithm");
const _: () = assert!(ALGORITHM + MARK < 1 << 6, "a cell has six bits for its client");
/// Tag of a value that says where on the disk a page is.
const DISK: u8 = 3;
const LENGTH_BITS: u32 = PAGE_SIZE.ilog2(); // 12
/// Bits of a sector's number.
pub(crate) const SECTOR_BITS: u32 = 41 - LENGTH_BITS; // 29

/// What the counts of a [`LeafTally`] count.
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

/// Where a blob lies on the backing disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OnDisk {
    /// The first sector.
    pub(crate) sector: u32,
    /// Bytes of the blob, 1 to 4096.
    pub(crate) len: u16,
}

impl OnDisk {
    fn value(self) -> u64 {
        u64::from(self.sector) << LENGTH_BITS | u64::from(self.len - 1)
    }

    fn from_value(value: u64) -> OnDisk {
        let len = (value & ((1 << LENGTH_BITS) - 1)) as u16 + 1;
        OnDisk { sector: (value >> LENGTH_BITS) as u32, len }
    }
}

/// What a cell holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    Nothing,
    Same(Same),
    /// An object, made by an algorithm.
    Blob {
        algorithm: usize,
        len: usize,
    },
    /// The same on the disk.
    Disk {
        algorithm: usize,
        at: OnDisk,
    },
}

impl Held {
    /// What a cell with this content and these client's bits holds.
    pub(crate) fn of(content: Content, client: u8) -> Held {
        let algorithm = usize::from(client & ALGORITHM);
        match content {
            Content::Empty => Held::Nothing,
            Content::Object { len } => Held::Blob { algorithm, len },
            Content::Value { tag: DISK, value } => {
                Held::Disk { algorithm, at: OnDisk::from_value(value) }
            }
            Content::Value { tag, value } => {
                Same::from_cell(tag, value).map_or(Held::Nothing, Held::Same)
            }
        }
    }

    /// What a locked cell holds.
    pub(crate) fn in_cell(slot: &CellGuard<'_>) -> Held {
        Held::of(slot.content(), slot.client())
    }

    /// What it adds to the sums.
    pub(crate) fn tally(self) -> LeafTally {
        let mut tally = LeafTally::default();
        match self {
            Held::Nothing => {}
            Held::Same(_) => tally.counts[kind::SAME] = 1,
            Held::Disk { .. } => tally.counts[kind::DISK] = 1,
            Held::Blob { len, .. } => {
                tally.counts[kind::BLOB] = 1;
                tally.counts[kind::HUGE] = u64::from(len == PAGE_SIZE);
                tally.bytes = len as u64;
            }
        }
        tally
    }

    /// The algorithm that it takes to decode it; a raw page takes none (I1).
    pub(crate) fn algorithm(self) -> Option<usize> {
        match self {
            Held::Blob { len: PAGE_SIZE, .. } => None,
            Held::Disk { at, .. } if usize::from(at.len) == PAGE_SIZE => None,
            Held::Blob { algorithm, .. } | Held::Disk { algorithm, .. } => Some(algorithm),
            Held::Nothing | Held::Same(_) => None,
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

/// The content stays; nobody writes it back any more.
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_place_on_disk_is_found_again(sector in 0u32..1 << SECTOR_BITS, len in 1u16..=4096) {
            let at = OnDisk { sector, len };
            prop_assert!(at.value() < 1 << 41);
            prop_assert_eq!(OnDisk::from_value(at.value()), at);
        }
    }
}
