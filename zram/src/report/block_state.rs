//! The state of each page: the kernel's `block_state`.
//!
//! ```text
//!   page   last access    s same-filled  w written back  h huge
//!    300   75.033841      . w . i . .    i idle  r recompressed  n incompressible
//! ```
//!
//! Invariant: a line is read under the lock of its cell, so what it says was true at one moment.
//! Lines of two pages are of two moments. Nothing is changed.
//!
//! Lock: one cell at a time. None is held between two pages.

use std::fmt;
use std::ops::Range;

use host::PAGE_SIZE;

use crate::backing::Place;
use crate::cells::Stored;
use crate::cells::flags::{IDLE, INCOMPRESSIBLE, priority};
use crate::device::Zram;

/// A page that is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockState {
    /// Its number.
    pub page: u64,
    /// When it was last accessed, in seconds since the system started. 0 if that is not noted.
    pub accessed_seconds: u32,
    /// It repeats one word.
    pub same: bool,
    /// It is on the backing disk.
    pub written_back: bool,
    /// It is stored uncompressed, or was before it was written back.
    pub huge: bool,
    /// It is marked idle.
    pub idle: bool,
    /// It was compressed with another algorithm than the first.
    pub recompressed: bool,
    /// No algorithm makes it smaller.
    pub incompressible: bool,
}

/// A line of the kernel's file.
impl fmt::Display for BlockState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flag = |set: bool, letter: char| if set { letter } else { '.' };
        writeln!(
            f,
            "{:>12} {:>12}.{:06} {}{}{}{}{}{}",
            self.page,
            self.accessed_seconds,
            0,
            flag(self.same, 's'),
            flag(self.written_back, 'w'),
            flag(self.huge, 'h'),
            flag(self.idle, 'i'),
            flag(self.recompressed, 'r'),
            flag(self.incompressible, 'n'),
        )
    }
}

impl Zram {
    /// The state of each page of `pages` that is stored.
    pub fn block_states(&self, pages: Range<u64>) -> impl Iterator<Item = BlockState> + '_ {
        let mut page = pages.start;
        let end = pages.end.min(self.pages());
        std::iter::from_fn(move || {
            while page < end {
                let here = page;
                let absent = self.slots.absent(page);
                page += absent.max(1);
                if absent == 0
                    && let Some(state) = self.block_state(here)
                {
                    return Some(state);
                }
            }
            None
        })
    }

    fn block_state(&self, page: u64) -> Option<BlockState> {
        let slot = self.slots.lock(page)?;
        let (stored, bits) = (Stored::in_cell(&slot), slot.client());
        if stored == Stored::Nothing {
            return None;
        }
        let back = match stored {
            Stored::Disk { at, .. } => Some(at),
            _ => None,
        };
        Some(BlockState {
            page,
            accessed_seconds: self.ages().map_or(0, |ages| ages.of(page)),
            same: matches!(stored, Stored::Same(_)),
            written_back: back.is_some(),
            huge: matches!(stored, Stored::Blob { len: PAGE_SIZE, .. })
                || back.is_some_and(Place::is_huge),
            idle: bits & IDLE != 0,
            recompressed: priority(bits) > 0,
            incompressible: bits & INCOMPRESSIBLE != 0,
        })
    }
}
