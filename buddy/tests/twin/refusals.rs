//! Which calls the zone must refuse, and with what.

use ramfold_buddy::{
    AllocError, FreeError, IsolateError, Migratetype, OfflineError, Order, PAGEBLOCK_FRAMES,
    PageblockIndex, Pfn, ReserveError, TakeError,
};

use super::blocks::{Frame, Twin, ordinary};

impl Twin {
    pub(crate) fn expect_free(&self, pfn: u32, frames: u32) -> Result<(), FreeError> {
        let at = Pfn::new(pfn);
        match (self.runs.get(&pfn), self.frames.get(pfn as usize)) {
            (_, None) => Err(FreeError::OutOfRange(at)),
            (_, Some(Frame::Offline)) => Err(FreeError::Offline(at)),
            (Some(allocated), _) if *allocated == frames => Ok(()),
            (Some(allocated), _) => {
                Err(FreeError::WrongLength { pfn: at, allocated: *allocated, freed: frames })
            }
            (None, _) if self.block_at(pfn).is_some() => Err(FreeError::AlreadyFree(at)),
            (None, _) => Err(FreeError::NotAHead(at)),
        }
    }

    pub(crate) fn expect_take(&self, pfn: u32, order: Order) -> Result<(), TakeError> {
        let at = Pfn::new(pfn);
        match (self.block_at(pfn), self.frames.get(pfn as usize)) {
            (_, None) => Err(TakeError::OutOfRange(at)),
            (_, Some(Frame::Offline)) => Err(TakeError::Offline(at)),
            (None, _) => Err(TakeError::NotAFreeHead(at)),
            (Some(block), _) if block.order == order => Ok(()),
            (Some(block), _) => Err(TakeError::WrongOrder { pfn: at, order: block.order }),
        }
    }

    pub(crate) fn expect_offline(&self, index: u32) -> Result<(), OfflineError> {
        let at = PageblockIndex::new(index);
        if index as usize >= self.types.len() {
            return Err(OfflineError::OutOfRange(at));
        }
        let first = (index * PAGEBLOCK_FRAMES) as usize;
        let frames = &self.frames[first..first + PAGEBLOCK_FRAMES as usize];
        if frames[0] == Frame::Offline {
            return Err(OfflineError::AlreadyOffline(at));
        }
        let used = frames.contains(&Frame::Used);
        if used { Err(OfflineError::InUse(at)) } else { Ok(()) }
    }

    pub(crate) fn expect_isolate(&self, index: u32) -> Result<(), IsolateError> {
        if self.expect_online(index)? == Migratetype::Isolate {
            return Err(IsolateError::AlreadyIsolated(PageblockIndex::new(index)));
        }
        let stays = [Migratetype::Unmovable, Migratetype::HighAtomic, Migratetype::Cma];
        let mut runs = self.runs_in(index as usize).into_iter();
        match runs.find(|run| stays.contains(&run.migratetype)) {
            Some(run) => {
                Err(IsolateError::Pinned { index: PageblockIndex::new(index), pfn: run.pfn })
            }
            None => Ok(()),
        }
    }

    pub(crate) fn expect_undo(&self, index: u32) -> Result<(), IsolateError> {
        match self.expect_online(index)? {
            Migratetype::Isolate => Ok(()),
            _ => Err(IsolateError::NotIsolated(PageblockIndex::new(index))),
        }
    }

    fn expect_online(&self, index: u32) -> Result<Migratetype, IsolateError> {
        let at = PageblockIndex::new(index);
        let mt = self.types.get(index as usize).ok_or(IsolateError::OutOfRange(at))?;
        if self.is_offline(index as usize) { Err(IsolateError::Offline(at)) } else { Ok(*mt) }
    }

    /// The pageblocks that may become a reserve, any one of them.
    pub(crate) fn expect_reserve(&self) -> Result<Vec<usize>, ReserveError> {
        if self.reserved() >= self.reserve_max {
            return Err(ReserveError::AtLimit { pageblocks: self.reserve_max });
        }
        match (self.reservable(), self.lowest_offline()) {
            (free, _) if !free.is_empty() => Ok(free),
            (_, Some(index)) => Ok(vec![index]),
            (_, None) => Err(ReserveError::NoFreePageblock),
        }
    }

    /// The pageblocks that may be set aside, any one of them.
    pub(crate) fn expect_set_aside(&self) -> Result<Vec<usize>, AllocError> {
        let free = self.reservable();
        match self.lowest_offline() {
            Some(index) => Ok(vec![index]),
            None if !free.is_empty() => Ok(free),
            None => Err(AllocError::NoFreeRun { order: Order::PAGEBLOCK }),
        }
    }

    /// The pageblocks of the reserve that may be given back, any one of them.
    pub(crate) fn expect_unreserve(
        &self,
        to: Migratetype,
        force: bool,
    ) -> Result<Vec<usize>, ReserveError> {
        let free = self.unreservable();
        match (ordinary(to), free.is_empty(), force || self.reserved() != 1) {
            (false, ..) => Err(ReserveError::NotOrdinary(to)),
            (_, true, _) => Err(ReserveError::NothingFree),
            (.., false) => Err(ReserveError::LastOne),
            _ => Ok(free),
        }
    }
}
