//! Blocks of tokens, and rings made of them.
//!
//! ```text
//!   ring    head --> block 7 --> block 3 --> block 12 <-- tail
//!   block          |  start..len: tokens  |            1024 tokens of 4 bytes: a page
//!                    popped ^      ^ appended
//! ```
//!
//! A token is the number of a cell; 0 is none. The cell's word says whether the token still means
//! anything. Rings are lists through the blocks' heads, so none of their operations allocates. A
//! block that was emptied goes to a free list. It is returned to the system on request.
//!
//! Invariants
//! - B1 a block is in one ring, or in one of the free lists, or was never used.
//! - B2 the tokens that a ring counts are those between start and len of its blocks.
//! - B3 only the last block of a ring has room. Only the first has been popped from.
//! - B4 the last [`RESERVED`] blocks are for tokens that move, so a popped token can always be
//!   appended.
//!
//! Lock: the order's, for everything here.

use host::Table;
use host::sync::atomic::{AtomicU32, Ordering};
use zsmalloc::MemoryError;

use super::word::{BLOCK_BITS, Which};
use crate::terms::GroupId;

/// Tokens of a block.
pub(super) const BLOCK_TOKENS: usize = match (cfg!(loom), cfg!(test)) {
    (true, _) => 4,
    (_, true) => 16, // what happens between blocks happens in short tests
    _ => 1024,
};
/// Blocks kept for tokens that move: one for each end of a group's two rings.
const RESERVED: u32 = if cfg!(loom) { 8 } else { 4 * GroupId::COUNT as u32 }; // 1024
/// The most blocks that there can be. The numbers above stand for hands.
pub(super) const BLOCKS_MAX: u32 = (1 << BLOCK_BITS) - GroupId::COUNT as u32; // 4194048
const _: () = assert!(BLOCK_BITS <= u32::BITS, "a hand is a number of a block");
/// Free blocks that are kept touched.
const FREE_BLOCKS_HELD: u32 = 64; // 256 KiB
const _: () = assert!(
    cfg!(any(loom, test)) || BLOCK_TOKENS * 4 == host::PAGE_SIZE,
    "a block is a page, and goes back to the system alone"
);
const _: () = assert!(BLOCK_TOKENS < 1 << FILL_BITS, "start and len share a word");

const FILL_BITS: u32 = 15;
/// Indices of the words of a block's head.
const OWNER: usize = 0;
const NEXT: usize = 1;
const FILL: usize = 2;
const HEAD_WORDS: usize = 4; // 16 bytes

/// The part of a block whose tokens are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Fill {
    pub(super) start: usize,
    pub(super) len: usize,
}

/// The blocks, and which of them are free.
pub(super) struct Blocks {
    tokens: Table<[AtomicU32; BLOCK_TOKENS]>,
    heads: Table<[AtomicU32; HEAD_WORDS]>,
    /// The lowest block that was never used. Block 0 stands for none.
    fresh: u32,
    /// Blocks that are free and touched, as a list through the heads, and their count.
    held: u32,
    held_count: u32,
    /// Blocks that are free and returned to the system.
    returned: u32,
    returned_count: u32,
}

/// A ring of tokens, in blocks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ring {
    pub(super) head: u32,
    pub(super) tail: u32,
    /// Tokens, including stale ones.
    pub(super) tokens: usize,
    /// The block where compaction goes on; 0 while it rests.
    pub(super) sweep: u32,
}

/// The kind of token that needs a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// A new token.
    New,
    /// A token that was popped (B4).
    Moved,
}

/// The block number that stands for the hand of a group.
pub(super) fn hand_of(group: GroupId) -> u32 {
    BLOCKS_MAX + u32::from(group.0)
}

impl Blocks {
    /// Reserves blocks for the tokens of `cells`, and for as many stale ones.
    pub(super) fn reserve(cells: u64) -> Result<Blocks, MemoryError> {
        let wanted = (cells * 2).div_ceil(BLOCK_TOKENS as u64) + 2 * u64::from(RESERVED) + 1;
        let blocks = wanted.min(u64::from(BLOCKS_MAX)) as usize;
        Ok(Blocks {
            tokens: Table::reserve(blocks)?,
            heads: Table::reserve(blocks)?,
            fresh: 1,
            held: 0,
            held_count: 0,
            returned: 0,
            returned_count: 0,
        })
    }

    /// An empty block. `None` if none is left for this kind of token.
    fn take(&mut self, want: Want, owner: u32) -> Option<u32> {
        let unused = self.tokens.len() as u32 - self.fresh;
        let left = unused + self.held_count + self.returned_count;
        if left == 0 || want == Want::New && left <= RESERVED {
            return None;
        }
        let block = self.take_free();
        self.tokens.touch(block as usize..block as usize + 1);
        self.heads.touch(block as usize..block as usize + 1);
        self.set(block, OWNER, owner);
        self.set(block, NEXT, 0);
        self.set(block, FILL, 0);
        Some(block)
    }

    fn take_free(&mut self) -> u32 {
        if self.held != 0 {
            self.held_count -= 1;
            let next = self.head_word(self.held, NEXT);
            std::mem::replace(&mut self.held, next)
        } else if self.returned != 0 {
            self.returned_count -= 1;
            let next = self.head_word(self.returned, NEXT);
            std::mem::replace(&mut self.returned, next)
        } else {
            self.fresh += 1;
            self.fresh - 1
        }
    }

    fn free(&mut self, block: u32) {
        self.set(block, NEXT, self.held);
        self.held = block;
        self.held_count += 1;
    }

    /// Returns a free block to the system, if more are held than is worth it.
    pub(super) fn return_one(&mut self) -> bool {
        if self.held_count <= FREE_BLOCKS_HELD {
            return false;
        }
        let block = self.take_free();
        // If the system refuses, the block stays touched and counted, and is used like the others.
        let _ = self.tokens.discard(block as usize..block as usize + 1);
        self.set(block, NEXT, self.returned);
        self.returned = block;
        self.returned_count += 1;
        true
    }

    /// The group of a block in a ring, and which of its rings that is, packed by [`owner_word`].
    pub(super) fn owner(&self, block: u32) -> (GroupId, Which) {
        let owner = self.head_word(block, OWNER);
        (GroupId((owner >> 1) as u8), Which::BOTH[(owner & 1) as usize])
    }

    pub(super) fn next(&self, block: u32) -> u32 {
        self.head_word(block, NEXT)
    }

    pub(super) fn fill(&self, block: u32) -> Fill {
        let fill = self.head_word(block, FILL) as usize;
        Fill { start: fill >> FILL_BITS, len: fill % (1 << FILL_BITS) }
    }

    pub(super) fn set_fill(&self, block: u32, fill: Fill) {
        debug_assert!(fill.start <= fill.len && fill.len <= BLOCK_TOKENS, "B2: tokens of a block");
        self.set(block, FILL, (fill.start << FILL_BITS | fill.len) as u32);
    }

    pub(super) fn token(&self, block: u32, index: usize) -> u32 {
        // relaxed: under the order's lock, like all accesses of tokens and heads.
        self.tokens[block as usize][index].load(Ordering::Relaxed)
    }

    pub(super) fn set_token(&self, block: u32, index: usize, token: u32) {
        // relaxed: as in `token`.
        self.tokens[block as usize][index].store(token, Ordering::Relaxed);
    }

    fn head_word(&self, block: u32, word: usize) -> u32 {
        // relaxed: as in `token`.
        self.heads[block as usize][word].load(Ordering::Relaxed)
    }

    fn set(&self, block: u32, word: usize, value: u32) {
        // relaxed: as in `token`.
        self.heads[block as usize][word].store(value, Ordering::Relaxed);
    }

    /// Free blocks: how many are held, and how many returned.
    pub(super) fn free_blocks(&self) -> (u32, u32) {
        (self.held_count, self.returned_count)
    }

    /// Blocks that were ever used.
    pub(super) fn used_blocks(&self) -> u32 {
        self.fresh - 1
    }

    pub(super) fn bytes(&self) -> u64 {
        let (tokens, heads) = (&self.tokens, &self.heads);
        tokens.held_bytes() + tokens.heap_bytes() + heads.held_bytes() + heads.heap_bytes()
    }
}

/// The owner of a block as a word of its head: the ring in the lowest bit, the group above.
fn owner_word((group, which): (GroupId, Which)) -> u32 {
    u32::from(group.0) << 1 | which as u32
}

impl Ring {
    /// The block that the next token goes to.
    pub(super) fn room(
        &mut self,
        blocks: &mut Blocks,
        want: Want,
        owner: (GroupId, Which),
    ) -> Option<u32> {
        if self.tail != 0 && blocks.fill(self.tail).len < BLOCK_TOKENS {
            return Some(self.tail);
        }
        let block = blocks.take(want, owner_word(owner))?;
        match self.tail {
            0 => self.head = block,
            tail => blocks.set(tail, NEXT, block),
        }
        self.tail = block;
        Some(block)
    }

    /// Appends a token to the last block, which has room.
    pub(super) fn append(&mut self, blocks: &Blocks, token: u32) {
        let Fill { start, len } = blocks.fill(self.tail);
        blocks.set_token(self.tail, len, token);
        blocks.set_fill(self.tail, Fill { start, len: len + 1 });
        self.tokens += 1;
    }

    /// The oldest token and its block, which is not freed before the next call.
    pub(super) fn pop(&mut self, blocks: &mut Blocks) -> Option<(u32, u32)> {
        self.trim(blocks);
        let Fill { start, len } = (self.head != 0).then(|| blocks.fill(self.head))?;
        if start == len {
            return None;
        }
        blocks.set_fill(self.head, Fill { start: start + 1, len });
        self.tokens -= 1;
        Some((blocks.token(self.head, start), self.head))
    }

    /// Frees first blocks that are empty and have no room.
    fn trim(&mut self, blocks: &mut Blocks) {
        while self.head != 0 {
            let Fill { start, len } = blocks.fill(self.head);
            if start < len || self.head == self.tail && len < BLOCK_TOKENS {
                return;
            }
            let next = blocks.next(self.head);
            if self.sweep == self.head {
                self.sweep = next;
            }
            if self.tail == self.head {
                self.tail = 0;
            }
            blocks.free(self.head);
            self.head = next;
        }
    }

    /// Takes the block after `block` out of the ring, because all its tokens are gone.
    pub(super) fn unlink_next(&mut self, blocks: &mut Blocks, block: u32) {
        let gone = blocks.next(block);
        debug_assert!(gone != 0 && gone != self.tail, "B3: the last block stays");
        blocks.set(block, NEXT, blocks.next(gone));
        blocks.free(gone);
    }

    /// The ring's blocks, from the oldest on.
    pub(super) fn blocks(self, blocks: &Blocks) -> impl Iterator<Item = u32> {
        let next = |block: &u32| Some(blocks.next(*block)).filter(|&next| next != 0);
        std::iter::successors(Some(self.head).filter(|&head| head != 0), next)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_head_has_its_fields_back() {
        let mut blocks = Blocks::reserve(64).expect("a small table");
        for group in [0, 1, 254, 255].map(GroupId) {
            for which in Which::BOTH {
                let owner = (group, which);
                let block = blocks.take(Want::Moved, owner_word(owner)).expect("a few");
                for len in 0..=BLOCK_TOKENS {
                    for start in 0..=len {
                        blocks.set_fill(block, Fill { start, len });
                        assert_eq!(blocks.fill(block), Fill { start, len });
                    }
                }
                assert_eq!((blocks.owner(block), blocks.next(block)), (owner, 0));
            }
        }
    }
}
