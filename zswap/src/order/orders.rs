//! The order of one cache: its words, leaves and rings, and the steps that all changes are made of.
//!
//! ```text
//!   words     | per cell: where its token is, how often it was used |      4 bytes a cell
//!   leaves    | per leaf: generation, pages in memory               |      a cache line a leaf
//!   rings     group 0   small: [token token ...]  main: [token ...]        4 bytes a token
//!             group 1   ...
//!
//!   store --> push --> small ---used twice---> main ---unused---> victim
//!                        |                      ^ `-- used -'
//!                        `---> victim, ghost ---'  stored again soon
//! ```
//!
//! Tokens are numbers of cells in rings, not links through entries. A token is live only while its
//! cell's word says so. So a page leaves the order at once and without the lock, by a change of its
//! word. A leaf with 512 pages leaves by a change of its generation. The tokens that this leaves in
//! a ring are stale. They are skipped and not counted, and are dropped once about half of a ring is
//! stale.
//!
//! [`EvictionOrder::S3Fifo`] is S3-FIFO (Yang et al., SOSP 2023) for a cache that a load empties.
//! The token of a page that was loaded keeps its place. When the page is stored again, it takes
//! that place again and counts as used once more. If the token's turn comes first, the token is
//! dropped and the page is a ghost. A ghost that is stored goes to the main ring, like a page that
//! comes back soon after it was written. Ghosts need no ring: a cell's word says after how many
//! evictions its page went.
//!
//! [`EvictionOrder::Kernel`] is the second chance of the kernel's zswap (`shrink_memcg_cb`). It has
//! one ring, and new pages are referenced. The first visit clears that and rotates the page; the
//! second writes it back.
//!
//! Invariants
//! - O1 a page that is in memory has one token, or is in one hand. It is in a hand from when
//!   `victims` took its token from a ring until `evicted` or `keep` says what became of it. A page
//!   that is not in memory has no live token.
//! - O2 a group counts its pages that are in memory, including those in hands.
//! - O3 a word changes under the lock of its cell, or under the order's lock, or both. A page's
//!   group changes under both.
//!
//! Locks: the order's is a leaf lock, taken with a cell locked or without. It is held for one push,
//! or for a bounded number of tokens. Loads take it only if a leaf has pages of several groups.

use host::sync::atomic::{AtomicU32, Ordering};
use host::{Lock, Rank, Table, prefetch};
use zsmalloc::{CellNumber, LEAF_CELLS, MemoryError};

use super::blocks::{BLOCKS_MAX, Blocks, Ring};
use super::counts::Counts;
use super::leaves::{Leaf, Leaves};
use super::word::{State, Which, Word};
use crate::terms::{EvictionOrder, GroupId};

/// The order of one cache.
pub(crate) struct Orders {
    pub(super) kind: EvictionOrder,
    pub(super) words: Table<AtomicU32>,
    pub(super) leaves: Leaves,
    pub(super) counts: Counts,
    pub(super) rings: Lock<Rings>,
    /// Groups in use.
    pub(super) group_count: AtomicU32,
}

/// What the lock guards.
pub(super) struct Rings {
    pub(super) blocks: Blocks,
    /// The small and main ring of each group, up to the highest number of a group that stored.
    pub(super) of_group: Vec<[Ring; 2]>,
    /// The group whose turn it is to give up pages.
    pub(super) turn: usize,
}

impl Orders {
    /// The order of the pages in the cells of a memory that has `entries_max` cells.
    pub(crate) fn new(kind: EvictionOrder, entries_max: u64) -> Result<Orders, MemoryError> {
        // Leaf 0 is never used.
        let leaves = entries_max.div_ceil(LEAF_CELLS as u64) as usize + 1;
        let rings = Rings { blocks: Blocks::reserve(entries_max)?, of_group: Vec::new(), turn: 0 };
        Ok(Orders {
            kind,
            words: Table::reserve(leaves * LEAF_CELLS)?,
            leaves: Leaves::reserve(leaves)?,
            counts: Counts::reserve()?,
            rings: Lock::new(Rank::Leaf, rings),
            group_count: AtomicU32::new(0),
        })
    }

    /// Pages in memory.
    pub(crate) fn len(&self) -> u64 {
        // relaxed: a total of groups, and groups are never removed.
        let groups = self.group_count.load(Ordering::Relaxed);
        (0..groups).map(|group| self.pages(GroupId(group as u8)).iter().sum::<u64>()).sum()
    }

    /// Pages of a group in memory: in the small ring, and in the main ring.
    pub(crate) fn pages(&self, group: GroupId) -> [u64; 2] {
        self.counts.pages(group)
    }

    /// Starts loading what is known of a cell, whose page is about to be loaded.
    #[inline]
    pub(crate) fn prefetch(&self, cell: CellNumber) {
        prefetch(&self.words[cell.get() as usize]);
    }

    /// Bytes held: table pages and heap.
    pub(crate) fn bytes(&self) -> u64 {
        let rings = self.rings.lock();
        let heap = rings.of_group.capacity() * size_of::<[Ring; 2]>();
        let tables = self.words.held_bytes() + self.words.heap_bytes() + self.leaves.bytes();
        tables + self.counts.bytes() + rings.blocks.bytes() + heap as u64
    }
}

impl Orders {
    /// What is known of a cell.
    pub(super) fn word(&self, cell: CellNumber) -> Word {
        // Acquire pairs with the exchange in `change`, so that a thread that reads a place sees the
        // block's owner.
        Word(self.words[cell.get() as usize].load(Ordering::Acquire))
    }

    /// Changes a cell's word, unless `change` finds nothing to do. Returns what it was.
    pub(super) fn change(
        &self,
        cell: CellNumber,
        change: impl Fn(Word) -> Option<Word>,
    ) -> Option<Word> {
        let next = |word| change(Word(word)).map(|word| word.0);
        let word = &self.words[cell.get() as usize];
        // AcqRel pairs with the load in `word` and the others' exchanges, so that the holder of the
        // cell's lock and the holder of the order's see each other's changes in one order.
        word.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).ok().map(Word)
    }

    /// Changes a cell's word from one value to another. False if it no longer has the first.
    pub(super) fn exchange(&self, cell: CellNumber, word: Word, next: Word) -> bool {
        let entry = &self.words[cell.get() as usize];
        // AcqRel pairs with the exchange in `change` and the load in `word`, so that all see a
        // cell's changes in one order.
        entry.compare_exchange(word.0, next.0, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// What is known of the leaf of a cell.
    pub(super) fn leaf(&self, cell: CellNumber) -> Leaf {
        self.leaves.get(leaf_of(cell))
    }

    /// Whether the word says that its page is in memory, and its leaf has not been detached since.
    pub(super) fn is_live(&self, cell: CellNumber, word: Word) -> bool {
        word.state() == State::Live && word.generation() == self.leaf(cell).generation
    }

    /// The word of a cell without a page, whose token was not dropped.
    pub(super) fn without_page(&self, word: Word) -> Word {
        Word::gone(if is_hand(word) { 0 } else { word.block() })
    }

    /// Adds to the page counts of a cell's leaf and group. If the leaf was detached, that was done
    /// for all its pages already, and nothing is added.
    pub(super) fn count(
        &self,
        cell: CellNumber,
        word: Word,
        group: GroupId,
        change: [i16; 2],
    ) -> bool {
        let counted = self.leaves.change(leaf_of(cell), word.generation(), group, change);
        if counted {
            self.counts.change(group, change);
        }
        counted
    }

    /// The page in a cell leaves its ring, and its word becomes what `next` says. Returns its
    /// group, which `group` finds, if the page was in the order.
    pub(super) fn take_out(
        &self,
        cell: CellNumber,
        next: impl Fn(Word) -> Word,
        group: impl Fn(CellNumber, Word) -> GroupId,
    ) -> Option<GroupId> {
        let word = self.change(cell, |word| Some(next(word)).filter(|&next| next != word))?;
        let live = word.state() == State::Live;
        let group = group(cell, word);
        (live && self.count(cell, word, group, one(word.which(), -1))).then_some(group)
    }

    /// The group of a live page. Its token cannot move, because the order's lock is held.
    pub(super) fn group_in(&self, rings: &Rings, cell: CellNumber, word: Word) -> GroupId {
        self.ring_of(rings, word).unwrap_or(self.leaf(cell).group)
    }

    /// The group of the ring, or hand, that a word names.
    pub(super) fn ring_of(&self, rings: &Rings, word: Word) -> Option<GroupId> {
        let in_ring = || (word.block() != 0).then(|| rings.blocks.owner(word.block()).0);
        self.hand_of(word).or_else(in_ring)
    }

    /// The group of the hand that has a word's page.
    pub(super) fn hand_of(&self, word: Word) -> Option<GroupId> {
        is_hand(word).then(|| GroupId((word.block() - BLOCKS_MAX) as u8))
    }
}

impl Rings {
    /// A ring, and the blocks that it is made of.
    pub(super) fn ring(&mut self, (group, which): (GroupId, Which)) -> (&mut Ring, &mut Blocks) {
        (&mut self.of_group[group.index()][which as usize], &mut self.blocks)
    }
}

/// Whether a word stands for a page in a hand, which has no token.
pub(super) fn is_hand(word: Word) -> bool {
    word.block() >= BLOCKS_MAX
}

/// One page more or less in a ring.
pub(super) fn one(which: Which, pages: i16) -> [i16; 2] {
    match which {
        Which::Small => [pages, 0],
        Which::Main => [0, pages],
    }
}

pub(super) fn leaf_of(cell: CellNumber) -> usize {
    cell.get() as usize / LEAF_CELLS
}

pub(super) fn cells_of(leaf: usize) -> impl Iterator<Item = CellNumber> {
    let first = leaf * LEAF_CELLS;
    (first..first + LEAF_CELLS).map(|cell| CellNumber::new(cell as u32))
}
