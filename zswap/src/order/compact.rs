//! Dropping stale tokens before their turn comes, a block at a time.
//!
//! ```text
//!   before   head [..x.] --> [xx.x] --> [x...] --> [..] tail        x: stale
//!                              ^ sweep
//!   after    head [..x.] --> [....] ------------> [..] tail         tokens keep their order
//! ```
//!
//! When 7 in 16 tokens of a ring are stale, a sweep begins at its old end. It takes a step for each
//! 65 tokens that are appended, so it is done before half of the tokens are stale. A page therefore
//! costs two tokens at most. Under one hold of the lock, a block loses its stale tokens and is
//! filled up from the blocks behind it. So it never has two tokens of one cell (W1).
//!
//! Invariant: live tokens keep their order, and only stale ones are dropped. A token and the word
//! of its cell change in the same hold of the order's lock, so a live page keeps its one token
//! (O1).
//!
//! Lock: the order's, for one block at a time.

use zsmalloc::CellNumber;

use super::blocks::{BLOCK_TOKENS, Fill};
use super::orders::{Orders, Rings};
use super::word::Which;
use crate::terms::GroupId;

/// Tokens appended to a ring between two steps of a sweep.
const TOKENS_BETWEEN_STEPS: usize = BLOCK_TOKENS / 16 + 1; // 65
/// Tokens looked at in one step: two blocks.
const TOKENS_OF_STEP: usize = 2 * BLOCK_TOKENS; // 2048
/// A sweep begins when this fraction of the tokens is stale.
const STALE: (u64, u64) = (7, 16);

impl Orders {
    /// Drops stale tokens where there are many, and returns free blocks. A cache that is about to
    /// rest calls this. It takes and gives up the order's lock for each block.
    pub(crate) fn compact(&self) {
        let groups = self.rings.lock().of_group.len();
        for group in (0..groups).map(|index| GroupId(index as u8)) {
            for which in Which::BOTH {
                let steps = self.rings.lock().of_group[group.index()][which as usize].tokens;
                // Other threads append meanwhile. Their tokens need a sweep of their own.
                for _ in 0..=steps.div_ceil(BLOCK_TOKENS) {
                    if !self.tend_now(&mut self.rings.lock(), group, which) {
                        break;
                    }
                }
            }
        }
        while self.rings.lock().blocks.return_one() {}
    }

    /// As [`Orders::tend_now`], once for every so many tokens.
    pub(super) fn tend(&self, rings: &mut Rings, group: GroupId, which: Which) {
        let (ring, _) = rings.ring((group, which));
        if ring.tokens.is_multiple_of(TOKENS_BETWEEN_STEPS) {
            self.tend_now(rings, group, which);
        }
    }

    /// Compacts one block if a sweep is under way or should begin. Says whether it did.
    pub(super) fn tend_now(&self, rings: &mut Rings, group: GroupId, which: Which) -> bool {
        let pages = self.counts.pages(group)[which as usize];
        let (ring, _) = rings.ring((group, which));
        let stale = (ring.tokens as u64).saturating_sub(pages);
        if ring.sweep == 0
            && ring.head != ring.tail
            && stale * STALE.1 >= ring.tokens as u64 * STALE.0
        {
            ring.sweep = ring.head;
        }
        let block = ring.sweep;
        if block == 0 || block == ring.tail {
            ring.sweep = 0;
            return false;
        }
        let looked_at = self.clean(rings, (group, which), block);
        let full = self.fill_up(rings, (group, which), block, TOKENS_OF_STEP - looked_at);
        let (ring, blocks) = rings.ring((group, which));
        if full {
            ring.sweep = blocks.next(block);
        }
        true
    }

    /// Drops the stale tokens of a block. Returns how many tokens the block had.
    fn clean(&self, rings: &mut Rings, owner: (GroupId, Which), block: u32) -> usize {
        let (ring, blocks) = rings.ring(owner);
        let Fill { start, len } = blocks.fill(block);
        let mut kept = start;
        for index in start..len {
            let token = blocks.token(block, index);
            if self.move_live(token, owner.0, block, block) {
                blocks.set_token(block, kept, token);
                kept += 1;
            }
        }
        blocks.set_fill(block, Fill { start, len: kept });
        ring.tokens -= len - kept;
        len - start
    }

    /// Moves tokens from the blocks behind to a block that was cleaned, and looks at about so many.
    /// True when no more fit into it.
    fn fill_up(
        &self,
        rings: &mut Rings,
        owner: (GroupId, Which),
        block: u32,
        mut look_at: usize,
    ) -> bool {
        let (ring, blocks) = rings.ring(owner);
        let mut fill = blocks.fill(block);
        while look_at > 0 {
            let next = blocks.next(block);
            if next == ring.tail || fill.len == BLOCK_TOKENS {
                return true;
            }
            let mut from = blocks.fill(next);
            while from.start < from.len && fill.len < BLOCK_TOKENS {
                let token = blocks.token(next, from.start);
                from.start += 1;
                look_at = look_at.saturating_sub(1);
                if self.move_live(token, owner.0, next, block) {
                    blocks.set_token(block, fill.len, token);
                    fill.len += 1;
                } else {
                    ring.tokens -= 1;
                }
            }
            blocks.set_fill(next, from);
            blocks.set_fill(block, fill);
            if from.start == from.len {
                ring.unlink_next(blocks, block);
            }
        }
        false
    }

    /// If a token of block `from` is live, makes its word name block `to`.
    fn move_live(&self, token: u32, group: GroupId, from: u32, to: u32) -> bool {
        let cell = CellNumber::new(token);
        loop {
            let word = self.word(cell);
            if word.block() != from {
                return false;
            }
            let live = self.is_live(cell, word);
            let next = if live { word.with_block(to) } else { self.dropped(cell, word, group) };
            if next == word || self.exchange(cell, word, next) {
                return live;
            }
        }
    }
}
