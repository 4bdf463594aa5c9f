//! What cells without an object stand for: words of same-filled pages, blocks of the backing disk,
//! objects that several cells name, and units.
//!
//! ```text
//!   cell   same-filled  -> words        used by so many cells
//!          on disk      -> a block      used by this cell
//!          shared       -> an object    used by so many cells
//!          in a unit    -> a frame      used by the cells of these pages
//! ```
//!
//! Invariant: code that replaces or empties a cell retires what the cell held, once. So the use
//! count of a word or of a shared object is the number of its cells, a block in use is named by one
//! cell, and the live pages of a unit are those that name it.
//!
//! Locks: that of the table of words, a leaf; that of a shared object's cell; that of a unit. A
//! cell is locked, or its leaf is being drained.

use codec::same::Words;

use super::sharing::Sharing;
use super::stored::Stored;
use super::units::Units;
use crate::backing::Backing;

/// The words, blocks, shared objects and units of one device.
#[derive(Default)]
pub(crate) struct Values {
    pub(crate) words: Words,
    pub(crate) backing: Option<Backing>,
    /// With `share_equal_pages`.
    pub(crate) sharing: Option<Sharing>,
    /// With ages, and an algorithm that packs units.
    pub(crate) units: Option<Units>,
}

impl Values {
    /// A slot's content is gone. This gives up what it used besides the slot.
    pub(crate) fn retire(&self, stored: Stored) {
        match stored {
            Stored::Same(same) => self.words.release(same),
            Stored::Disk { at, .. } => {
                self.backing.iter().for_each(|backing| backing.blocks.give(at.block));
            }
            Stored::Shared { number } => {
                self.sharing.iter().for_each(|sharing| sharing.retire(number));
            }
            Stored::Unit { page } => self.units.iter().for_each(|units| units.retire(page)),
            Stored::Nothing | Stored::Unknown | Stored::Blob { .. } => {}
        }
    }
}
