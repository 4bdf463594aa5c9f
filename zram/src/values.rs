//! What cells without an object stand for: words that pages repeat, and blocks of the backing disk.
//!
//! ```text
//!   cell   tag HALF, INTERNED  -> words        used by so many cells
//!          tag WRITTEN_BACK    -> a block      used by this cell
//! ```
//!
//! Invariant: whoever replaces or empties a cell retires what it held, once; so a use count is the
//! count of cells, and a block in use is named by one.
//!
//! Locks: the words' table's, as a leaf; a cell is locked, or its leaf is being drained.

use codec::same::{Same, Words};
use zsmalloc::Content;

use crate::backing::Backing;
use crate::written_back::WrittenBack;

/// The words and blocks of one device.
#[derive(Default)]
pub(crate) struct Values {
    pub(crate) words: Words,
    pub(crate) backing: Option<Backing>,
}

impl Values {
    /// A slot's content is gone: what it used beside the slot goes too.
    pub(crate) fn retire(&self, content: Content) {
        let Content::Value { tag, value } = content else { return };
        if let Some(same) = Same::from_cell(tag, value) {
            self.words.release(same);
        } else if let (Some(backing), Some(place)) = (&self.backing, WrittenBack::of(content)) {
            backing.blocks.give(place.block);
        }
    }
}
