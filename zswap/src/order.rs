//! Eviction order: which page leaves memory next.
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
//! Tokens are numbers of cells in rings, not links through entries; a token means something as
//! long as its cell's word says so. So a page leaves the order by a change of its word, at once and
//! without the lock, and a leaf with 512 pages by a change of its generation. What that leaves in a
//! ring is stale: it is skipped, counted by nobody, and dropped when about half of a ring is.
//!
//! [`Order::S3Fifo`] is S3-FIFO (Yang et al., SOSP 2023) for a cache that a load empties: the token
//! of a page that was loaded keeps its place, and the page takes it again, used once more, when it
//! is stored again. If the token's turn comes first it is dropped, and the page is a ghost: it goes
//! to the main queue, as one does that comes back soon after it was written. Ghosts are no queue:
//! a cell's word says after how many evictions its page went.
//!
//! [`Order::Kernel`] is the second chance of the kernel's zswap (`shrink_memcg_cb`): one queue, new
//! pages referenced; the first visit clears that and rotates, the second writes back.
//!
//! Invariants
//! - O1 a page that is in memory has one token, or is in one hand: `take` took it from its ring,
//!   and `evicted` or `keep` is to say what became of it. A page that is not has none.
//! - O2 what a group counts is its pages that are in memory, in hands too.
//! - O3 a word changes under the lock of its cell, or under the order's lock, or both; a page's
//!   group changes under both.
//!
//! Locks: the order's is a leaf lock, taken with a cell locked or without; held for one push, or
//! a bounded number of tokens. Loads take it only where a leaf's pages are of several groups.

use zsmalloc::sync::atomic::{AtomicU32, Ordering};
use zsmalloc::{CellNumber, LEAF_CELLS, LeafId, Lock, MemoryError, Rank, Table, prefetch};

use blocks::{Blocks, Ring, Want};
use groups::Groups;
use leaves::{Leaf, Leaves};
use word::{BLOCK_BITS, State, Which, Word};

mod blocks;
mod check;
mod compact;
mod evict;
mod groups;
mod leaves;
#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;
mod word;

pub(crate) use evict::Victim;

/// Which page leaves memory next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Order {
    /// S3-FIFO: pages that are stored once leave before those that come back.
    #[default]
    S3Fifo,
    /// The kernel's: least recently stored first, with a second chance.
    Kernel,
}

impl Order {
    /// Every order there is.
    pub const ALL: [Order; 2] = [Order::S3Fifo, Order::Kernel];

    /// Its name in options and rows.
    pub fn name(self) -> &'static str {
        match self {
            Order::S3Fifo => "s3-fifo",
            Order::Kernel => "kernel-order",
        }
    }
}

/// Whose pages they are, by number; 0 is nobody's in particular.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) struct GroupNumber(pub(crate) u8);

impl GroupNumber {
    /// Groups there can be.
    pub(crate) const COUNT: usize = 1 << u8::BITS; // 256

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// The block number that stands for its hand.
    fn hand(self) -> u32 {
        blocks::BLOCKS_MAX + u32::from(self.0)
    }
}

const _: () = assert!(BLOCK_BITS <= u32::BITS, "a hand is a number of a block");

/// There is no room for another token: the page cannot be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OrderFull;

/// The order of one cache.
pub(crate) struct Orders {
    kind: Order,
    words: Table<AtomicU32>,
    leaves: Leaves,
    groups: Groups,
    rings: Lock<Rings>,
    /// Groups in use.
    group_count: AtomicU32,
}

/// What the lock guards.
struct Rings {
    blocks: Blocks,
    /// Small and main ring of each group; there are as many as the last one that stored.
    of_group: Vec<[Ring; 2]>,
    /// The group whose turn it is to give pages up.
    turn: usize,
}

impl Orders {
    /// The order of pages in the cells of a memory: as many as its `entries_max`.
    pub(crate) fn new(kind: Order, entries_max: u64) -> Result<Orders, MemoryError> {
        // Leaf 0 is never used.
        let leaves = entries_max.div_ceil(LEAF_CELLS as u64) as usize + 1;
        let rings = Rings { blocks: Blocks::reserve(entries_max)?, of_group: Vec::new(), turn: 0 };
        Ok(Orders {
            kind,
            words: Table::reserve(leaves * LEAF_CELLS)?,
            leaves: Leaves::reserve(leaves)?,
            groups: Groups::reserve()?,
            rings: Lock::new(Rank::Leaf, rings),
            group_count: AtomicU32::new(0),
        })
    }

    /// Pages in memory.
    pub(crate) fn len(&self) -> u64 {
        // relaxed: a total of groups that only become more.
        let groups = self.group_count.load(Ordering::Relaxed);
        (0..groups).map(|group| self.pages(GroupNumber(group as u8)).iter().sum::<u64>()).sum()
    }

    /// Pages of a group in memory: in the small queue, in the main queue.
    pub(crate) fn pages(&self, group: GroupNumber) -> [u64; 2] {
        self.groups.pages(group)
    }

    /// A page is being stored in a cell, which the caller has locked: it enters the order, or it
    /// was in it and counts as used once more.
    ///
    /// # Errors
    ///
    /// [`OrderFull`] when there is no room for its token; nothing changed then.
    pub(crate) fn push(&self, cell: CellNumber, group: GroupNumber) -> Result<(), OrderFull> {
        self.words.touch(cell.get() as usize..cell.get() as usize + 1);
        if group != GroupNumber::default() || self.several_groups() {
            return self.push_as(cell, group);
        }
        if self.take_place(cell, group) {
            return Ok(());
        }
        self.append(&mut self.rings.lock(), cell, group)
    }

    /// Starts loading what is known of a cell, whose page is about to be loaded.
    #[inline]
    pub(crate) fn prefetch(&self, cell: CellNumber) {
        prefetch(&self.words[cell.get() as usize]);
    }

    /// The page in a cell, which the caller has locked, was loaded and leaves memory. Gives its
    /// group; `None` if it was not in the order.
    pub(crate) fn load(&self, cell: CellNumber) -> Option<GroupNumber> {
        self.leave(cell, |word| match self.kind {
            _ if !self.is_live(cell, word) => word,
            // The token stays where it is, for when the page is stored again.
            Order::S3Fifo => match self.hand_of(word) {
                None => word.used().with_state(State::Loaded),
                Some(group) => Word::evicted(self.groups.evictions(group), 0),
            },
            Order::Kernel => self.without_page(word),
        })
    }

    /// The page in a cell, which the caller has locked, is invalid; or whatever was known of the
    /// cell is. Gives the group of a page that was in the order.
    pub(crate) fn remove(&self, cell: CellNumber) -> Option<GroupNumber> {
        self.leave(cell, |word| self.without_page(word))
    }

    /// The page in a cell, which the caller has locked, was read and stays.
    pub(crate) fn touch(&self, cell: CellNumber) {
        self.change(cell, |word| (word.state() == State::Live).then(|| word.used()));
    }

    /// A leaf was taken out of its table: none of its pages is in the order any more. Before it is
    /// given back, [`Orders::forget`] its cells, and [`Orders::remove`] those that still held
    /// something: whoever was storing when the leaf was taken out.
    pub(crate) fn detach(&self, leaf: LeafId) {
        let leaf = leaf.get() as usize;
        let one_group = |leaf: Leaf| !leaf.mixed;
        let Some(had) = self.leaves.detach(leaf, one_group) else {
            return self.detach_mixed(leaf);
        };
        self.groups.change(had.group, had.pages.map(|pages| pages.wrapping_neg()));
    }

    /// What is known of the cells of a detached leaf means nothing for whoever gets it next.
    pub(crate) fn forget(&self, leaf: LeafId) {
        for cell in cells_of(leaf.get() as usize) {
            self.change(cell, |word| match self.is_live(cell, word) {
                true => None,
                false => Some(self.without_page(word)),
            });
        }
    }

    /// Bytes held: table pages and heap.
    pub(crate) fn bytes(&self) -> u64 {
        let rings = self.rings.lock();
        let heap = rings.of_group.capacity() * size_of::<[Ring; 2]>();
        let tables = self.words.held_bytes() + self.words.heap_bytes() + self.leaves.bytes();
        tables + self.groups.bytes() + rings.blocks.bytes() + heap as u64
    }
}

impl Orders {
    fn word(&self, cell: CellNumber) -> Word {
        // Acquire pairs with the exchange in `change`: who reads a place sees the block's owner.
        Word(self.words[cell.get() as usize].load(Ordering::Acquire))
    }

    /// Changes a cell's word, unless `change` finds nothing to do; gives what it was.
    fn change(&self, cell: CellNumber, change: impl Fn(Word) -> Option<Word>) -> Option<Word> {
        let next = |word| change(Word(word)).map(|word| word.0);
        let word = &self.words[cell.get() as usize];
        // AcqRel pairs with the load in `word` and the others' exchanges: the holder of the cell's
        // lock and the holder of the order's see each other's changes in one order.
        word.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).ok().map(Word)
    }

    fn leaf(&self, cell: CellNumber) -> Leaf {
        self.leaves.get(leaf_of(cell))
    }

    /// Whether the word says that its page is in memory, and its leaf was not detached since.
    fn is_live(&self, cell: CellNumber, word: Word) -> bool {
        word.state() == State::Live && word.generation() == self.leaf(cell).generation
    }

    /// Rings for a group, and for those with lower numbers.
    fn open_groups(&self, rings: &mut Rings, group: GroupNumber) -> Result<(), OrderFull> {
        while rings.of_group.len() <= group.index() {
            rings.of_group.try_reserve(1).map_err(|_| OrderFull)?;
            self.groups.open(GroupNumber(rings.of_group.len() as u8));
            rings.of_group.push([Ring::default(); 2]);
            // Release pairs with the Acquire in `several_groups`: who takes a place that a page of
            // group 0 had sees that others may have given it up meanwhile.
            self.group_count.store(rings.of_group.len() as u32, Ordering::Release);
        }
        Ok(())
    }

    fn several_groups(&self) -> bool {
        // Acquire pairs with the Release in `open_groups`.
        self.group_count.load(Ordering::Acquire) > 1
    }

    /// The word of a cell without a page, whose token nobody has dropped.
    fn without_page(&self, word: Word) -> Word {
        Word::gone(if is_hand(word) { 0 } else { word.block() })
    }

    /// Adds to the pages that a cell's leaf and group count, unless the leaf was detached: then it
    /// was done for all its pages.
    fn count(&self, cell: CellNumber, word: Word, group: GroupNumber, change: [i16; 2]) -> bool {
        let counted = self.leaves.change(leaf_of(cell), word.generation(), group, change);
        if counted {
            self.groups.change(group, change);
        }
        counted
    }

    /// A live page leaves its queue, and its word becomes what `next` says.
    fn leave(&self, cell: CellNumber, next: impl Fn(Word) -> Word) -> Option<GroupNumber> {
        let leaf = self.leaf(cell);
        if leaf.mixed {
            let rings = self.rings.lock();
            return self.take_out(cell, next, |cell, word| self.group_in(&rings, cell, word));
        }
        // While a page of it is counted, a leaf that is not mixed keeps its group.
        self.take_out(cell, next, |_, _| leaf.group)
    }

    fn take_out(
        &self,
        cell: CellNumber,
        next: impl Fn(Word) -> Word,
        group: impl Fn(CellNumber, Word) -> GroupNumber,
    ) -> Option<GroupNumber> {
        let word = self.change(cell, |word| Some(next(word)).filter(|&next| next != word))?;
        let live = word.state() == State::Live;
        let group = group(cell, word);
        (live && self.count(cell, word, group, one(word.which(), -1))).then_some(group)
    }

    /// The group of a live page, whose token cannot move as the order's lock is held.
    fn group_in(&self, rings: &Rings, cell: CellNumber, word: Word) -> GroupNumber {
        self.ring_of(rings, word).unwrap_or(self.leaf(cell).group)
    }

    /// The group of the ring, or hand, that a word names.
    fn ring_of(&self, rings: &Rings, word: Word) -> Option<GroupNumber> {
        let in_ring = || (word.block() != 0).then(|| rings.blocks.owner(word.block()).0);
        self.hand_of(word).or_else(in_ring)
    }

    /// The group of the hand that has a word's page.
    fn hand_of(&self, word: Word) -> Option<GroupNumber> {
        is_hand(word).then(|| GroupNumber((word.block() - blocks::BLOCKS_MAX) as u8))
    }

    /// [`Orders::push`] where there are several groups: the page's place may be another one's.
    fn push_as(&self, cell: CellNumber, group: GroupNumber) -> Result<(), OrderFull> {
        let mut rings = self.rings.lock();
        self.open_groups(&mut rings, group)?;
        let word = self.word(cell);
        if self.ring_of(&rings, word) == Some(group) && self.take_place(cell, group) {
            return Ok(());
        }
        if self.is_live(cell, word) {
            // Once the page is out of its group there is no way back: the room comes first.
            let (which, _) = self.place_of_new(Word::default(), group);
            let (ring, blocks) = rings.ring((group, which));
            ring.room(blocks, Want::New, (group, which)).ok_or(OrderFull)?;
            let gone = |word| self.without_page(word);
            self.take_out(cell, gone, |cell, word| self.group_in(&rings, cell, word));
        }
        self.append(&mut rings, cell, group)
    }

    /// A page that was loaded takes its old place again, and one that is stored over keeps it;
    /// false if it has none.
    fn take_place(&self, cell: CellNumber, group: GroupNumber) -> bool {
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

    /// A new token at the end of a ring.
    fn append(
        &self,
        rings: &mut Rings,
        cell: CellNumber,
        group: GroupNumber,
    ) -> Result<(), OrderFull> {
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

    /// Where a page goes that has no place, and how often it counts as used.
    fn place_of_new(&self, word: Word, group: GroupNumber) -> (Which, u32) {
        if self.kind == Order::Kernel {
            return (Which::Main, 1);
        }
        match word.stamp() {
            Some(stamp) if self.is_recent(stamp, group) => (Which::Main, word.frequency()),
            _ => (Which::Small, 0),
        }
    }

    /// Detaches a leaf with pages of several groups: one page after the other.
    fn detach_mixed(&self, leaf: usize) {
        let rings = self.rings.lock();
        loop {
            for cell in cells_of(leaf) {
                let gone = |word| self.without_page(word);
                self.take_out(cell, gone, |cell, word| self.group_in(&rings, cell, word));
            }
            // Not yet empty: somebody changed a word and is about to count that.
            if self.leaves.detach(leaf, Leaf::is_empty).is_some() {
                return;
            }
            zsmalloc::sync::thread::yield_now();
        }
    }
}

impl Rings {
    fn ring(&mut self, (group, which): (GroupNumber, Which)) -> (&mut Ring, &mut Blocks) {
        (&mut self.of_group[group.index()][which as usize], &mut self.blocks)
    }

    /// A token of `cell` at the end of a ring; gives its block.
    fn place(&mut self, cell: CellNumber, word: Word, owner: (GroupNumber, Which)) -> Option<u32> {
        let (ring, blocks) = self.ring(owner);
        let block = ring.room(blocks, Want::New, owner)?;
        self.scrub(cell, word);
        let (ring, blocks) = self.ring(owner);
        ring.append(blocks, cell.get());
        Some(block)
    }

    /// Drops a stale token that is in the last block of a ring: two tokens of a cell in a block
    /// could not be told apart, and others go into this one.
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

/// Whether a word stands for a page in a hand, which has no token.
fn is_hand(word: Word) -> bool {
    word.block() >= blocks::BLOCKS_MAX
}

/// One page more or less in a queue.
fn one(which: Which, pages: i16) -> [i16; 2] {
    match which {
        Which::Small => [pages, 0],
        Which::Main => [0, pages],
    }
}

fn leaf_of(cell: CellNumber) -> usize {
    cell.get() as usize / LEAF_CELLS
}

fn cells_of(leaf: usize) -> impl Iterator<Item = CellNumber> {
    let first = leaf * LEAF_CELLS;
    (first..first + LEAF_CELLS).map(|cell| CellNumber::new(cell as u32))
}
