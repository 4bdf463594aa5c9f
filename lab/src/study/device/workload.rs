//! Random writes of the corpus's own pages: which page each slot gets, the same for every disk.
//!
//! ```text
//!   pass 0   every slot once, in random order, gets the page after its own
//!   pass 1   in the same order, the page after that; and so on
//! ```
//!
//! Invariant: what a disk holds after so many writes follows from their number alone, if no two
//! writes to one slot are under way at once. The client sees to that.

use crate::ground::Rng;
use crate::pages::PAGE_SIZE;

const SEED: u64 = 0x0070_6167_6573;

/// See the module documentation.
pub(super) struct Workload<'a> {
    pages: &'a [u8],
    /// Slots, in the order of a pass.
    order: Vec<u32>,
}

impl<'a> Workload<'a> {
    /// Of a disk that holds `pages`; each round has an order of its own.
    pub(super) fn new(pages: &'a [u8], round: u32) -> Workload<'a> {
        let order = Rng::new(SEED, u64::from(round)).permutation(pages.len() / PAGE_SIZE);
        Workload { pages, order }
    }

    /// Slots of the disk.
    pub(super) fn slots(&self) -> usize {
        self.order.len()
    }

    /// The slot of a write, and the page that it gets.
    pub(super) fn write(&self, number: usize) -> (usize, &'a [u8]) {
        let (pass, at) = (number / self.slots(), number % self.slots());
        let slot = self.order[at] as usize;
        (slot, self.page(slot, pass + 1))
    }

    /// What the disk holds after so many writes.
    pub(super) fn after(&self, writes: usize) -> Vec<u8> {
        let mut bytes = self.pages.to_vec();
        for (at, &slot) in self.order.iter().enumerate().take(writes) {
            let passes = (writes - at).div_ceil(self.slots());
            let to = slot as usize * PAGE_SIZE;
            bytes[to..to + PAGE_SIZE].copy_from_slice(self.page(slot as usize, passes));
        }
        bytes
    }

    /// The page so many places after a slot's own.
    fn page(&self, slot: usize, after: usize) -> &'a [u8] {
        let page = (slot + after) % self.slots();
        &self.pages[page * PAGE_SIZE..][..PAGE_SIZE]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_follows_from_the_number_of_writes() {
        let pages = crate::pages::synthetic::bytes(7 * PAGE_SIZE);
        let workload = Workload::new(&pages, 3);
        assert_ne!(workload.order, Workload::new(&pages, 4).order, "rounds differ");
        let mut held = pages.clone();
        for writes in 0..30 {
            assert_eq!(workload.after(writes), held, "{writes} writes");
            let (slot, page) = workload.write(writes);
            assert_ne!(&held[slot * PAGE_SIZE..][..PAGE_SIZE], page, "each writes another page");
            held[slot * PAGE_SIZE..][..PAGE_SIZE].copy_from_slice(page);
        }
    }
}
