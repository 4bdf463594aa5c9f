//! What cells without an object stand for: words of same-filled pages, and blocks of the backing
//! disk.
//!
//! ```text
//!   cell   same-filled  -> words        used by so many cells
//!          on disk      -> a block      used by this cell
//! ```
//!
//! Invariant: code that replaces or empties a cell retires what the cell held, once. So the use
//! count of a word is the number of its cells, and a block in use is named by one cell.
//!
//! Locks: that of the table of words, a leaf. A cell is locked, or its leaf is being drained.

use codec::same::Words;

use super::stored::Stored;
use crate::backing::Backing;

/// The words and blocks of one device.
#[derive(Default)]
pub(crate) struct Values {
    pub(crate) words: Words,
    pub(crate) backing: Option<Backing>,
}

impl Values {
    /// A slot's content is gone. This gives up what it used besides the slot.
    pub(crate) fn retire(&self, stored: Stored) {
        match (stored, &self.backing) {
            (Stored::Same(same), _) => self.words.release(same),
            (Stored::Disk { at, .. }, Some(backing)) => backing.blocks.give(at.block),
            _ => {}
        }
    }
}
