//! Recounting the order while no thread changes it.
//!
//! ```text
//!   tokens --> live words --> pages of leaves --> pages of groups        each compared with what
//!      `--> blocks of rings          `--> the caller's pages             the count kept there
//! ```
//!
//! The caller says which pages are in memory, and the group of each. Everything else is counted
//! from the tokens up. The invariants cited here are those of the order (O), of words (W), leaves
//! (L) and blocks (B).
//!
//! Invariant: a recount only reads. Words also change under the locks of cells (O3), so its caller
//! makes sure that no thread stores or loads.
//!
//! Lock: the order's, from the beginning to the end.

use std::collections::HashMap;

use zsmalloc::CellNumber;

use super::leaves::Leaf;
use super::orders::{Orders, Rings, cells_of, leaf_of};
use super::word::Which;
use crate::terms::GroupId;

/// The result of a recount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Recount {
    /// Pages with one live token.
    pub(crate) pages: u64,
    /// Pages in hands.
    pub(crate) in_hand: u64,
    /// Tokens of pages that are not in memory.
    pub(crate) stale: u64,
}

/// Where a live page's token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    group: GroupId,
    which: Which,
}

impl Orders {
    /// Recounts everything, given the pages that are in memory.
    ///
    /// # Errors
    ///
    /// The first contradiction found.
    pub(crate) fn check(
        &self,
        in_memory: impl Iterator<Item = (CellNumber, GroupId)>,
    ) -> Result<Recount, String> {
        let rings = self.rings.lock();
        let (mut places, stale) = self.tokens_by_cell(&rings)?;
        let tokens = places.len() as u64;
        let in_hand = self.add_hands(&mut places);
        let counted = self.check_counts(&rings)?;
        if counted != places.len() as u64 {
            return Err(format!("O1: {counted} live words, {} places", places.len()));
        }
        for (cell, group) in in_memory {
            match places.remove(&cell.get()) {
                Some(place) if place.group == group => {}
                other => return Err(format!("O1: {cell:?} of {group:?} in memory, {other:?}")),
            }
        }
        if let Some((cell, place)) = places.iter().next() {
            return Err(format!("O1: cell {cell} is not in memory, yet at {place:?}"));
        }
        check_blocks(&rings)?;
        Ok(Recount { pages: tokens, in_hand, stale })
    }

    /// The cells with a live token, and how many tokens are stale.
    fn tokens_by_cell(&self, rings: &Rings) -> Result<(HashMap<u32, Place>, u64), String> {
        let (mut places, mut stale) = (HashMap::new(), 0);
        for (place, block) in rings_blocks(rings) {
            let fill = rings.blocks.fill(block);
            if rings.blocks.owner(block) != (place.group, place.which) {
                return Err(format!("B1: block {block} is in the ring of {place:?}"));
            }
            for token in (fill.start..fill.len).map(|index| rings.blocks.token(block, index)) {
                let cell = CellNumber::new(token);
                let word = self.word(cell);
                if word.block() != block || !self.is_live(cell, word) {
                    stale += 1;
                } else if places.insert(token, place).is_some() || word.which() != place.which {
                    return Err(format!("W1: {cell:?} at {place:?}, {word:?}"));
                }
            }
        }
        Ok((places, stale))
    }

    /// Adds the pages that are in a hand.
    fn add_hands(&self, places: &mut HashMap<u32, Place>) -> u64 {
        let mut in_hand = 0;
        for (cell, _) in self.words.held() {
            let cell = CellNumber::new(cell as u32);
            let word = self.word(cell);
            if let Some(group) = self.hand_of(word).filter(|_| self.is_live(cell, word)) {
                places.insert(cell.get(), Place { group, which: word.which() });
                in_hand += 1;
            }
        }
        in_hand
    }

    /// Compares leaves with words, and groups with leaves. Returns the number of live words.
    fn check_counts(&self, rings: &Rings) -> Result<u64, String> {
        let mut groups = vec![[0; 2]; rings.of_group.len()];
        for (index, leaf) in self.leaves.held() {
            let counted = self.count_leaf(rings, index, &mut groups)?;
            if counted.pages != leaf.pages || counted.generation != leaf.generation {
                return Err(format!("L3: leaf {index} says {leaf:?}, its words {counted:?}"));
            }
        }
        for (index, counted) in groups.iter().enumerate() {
            let said = self.pages(GroupId(index as u8));
            if said != *counted {
                return Err(format!("O2: group {index} says {said:?}, the words {counted:?}"));
            }
        }
        Ok(groups.into_iter().flatten().sum())
    }

    /// Counts the live words of a leaf, and adds them to their groups'.
    fn count_leaf(
        &self,
        rings: &Rings,
        index: usize,
        groups: &mut [[u64; 2]],
    ) -> Result<Leaf, String> {
        let said = self.leaves.get(index);
        let mut counted = Leaf { pages: [0; 2], ..said };
        for cell in cells_of(index).filter(|&cell| self.is_live(cell, self.word(cell))) {
            let word = self.word(cell);
            let group = self.group_in(rings, cell, word);
            if !said.mixed && group != said.group {
                return Err(format!("L2: {cell:?} of {group:?} in leaf {index}, {said:?}"));
            }
            counted.pages[word.which() as usize] += 1;
            groups[group.index()][word.which() as usize] += 1;
        }
        debug_assert!(cells_of(index).all(|cell| leaf_of(cell) == index), "512 cells to a leaf");
        Ok(counted)
    }
}

/// The blocks of all rings.
fn rings_blocks(rings: &Rings) -> impl Iterator<Item = (Place, u32)> {
    let groups = rings.of_group.iter().enumerate();
    let all = groups.flat_map(|(group, both)| {
        Which::BOTH.map(|which| (GroupId(group as u8), which, both[which as usize]))
    });
    all.flat_map(|(group, which, ring)| {
        ring.blocks(&rings.blocks).map(move |block| (Place { group, which }, block))
    })
}

/// Checks that every block ever used is in a ring or free, and that a ring's tokens are those of
/// its blocks.
fn check_blocks(rings: &Rings) -> Result<(), String> {
    let in_rings = rings_blocks(rings).count() as u32;
    let (held, returned) = rings.blocks.free_blocks();
    let used = rings.blocks.used_blocks();
    if in_rings + held + returned != used {
        return Err(format!("B1: {used} used, {in_rings} in rings, {held} + {returned} free"));
    }
    for (group, both) in rings.of_group.iter().enumerate() {
        for ring in both {
            let of_block = |block| rings.blocks.fill(block).len - rings.blocks.fill(block).start;
            let counted: usize = ring.blocks(&rings.blocks).map(of_block).sum();
            if counted != ring.tokens {
                return Err(format!("B2: group {group} has {counted} tokens, says {ring:?}"));
            }
        }
    }
    Ok(())
}

#[cfg(all(test, not(loom)))]
mod damage;
