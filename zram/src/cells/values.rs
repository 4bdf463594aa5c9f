//! What cells without an object stand for: words of same-filled pages, blocks of the backing disk,
//! and objects that several cells name.
//!
//! ```text
//!   cell   same-filled  -> words        used by so many cells
//!          on disk      -> a block      used by this cell
//!          shared       -> an object    used by so many cells
//! ```
//!
//! Invariant: code that replaces or empties a cell retires what the cell held, once. So the use
//! count of a word or of a shared object is the number of its cells, and a block in use is named by
//! one cell.
//!
//! Locks: that of the table of words, a leaf; that of a shared object's cell. A cell is locked, or
//! its leaf is being drained.

use codec::same::Words;

use super::sharing::Sharing;
use super::stored::Stored;
use crate::backing::Backing;

/// The words, blocks and shared objects of one device.
#[derive(Default)]
pub(crate) struct Values {
    pub(crate) words: Words,
    pub(crate) backing: Option<Backing>,
    /// With `share_equal_pages`.
    pub(crate) sharing: Option<Sharing>,
}

impl Values {
    /// A slot's content is gone. This gives up what it used besides the slot.
    pub(crate) fn retire(&self, stored: Stored) {
        match (stored, &self.backing, &self.sharing) {
            (Stored::Same(same), ..) => self.words.release(same),
            (Stored::Disk { at, .. }, Some(backing), _) => backing.blocks.give(at.block),
            (Stored::Shared { number }, _, Some(sharing)) => sharing.retire(number),
            _ => {}
        }
    }
}
