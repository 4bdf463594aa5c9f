//! How a page enters the order: at its old place, or with a new token.
//!
//! ```text
//!   push --> the cell's word names a token of the group --> live again, used once more
//!        `-> it names none, or another group's          --> a new token at the end of a ring
//! ```
//!
//! Invariant: the room for a token is found before anything is changed. So if there is none, the
//! order stays as it was.
//!
//! Locks: the caller has the cell locked. The order's lock is taken for a new token, and always if
//! there are several groups.

use host::sync::atomic::Ordering;
use zsmalloc::CellNumber;

use super::blocks::{Ring, Want};
use super::orders::{Orders, Rings, is_hand, one};
use super::word::{State, Which, Word};
use crate::terms::GroupId;

/// There is no room for another token: the page cannot be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OrderFull;

impl Orders {
    /// A page is being stored in a cell, which the caller has locked. If the page is in the order,
    /// it counts as used once more. Otherwise it enters the order.
    ///
    /// # Errors
    ///
    /// [`OrderFull`] if there is no room for its token. Nothing was changed then.
    pub(crate) fn push(&self, cell: CellNumber, group: GroupId) -> Result<(), OrderFull> {
        self.words.touch(cell.get() as usize..cell.get() as usize + 1);
        if group != GroupId::default() || self.several_groups() {
            return self.push_as(cell, group);
        }
        if self.take_place(cell, group) {
            return Ok(());
        }
        self.append(&mut self.rings.lock(), cell, group)
    }

    /// As [`Orders::push`] if there are several groups: the place may belong to a page of another
    /// group.
    fn push_as(&self, cell: CellNumber, group: GroupId) -> Result<(), OrderFull> {
        let mut rings = self.rings.lock();
        self.open_groups(&mut rings, group)?;
        let word = self.word(cell);
        if self.ring_of(&rings, word) == Some(group) && self.take_place(cell, group) {
            return Ok(());
        }
        if self.is_live(cell, word) {
            // There is no way back once the page has left its group, so room is found first.
            let (which, _) = self.place_of_new(Word::default(), group);
            let (ring, blocks) = rings.ring((group, which));
            ring.room(blocks, Want::New, (group, which)).ok_or(OrderFull)?;
            let gone = |word| self.without_page(word);
            self.take_out(cell, gone, |cell, word| self.group_in(&rings, cell, word));
        }
        self.append(&mut rings, cell, group)
    }

    /// A page that was loaded takes its old place again, and a page that is stored over keeps its
    /// place. False if there is no such place.
    fn take_place(&self, cell: CellNumber, group: GroupId) -> bool {
        let generation = self.leaf(cell).generation;
        let known = self.change(cell, |word| match word.state() {
            _ if word.generation() != generation => None,
            State::Live => Some(word.used()),
            State::Loaded => Some(word.with_state(State::Live)),
            State::Gone | State::Evicted => None,
        });
        if let Some(word) = known.filter(|word| word.state() == State::Loaded) {
            self.count(cell, word, group, one(word.which(), 1));
        }
        known.is_some()
    }

    /// Appends a new token to a ring.
    fn append(&self, rings: &mut Rings, cell: CellNumber, group: GroupId) -> Result<(), OrderFull> {
        self.open_groups(rings, group)?;
        let (word, generation) = (self.word(cell), self.leaf(cell).generation);
        let (which, frequency) = self.place_of_new(word, group);
        let block = rings.place(cell, word, (group, which)).ok_or(OrderFull)?;
        let live = Word::live(block, which, generation, frequency);
        self.change(cell, |_| Some(live));
        self.count(cell, live, group, one(which, 1));
        self.tend(rings, group, which);
        Ok(())
    }

    /// Rings for a group, and for those with lower numbers.
    fn open_groups(&self, rings: &mut Rings, group: GroupId) -> Result<(), OrderFull> {
        while rings.of_group.len() <= group.index() {
            rings.of_group.try_reserve(1).map_err(|_| OrderFull)?;
            self.counts.open(GroupId(rings.of_group.len() as u8));
            rings.of_group.push([Ring::default(); 2]);
            // Release pairs with the Acquire in `several_groups`, so that a thread that finds a
            // cell as another group left it sees that there are several.
            self.group_count.store(rings.of_group.len() as u32, Ordering::Release);
        }
        Ok(())
    }

    fn several_groups(&self) -> bool {
        // Acquire pairs with the Release in `open_groups`, so that a thread that finds a cell as
        // another group left it sees that there are several.
        self.group_count.load(Ordering::Acquire) > 1
    }
}

impl Rings {
    /// Puts a token of `cell` at the end of a ring. Returns its block.
    fn place(&mut self, cell: CellNumber, word: Word, owner: (GroupId, Which)) -> Option<u32> {
        let (ring, blocks) = self.ring(owner);
        let block = ring.room(blocks, Want::New, owner)?;
        self.scrub(cell, word);
        let (ring, blocks) = self.ring(owner);
        ring.append(blocks, cell.get());
        Some(block)
    }

    /// Drops the stale token of a cell from the last block of a ring, if it is there. The cell's
    /// new token goes into this block, and two tokens of a cell in one block could not be told
    /// apart.
    fn scrub(&mut self, cell: CellNumber, word: Word) {
        if word.block() == 0 || is_hand(word) {
            return;
        }
        let (block, owner) = (word.block(), self.blocks.owner(word.block()));
        let (ring, blocks) = self.ring(owner);
        if ring.tail != block {
            return;
        }
        let fill = blocks.fill(block);
        let same = |&index: &usize| blocks.token(block, index) == cell.get();
        if let Some(index) = (fill.start..fill.len).rev().find(same) {
            blocks.set_token(block, index, 0);
        }
    }
}
