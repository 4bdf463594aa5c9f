//! Which pages of the store are on the disk, and which go there next.
//!
//! ```text
//!   slot     in memory, by age --pick--> in the batch --end--> names a block
//!                ^                          |   |                  |  ^
//!                '---- the disk refuses ----'   |               pick, end: its window
//!                                               |                  |  |    is emptied
//!            free <-- given back at the end <---'                  '--'
//! ```
//!
//! A slot of the batch that is given back meanwhile is *late*: it is free when the batch has ended,
//! so that nobody uses it again while the writer still works on it.
//!
//! Invariants
//! - P1: a slot names a block, or its page is in memory.
//! - P2: a slot of the batch is in no list, and is not free.
//!
//! Lock: that of the slots.

use super::order::{Kind, Order};
use super::windows::{Windows, window_of};

/// Pages that are written together at most.
pub(super) const BATCH: usize = 64;
/// So many pages that do not compress leave at once.
const STUBBORN: usize = 16;

/// Where a page is on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct At {
    pub(super) block: u32,
    pub(super) sum: u32,
    /// Where the block is in memory.
    pub(super) address: usize,
}

/// Of a slot.
#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    /// The block, plus one; 0 if there is none.
    block: u32,
    sum: u32,
}

/// Which pages are picked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pick {
    /// Those that do not compress.
    Stubborn,
    /// All, those first.
    All,
    /// Those of a window that is to be emptied.
    Sparse,
}

/// What is on the disk.
#[derive(Debug, Default)]
pub(super) struct Written {
    entries: Vec<Entry>,
    order: Order,
    pub(super) windows: Windows,
    /// Pages that do not compress are first.
    batch: Vec<u32>,
    /// So many of the batch do not compress.
    stubborn: usize,
    late: Vec<u32>,
    /// Slots that named blocks of the window that is emptied.
    leaving: Vec<u32>,
    /// That window.
    emptied: u32,
}

impl Written {
    /// A slot has a page, in memory.
    pub(super) fn kept(&mut self, slot: u32, kind: Kind) {
        self.order.push(slot, kind);
    }

    /// Where a page is on the disk.
    pub(super) fn at(&self, slot: u32) -> Option<At> {
        let Entry { block, sum } = self.entry(slot);
        let block = block.checked_sub(1)?;
        Some(At { block, sum, address: self.windows.address(block) })
    }

    /// A slot's page is not wanted any more. False if the slot is late.
    pub(super) fn forget(&mut self, slot: u32) -> bool {
        if self.batch.contains(&slot) {
            self.late.push(slot);
            return false;
        }
        self.order.remove(slot);
        if let Some(block) = self.entry(slot).block.checked_sub(1) {
            self.entries[slot as usize] = Entry::default();
            self.windows.give(block);
        }
        true
    }

    /// Whether enough pages do not compress.
    pub(super) fn is_stubborn(&self) -> bool {
        self.order.has(Kind::Stubborn, STUBBORN)
    }

    /// Makes a batch of pages, at most `BATCH` and as many as there are blocks for.
    pub(super) fn pick(&mut self, pick: Pick) -> &[u32] {
        let most = self.windows.next().len().min(BATCH);
        if pick == Pick::Sparse && self.leaving.is_empty() {
            self.empty_sparsest();
        }
        if pick != Pick::Sparse {
            self.add(most, |it| it.order.pop(Kind::Stubborn));
        }
        self.stubborn = self.batch.len();
        match pick {
            Pick::Stubborn => {}
            Pick::All => self.add(most, |it| it.order.pop(Kind::Other)),
            Pick::Sparse => self.add(most, Written::pop_leaving),
        }
        &self.batch
    }

    fn add(&mut self, most: usize, mut next: impl FnMut(&mut Written) -> Option<u32>) {
        while self.batch.len() < most
            && let Some(slot) = next(self)
        {
            self.batch.push(slot);
        }
    }

    fn empty_sparsest(&mut self) {
        let Some(window) = self.windows.sparsest() else { return };
        self.emptied = window;
        let slots = (0u32..).zip(&self.entries);
        let is_there = |entry: &Entry| is_in(*entry, window);
        self.leaving.extend(slots.filter(|(_, entry)| is_there(entry)).map(|(slot, _)| slot));
    }

    /// A slot that still names a block of the window that is emptied.
    fn pop_leaving(&mut self) -> Option<u32> {
        while let Some(slot) = self.leaving.pop() {
            if is_in(self.entry(slot), self.emptied) {
                return Some(slot);
            }
        }
        None
    }

    /// The batch was written to the next blocks, except pages whose `sums` are `None`; or it was
    /// not, if there is none. Returns as bits which pages of the batch have left memory.
    pub(super) fn wrote(&mut self, sums: Option<&[Option<u32>]>) -> u64 {
        let first = self.windows.next().start;
        let mut left = 0;
        for at in 0..self.batch.len() {
            let slot = self.batch[at];
            let before = self.entry(slot).block;
            match sums.map(|sums| sums[at]) {
                Some(Some(sum)) => {
                    let block = first + at as u32;
                    self.name(slot, Entry { block: block + 1, sum });
                    left |= u64::from(before == 0) << at;
                }
                // The disk refuses it.
                None if before == 0 => {
                    let kind = if at < self.stubborn { Kind::Stubborn } else { Kind::Other };
                    self.order.push_oldest(slot, kind);
                }
                // It cannot be read, which who wants it is told. Or it is on the disk already.
                _ => {}
            }
        }
        if sums.is_some() {
            self.windows.wrote(self.batch.len() as u32);
        }
        left
    }

    fn name(&mut self, slot: u32, entry: Entry) {
        let index = slot as usize;
        if self.entries.len() <= index {
            self.entries.resize(index + 1, Entry::default());
        }
        let before = std::mem::replace(&mut self.entries[index], entry);
        self.windows.take(entry.block - 1);
        before.block.checked_sub(1).into_iter().for_each(|block| self.windows.give(block));
    }

    /// The batch has ended. Returns the slots that are late.
    pub(super) fn end(&mut self) -> Vec<u32> {
        self.batch.clear();
        std::mem::take(&mut self.late)
    }

    /// In a forked child, which has no file. Its parent may have been at work on a batch. Returns
    /// the slots that are late.
    pub(super) fn begin_anew(&mut self) -> Vec<u32> {
        self.wrote(None);
        self.windows.begin_anew();
        self.end()
    }

    /// Recounts the blocks that slots name.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let named = |window| self.entries.iter().filter(|it| is_in(**it, window)).count();
        self.windows.check(named);
    }

    fn entry(&self, slot: u32) -> Entry {
        self.entries.get(slot as usize).copied().unwrap_or_default()
    }
}

fn is_in(entry: Entry, window: u32) -> bool {
    entry.block.checked_sub(1).is_some_and(|block| window_of(block) == window as usize)
}

const _: () = assert!(BATCH <= u64::BITS as usize, "a bit for each page of a batch");
