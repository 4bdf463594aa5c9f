//! Whose free blocks a request may take when its own type has none and nothing can come online.
//!
//! ```text
//!    claim   the largest free block of another type, and its pageblock with it if most of that is
//!            free or alike: what follows comes from there too
//!    steal   the smallest that fits; its pageblock keeps its type
//! ```
//!
//! The kernel's order: to claim keeps types apart, to steal mixes them and comes last. Each time a
//! run is put beside runs of the other mobility, it is counted.
//!
//! Cost: claiming walks one pageblock at most, from head to head, when its blocks change lists.
//!
//! Invariant: a fallback takes only blocks of the three ordinary types. So what is in the reserve,
//! in CMA or isolated stays there (`fallback_types`). A pageblock's free blocks change lists
//! together with its type (I3).

use crate::lists::{Counts, FreeBlock};
use crate::numbers::{
    Kind, Migratetype, Order, PAGEBLOCK_FRAMES, PAGEBLOCK_ORDER, PageblockIndex, Warm, Which,
};
use crate::zone::Zone;

/// From this order on every request may claim: half of the pageblock's.
const CLAIM_ORDER: u8 = PAGEBLOCK_ORDER / 2; // 4

/// So many frames of a pageblock make it the claimant's.
const CLAIM_FRAMES: u32 = PAGEBLOCK_FRAMES / 2; // 256

impl<C: Counts> Zone<C> {
    /// A free block of another type, for an ordinary request: claimed, else stolen.
    pub(crate) fn fallback(&mut self, order: Order, mt: Migratetype) -> Option<FreeBlock> {
        let block = self.claim(order, mt).or_else(|| self.steal(order, mt))?;
        if self.mixes(block.pfn.pageblock(), mt) {
            self.published().mixing_added();
        }
        Some(block)
    }

    /// The kernel's `__rmqueue_claim`: from the largest order down, one candidate in each; the
    /// first order too small for this request ends the search.
    fn claim(&mut self, order: Order, mt: Migratetype) -> Option<FreeBlock> {
        for candidates in order.and_above().rev().take_while(|order| may_claim(*order, mt)) {
            let Some(block) = self.first_of_others(candidates, mt) else { continue };
            if let Some(claimed) = self.try_to_claim(block, order, mt) {
                return Some(claimed);
            }
        }
        None
    }

    /// The kernel's `__rmqueue_steal`: from the smallest order up.
    fn steal(&self, order: Order, mt: Migratetype) -> Option<FreeBlock> {
        order.and_above().find_map(|order| self.first_of_others(order, mt))
    }

    /// A free block of one order, of the first type that has one; warm before untouched. The
    /// kernel's `find_suitable_fallback`.
    fn first_of_others(&self, order: Order, mt: Migratetype) -> Option<FreeBlock> {
        let first = |migratetype, warm| self.lists.first(Which { order, migratetype, warm });
        let of_type = |mt: &Migratetype| Warm::ALL.into_iter().find_map(|warm| first(*mt, warm));
        fallback_types(mt).iter().find_map(of_type)
    }

    /// The kernel's `try_to_claim_block`: whole pageblocks change type with their block; a part
    /// takes its pageblock along, or is left.
    fn try_to_claim(
        &mut self,
        block: FreeBlock,
        order: Order,
        mt: Migratetype,
    ) -> Option<FreeBlock> {
        if block.order >= Order::PAGEBLOCK {
            self.claim_whole(block, mt);
            return Some(block);
        }
        let index = block.pfn.pageblock();
        if !self.mostly_free_or_alike(index, mt) {
            return None;
        }
        self.retype(index, mt);
        self.fit(order, mt)
    }

    /// The kernel's `change_pageblock_range`.
    fn claim_whole(&mut self, block: FreeBlock, mt: Migratetype) {
        self.lists.relist(&mut self.directory, block, mt);
        for offset in (0..block.order.frames()).step_by(PAGEBLOCK_FRAMES as usize) {
            self.directory.set_migratetype(block.pfn.plus(offset).pageblock(), mt);
        }
    }

    /// Whether half of a pageblock is free or in runs like those of `mt`. For a request that is not
    /// movable, what is in use in a movable pageblock and is not movable is alike; of the other
    /// types nothing is known to be.
    fn mostly_free_or_alike(&self, index: PageblockIndex, mt: Migratetype) -> bool {
        let used = self.directory.used(index);
        let alike = match (mt, self.directory.migratetype(index)) {
            (Migratetype::Movable, _) => used.of(Kind::Movable),
            (_, Migratetype::Movable) => used.of(Kind::Fixed),
            _ => 0,
        };
        used.free() + alike >= CLAIM_FRAMES
    }

    /// Whether a run of `mt` in this pageblock would lie beside runs of the other mobility.
    fn mixes(&self, index: PageblockIndex, mt: Migratetype) -> bool {
        let other = if mt == Migratetype::Movable { Kind::Fixed } else { Kind::Movable };
        self.directory.used(index).of(other) > 0
    }
}

/// Whether blocks of an order may be claimed: the kernel's `should_try_claim_block`. A small block
/// in the wrong place hurts least if it is movable, so a movable request steals it instead.
fn may_claim(order: Order, mt: Migratetype) -> bool {
    order.get() >= CLAIM_ORDER || mt != Migratetype::Movable
}

/// The types to try, in order: the kernel's table `fallbacks`. What is set aside or isolated is
/// given to nobody else.
fn fallback_types(migratetype: Migratetype) -> &'static [Migratetype] {
    match migratetype {
        Migratetype::Unmovable => &[Migratetype::Reclaimable, Migratetype::Movable],
        Migratetype::Movable => &[Migratetype::Reclaimable, Migratetype::Unmovable],
        Migratetype::Reclaimable => &[Migratetype::Unmovable, Migratetype::Movable],
        Migratetype::HighAtomic | Migratetype::Cma | Migratetype::Isolate => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_movable_request_leaves_small_blocks_unclaimed() {
        let claims = |mt| Order::all().filter(|order| may_claim(*order, mt)).count();
        let types = [Migratetype::Unmovable, Migratetype::Movable, Migratetype::Reclaimable];
        assert_eq!(types.map(claims), [11, 7, 11], "orders that may be claimed");
    }
}
