//! Pageblocks set aside: a reserve for requests that must not fail, and room for long runs.
//!
//! ```text
//!    HighAtomic   served first to requests of that type, and to nobody else    at most 1 % of the
//!                                                                              zone
//!    CMA          served to requests of that type, and to movable ones         only where set up
//! ```
//!
//! The kernel makes a pageblock a reserve when an urgent request was served from it while memory
//! ran low. Here the owner of the zone sets the reserve up beforehand, so that it is there for the
//! first such request too.
//!
//! Invariants
//! - Only `reserve` adds to the reserve, and only while the reserve is below its limit. A lower
//!   limit takes nothing away.
//! - `cma` is set before any frame of a CMA pageblock is handed out, and stays set. Only
//!   `set_aside_cma` writes it.

use crate::lists::{Counts, FreeBlock, frames_in};
use crate::numbers::{
    AllocError, Migratetype, ORDERS, Order, PageblockIndex, ReserveError, Warm, Which,
};
use crate::zone::Zone;

impl Zone {
    /// Makes the reserve's limit `pageblocks` instead of a hundredth of the zone.
    pub fn set_reserve_max(&mut self, pageblocks: u32) {
        self.reserve_max = pageblocks;
    }

    /// Pageblocks in the reserve, isolated ones included. One look at each pageblock.
    pub fn reserved(&self) -> u32 {
        let reserve =
            |index: &PageblockIndex| self.directory.own_type(*index) == Migratetype::HighAtomic;
        self.directory.iter_online().filter(reserve).count() as u32
    }

    /// Adds a pageblock to the reserve: a wholly free one, warm before untouched, else the lowest
    /// that is offline.
    pub fn reserve(&mut self) -> Result<PageblockIndex, ReserveError> {
        if self.reserved() >= self.reserve_max {
            return Err(ReserveError::AtLimit { pageblocks: self.reserve_max });
        }
        if let Some(index) = self.retype_free(Migratetype::HighAtomic) {
            return Ok(index);
        }
        let index = self.directory.lowest_offline().ok_or(ReserveError::NoFreePageblock)?;
        let online = self.bring_one_online(index, Migratetype::HighAtomic);
        online.map_err(|_| ReserveError::NoMetadata)?;
        Ok(index)
    }

    /// Gives a pageblock of the reserve to an ordinary type: the one with the smallest free block,
    /// as the kernel's `unreserve_highatomic_pageblock` finds it. The last one is kept unless
    /// `force`.
    pub fn unreserve(
        &mut self,
        to: Migratetype,
        force: bool,
    ) -> Result<PageblockIndex, ReserveError> {
        if !to.is_ordinary() {
            return Err(ReserveError::NotOrdinary(to));
        }
        let free = Order::ZERO.and_above().find_map(|order| {
            let which = |warm| Which { order, migratetype: Migratetype::HighAtomic, warm };
            Warm::ALL.into_iter().find_map(|warm| self.lists.first(which(warm)))
        });
        let index = free.ok_or(ReserveError::NothingFree)?.pfn.pageblock();
        if !force && self.reserved() == 1 {
            return Err(ReserveError::LastOne);
        }
        self.retype(index, to);
        Ok(index)
    }

    /// Sets a pageblock aside for long runs: the lowest that is offline, else a wholly free one,
    /// warm before untouched. It is CMA from then on, and movable requests use it as long as nobody
    /// needs it.
    pub fn set_aside_cma(&mut self) -> Result<PageblockIndex, AllocError> {
        let order = Order::PAGEBLOCK;
        let online = match self.directory.lowest_offline() {
            Some(index) => self.bring_one_online(index, Migratetype::Cma).map(|()| index),
            None => Err(AllocError::NoFreeRun { order }),
        };
        let index = online.or_else(|refused| self.retype_free(Migratetype::Cma).ok_or(refused))?;
        self.cma = true;
        Ok(index)
    }

    /// Gives a wholly free pageblock another type.
    fn retype_free(&mut self, to: Migratetype) -> Option<PageblockIndex> {
        let index = self.free_pageblock()?.pfn.pageblock();
        self.retype(index, to);
        Some(index)
    }

    /// A free block of an ordinary type that is a pageblock or two.
    fn free_pageblock(&self) -> Option<FreeBlock> {
        let ordinary = || Migratetype::ALL.into_iter().filter(|mt| mt.is_ordinary());
        let of = |order, warm| {
            let first = |migratetype| self.lists.first(Which { order, migratetype, warm });
            ordinary().find_map(first)
        };
        let of_warmth = |warm| Order::PAGEBLOCK.and_above().find_map(|order| of(order, warm));
        Warm::ALL.into_iter().find_map(of_warmth)
    }
}

impl<C: Counts> Zone<C> {
    /// Whether a movable request is to take from CMA first: when more than half of the frames that
    /// are free lie there (the kernel's `__rmqueue`). Isolated ones are not free in that sense.
    pub(crate) fn cma_is_next(&self, mt: Migratetype) -> bool {
        self.cma && mt == Migratetype::Movable && {
            let cma = self.frames_of_type(Migratetype::Cma);
            let isolated = self.frames_of_type(Migratetype::Isolate);
            cma > (self.lists.frames() - isolated) / 2
        }
    }

    fn frames_of_type(&self, mt: Migratetype) -> u64 {
        let blocks: [u64; ORDERS] = std::array::from_fn(|order| {
            Order::new(order as u8).map_or(0, |order| self.published().free_blocks(order, mt))
        });
        frames_in(&blocks)
    }
}

#[cfg(test)]
mod tests {
    use crate::zone::reserve_max;

    #[test]
    fn the_reserve_is_a_hundredth_rounded_up_or_nothing() {
        let limits = [51_199, 51_200, 51_300, 102_400, 102_500, u32::MAX].map(reserve_max);
        assert_eq!(limits, [0, 1, 2, 2, 3, 83_887]);
    }
}
