//! What the order knows of a leaf: how many of its pages are in memory, and the leaf's generation.
//!
//! ```text
//!   63..48         47..32         31..16 | 15..8 | 7     | 6..5 | 4..0
//!   pages, small   pages, main    -      | group | mixed | -    | generation
//! ```
//!
//! Detaching a leaf is one exchange of its word, which changes the generation. Every word of its
//! cells, and therefore every token, then counts as gone, and its pages leave the counts of its
//! group. If a thread was about to enter a change, it finds another generation, and the change is
//! dropped.
//!
//! A leaf's word has a cache line of its own. Otherwise threads that store and load in different
//! leaves would pass one line to and fro with every page.
//!
//! Invariants
//! - L1 what was added to a group's counts is the sum of what was added to its leaves' words. Each
//!   change is entered in both or in neither.
//! - L2 a leaf whose pages are all of one group is not mixed, and has that group's number.
//! - L3 at rest the counts are those of the leaf's live words. While a page changes rings, one
//!   count may be a page short, and even below 0, and the other one a page ahead.
//!
//! Lock: none; each change is one exchange.

use host::Table;
use host::sync::atomic::{AtomicU64, Ordering};
use zsmalloc::MemoryError;

use super::word::{GENERATIONS, Which};
use crate::terms::GroupId;

const MIXED: u64 = 1 << 7;
const GROUP_SHIFT: u32 = 8;
const MAIN_SHIFT: u32 = 32;
const SMALL_SHIFT: u32 = 48;
const COUNT_MASK: u64 = 0xFFFF;
const _: () = assert!(GENERATIONS as u64 <= MIXED, "the generation lies below the flag");
const _: () = assert!(GroupId::COUNT <= 1 << 8, "a group's number has eight bits");

/// A leaf's word, unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Leaf {
    pub(super) generation: u32,
    pub(super) group: GroupId,
    /// Whether the leaf has pages of several groups.
    pub(super) mixed: bool,
    /// Pages in the small and in the main ring.
    pub(super) pages: [i16; 2],
}

impl Leaf {
    fn unpack(word: u64) -> Leaf {
        let count = |shift: u32| (word >> shift & COUNT_MASK) as u16 as i16;
        Leaf {
            generation: (word % u64::from(GENERATIONS)) as u32,
            group: GroupId((word >> GROUP_SHIFT) as u8),
            mixed: word & MIXED != 0,
            pages: [count(SMALL_SHIFT), count(MAIN_SHIFT)],
        }
    }

    fn pack(self) -> u64 {
        let count = |which: Which| u64::from(self.pages[which as usize] as u16);
        let counts = count(Which::Small) << SMALL_SHIFT | count(Which::Main) << MAIN_SHIFT;
        let group = u64::from(self.group.0) << GROUP_SHIFT;
        counts | group | u64::from(self.generation) | if self.mixed { MIXED } else { 0 }
    }

    pub(super) fn is_empty(self) -> bool {
        self.pages == [0, 0]
    }
}

/// Words of a cache line, of which the first is used.
const LINE_WORDS: usize = if cfg!(loom) { 1 } else { 8 }; // 64 bytes

/// The words of all leaves.
pub(super) struct Leaves {
    lines: Table<[AtomicU64; LINE_WORDS]>,
}

impl Leaves {
    pub(super) fn reserve(leaves: usize) -> Result<Leaves, MemoryError> {
        Ok(Leaves { lines: Table::reserve(leaves)? })
    }

    fn word(&self, leaf: usize) -> &AtomicU64 {
        &self.lines[leaf][0]
    }

    pub(super) fn get(&self, leaf: usize) -> Leaf {
        // Acquire pairs with the Release in `update`, so that a thread that sees a new generation
        // sees what was done before the leaf got it.
        Leaf::unpack(self.word(leaf).load(Ordering::Acquire))
    }

    /// Adds to the pages of a leaf, if it is still of `generation`. Says whether it was. The thread
    /// that adds the first page assigns the leaf to its group.
    pub(super) fn change(
        &self,
        leaf: usize,
        generation: u32,
        group: GroupId,
        change: [i16; 2],
    ) -> bool {
        self.lines.touch(leaf..leaf + 1);
        self.update(leaf, |mut now| {
            if now.generation != generation {
                return None;
            }
            if now.is_empty() {
                (now.group, now.mixed) = (group, false);
            }
            now.mixed |= now.group != group;
            let pages = now.pages;
            now.pages = [0, 1].map(|which| pages[which].wrapping_add(change[which]));
            Some(now)
        })
        .is_some()
    }

    /// Begins the next generation, if `allows` permits it. Returns what the leaf had.
    pub(super) fn detach(&self, leaf: usize, allows: impl Fn(Leaf) -> bool) -> Option<Leaf> {
        self.lines.touch(leaf..leaf + 1);
        self.update(leaf, |now| {
            let generation = (now.generation + 1) % GENERATIONS;
            allows(now).then_some(Leaf { generation, ..Leaf::default() })
        })
    }

    /// Changes a leaf's word. Returns what it was.
    fn update(&self, leaf: usize, change: impl Fn(Leaf) -> Option<Leaf>) -> Option<Leaf> {
        let next = |word| Some(change(Leaf::unpack(word))?.pack());
        // AcqRel pairs with the others' exchanges and the load in `get`, so that a thread that
        // finds a generation or a group finds the words of the cells as they were written before.
        let updated = self.word(leaf).fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
        updated.ok().map(Leaf::unpack)
    }

    /// Leaves that may have pages, with their words.
    pub(super) fn held(&self) -> impl Iterator<Item = (usize, Leaf)> {
        self.lines.held().map(|(index, _)| (index, self.get(index)))
    }

    pub(super) fn bytes(&self) -> u64 {
        self.lines.held_bytes() + self.lines.heap_bytes()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_word_comes_back_at_its_fields_extremes() {
        for pages in [[0, 0], [512, 0], [-1, 1], [0, 512], [i16::MIN, i16::MAX]] {
            for (generation, group, mixed) in [(0, 0, false), (GENERATIONS - 1, 255, true)] {
                let leaf = Leaf { generation, group: GroupId(group), mixed, pages };
                assert_eq!(Leaf::unpack(leaf.pack()), leaf);
            }
        }
    }

    #[test]
    fn a_change_of_another_generation_is_refused() {
        let leaves = Leaves::reserve(2).expect("small");
        assert!(leaves.change(1, 0, GroupId(3), [1, 0]));
        assert_eq!(leaves.detach(1, |_| true).map(|leaf| leaf.pages), Some([1, 0]));
        assert!(!leaves.change(1, 0, GroupId(3), [-1, 0]), "the change of a page that is gone");
        assert!(leaves.get(1).is_empty() && leaves.get(1).generation == 1);
    }

    #[test]
    fn the_first_page_decides_the_group_and_a_second_group_mixes() {
        let leaves = Leaves::reserve(1).expect("small");
        assert!(leaves.change(0, 0, GroupId(1), [1, 0]));
        assert!(!leaves.get(0).mixed);
        assert!(leaves.change(0, 0, GroupId(2), [0, 1]));
        assert!(leaves.get(0).mixed && leaves.get(0).group == GroupId(1));
        assert!(leaves.change(0, 0, GroupId(1), [-1, 0]));
        assert!(leaves.change(0, 0, GroupId(2), [0, -1]));
        assert!(leaves.change(0, 0, GroupId(2), [1, 0]));
        assert!(!leaves.get(0).mixed && leaves.get(0).group == GroupId(2), "empty between");
    }
}
