//! The buddy allocator.
//!
//! Every request is rounded up to a power of two. Free blocks are aligned powers of two. A request
//! takes the smallest block that holds it, and halves it as often as it can. A freed block joins
//! its buddy, the other half of the block it once was, if that is free. The result joins its own
//! buddy in the same way.
//!
//! Knowlton, "A fast storage allocator", CACM 8(10), 1965; Knuth, The Art of Computer Programming,
//! volume 1, section 2.5. Sizes, types and placement are those of the kernel's page allocator. It
//! departs from that in two ways. A run gives its unused tail back at once, so rounding costs
//! address alignment and no memory. Warm blocks go first.
//!
//! ```text
//!   alloc_run(5) rounds to order 3; the smallest free block that holds it is of order 4, at 0
//!
//!   0   1   2   3   4   5   6   7   8                              16
//!   [                            order 4                            ]   off its list
//!   [            order 3            ][            order 3           ]   upper half put back
//!   [ R   .   .   .   . ][ 0 ][  1  ][            order 3           ]   tail of 3 put back
//!     run, known by its head
//! ```
//!
//! Invariants (those of the lists and of the directory are in their files)
//!
//! * I1: every online frame is in exactly one free block or one run.
//! * I2: a free block of order k is aligned to 2^k, and its frames are online.
//! * I3: a free block's type is its pageblock's. A block of the largest order covers two
//!   pageblocks of one type.
//! * I4: no free block could merge with its buddy. So the set of free blocks follows from the set
//!   of free frames and the types alone, and whatever was done, freeing all of it restores it.
//! * I5: a run of n frames starts where a block of the smallest order holding n may start, and its
//!   frames are online. Its head knows n and what it was asked for as; its other frames know only
//!   that they are not heads. The type of its pageblock may change meanwhile.
//! * I6: each pageblock knows how many of its frames are in runs, by what they mean for it.
//!
//! Warm blocks. `free_run` is told whether the run may still be backed by memory, and a free block
//! carries the answer: the OR of its parts when blocks merge, its own to both halves when it is
//! split. Each order and type has two lists, warm and untouched. Exactly this is promised:
//!
//! * W1: a request takes an untouched block of its own type only if no warm block of that type is
//!   large enough, and among the blocks of that warmth one of the smallest order that fits.
//! * W2: a frame freed as `Resident` is in a warm block until it is allocated or taken again, or
//!   its pageblock goes offline. On a per-CPU list it is warm as well (percpu.rs, C2). A pageblock
//!   comes online untouched.
//! * W3: nothing is promised about a particular frame of a warm block.
//!
//! The price of W1 is that a large warm block may be split although a smaller untouched one fits.
//! The kernel's rule of putting a block whose merge is near to the tail holds within each of the
//! two lists: such a block is taken last among the warm, yet before all that are untouched.
//!
//! The bound. No allocator can promise blocks of up to n frames while at most M are in use with
//! fewer than M * (1 + log2(n) / 2) - n + 1 frames (Robson, JACM 18(3), 1971). This one promises
//! from the present alone, whatever the history. An ordinary request of order k is refused only if
//! every aligned block of 2^k frames that fits into the zone has a frame in use, lies in a reserve
//! or is isolated. Without these it cannot be refused while
//!
//! ```text
//!   allocated_frames() < frames_max() / 2^k        k <= 9; for k = 10 an odd last pageblock
//!                                                  does not count
//! ```
//!
//! and both sides can be read at any time. A zone 2^k times what is ever in use never fails.
//!
//! Cost: allocating and freeing look at a number of lists and blocks bounded by the number of
//! orders, never at the length of a list. Claiming a pageblock of another type also walks that one
//! pageblock. Only bringing pageblocks online searches, among pageblocks.

mod pieces;

use crate::lists::{Counts, Directory, End, FreeBlock, Lists, Published};
use crate::numbers::{
    AllocError, Arc, FreeError, FreedRun, Migratetype, Order, PAGEBLOCK_FRAMES, Pfn, Role, Warm,
};
use pieces::Pieces;
use std::fmt;

/// Which frames are free, which are not, and which free ones to hand out next.
///
/// ```
/// use ramfold_buddy::{FreeError, Migratetype, Warm, Zone};
///
/// let mut zone = Zone::new(4096);
/// let run = zone.alloc_run(5, Migratetype::Movable)?;
/// assert_eq!(zone.allocated_frames(), 5, "the tail of the block of 8 was given back");
/// zone.free_run(run, 5, Warm::Resident)?;
/// assert_eq!(zone.free_run(run, 5, Warm::Resident), Err(FreeError::AlreadyFree(run)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A zone is a `Zone` without parameters, except in the study of what counting costs.
pub struct Zone<C: Counts = Arc<Published>> {
    pub(crate) directory: Directory,
    pub(crate) lists: Lists<C>,
    /// Pageblocks of reserve at most.
    pub(crate) reserve_max: u32,
    /// Whether any pageblock was ever set aside as CMA.
    pub(crate) cma: bool,
}

impl Zone {
    /// A zone with nothing online. It never brings a frame online whose number is `frames_max` or
    /// more, nor any frame of a last pageblock that is not whole.
    pub fn new(frames_max: u32) -> Zone {
        Zone::empty(frames_max, Arc::new(Published::new()))
    }
}

impl<C: Counts> fmt::Debug for Zone<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Zone").field("pageblocks", &self.directory.online()).finish_non_exhaustive()
    }
}

/// Runs that follow each other, have no owner, and are given back as one. That happens when the
/// next one does not follow, and at the latest when this is dropped.
struct Joined<'z, C: Counts> {
    zone: &'z mut Zone<C>,
    run: Option<FreedRun>,
}

impl<C: Counts> Joined<'_, C> {
    fn give_back(&mut self) {
        if let Some(run) = self.run.take() {
            self.zone.give_back_all(run);
        }
    }
}

impl<C: Counts> Drop for Joined<'_, C> {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl<C: Counts> Zone<C> {
    pub(crate) fn empty(frames_max: u32, counts: C) -> Zone<C> {
        let directory = Directory::new(frames_max, Arc::clone(counts.published()));
        let reserve_max = reserve_max(frames_max);
        Zone { directory, lists: Lists::new(counts), reserve_max, cma: false }
    }

    /// The counts, which stay readable without the zone.
    pub fn published(&self) -> &Arc<Published> {
        self.lists.published()
    }

    /// Allocates a block of 2^order frames: a run of that length.
    pub fn alloc(&mut self, order: Order, migratetype: Migratetype) -> Result<Pfn, AllocError> {
        self.alloc_run(order.frames(), migratetype)
    }

    /// Allocates a run of 1..=1024 frames, aligned to the smallest order that holds it.
    ///
    /// It tries in turn the free blocks of `migratetype`, for a movable request those of CMA, a
    /// pageblock that is brought online for it, and the free blocks of the types it falls back to.
    /// CMA comes first if most of the free frames are there. A HighAtomic request is an Unmovable
    /// one that may use the reserve first. A CMA request is served from CMA or not at all.
    pub fn alloc_run(&mut self, frames: u32, migratetype: Migratetype) -> Result<Pfn, AllocError> {
        let order = Order::holding(frames).ok_or(AllocError::BadLength { frames })?;
        if migratetype == Migratetype::Isolate {
            return Err(AllocError::Isolated);
        }
        let block = self.find(order, migratetype)?;
        self.carve(block, order, frames, migratetype);
        Ok(block.pfn)
    }

    /// Allocates a run as [`Zone::alloc_run`] does, but only from a free block that is smaller than
    /// a pageblock: what else is in its pageblock is in use.
    pub fn alloc_hole(&mut self, frames: u32, migratetype: Migratetype) -> Result<Pfn, AllocError> {
        let is_hole = |block: &FreeBlock| block.order < Order::PAGEBLOCK;
        self.alloc_of_own(frames, migratetype, &Warm::ALL, is_hole)
    }

    /// Allocates a run as [`Zone::alloc_run`] does, but only from a warm free block of its type.
    pub fn alloc_warm(&mut self, frames: u32, migratetype: Migratetype) -> Result<Pfn, AllocError> {
        self.alloc_of_own(frames, migratetype, &[Warm::Resident], |_| true)
    }

    /// Allocates from the free blocks of the type itself, if the smallest that holds the run suits.
    fn alloc_of_own(
        &mut self,
        frames: u32,
        migratetype: Migratetype,
        warmth: &[Warm],
        suits: impl Fn(&FreeBlock) -> bool,
    ) -> Result<Pfn, AllocError> {
        let order = Order::holding(frames).ok_or(AllocError::BadLength { frames })?;
        if migratetype == Migratetype::Isolate {
            return Err(AllocError::Isolated);
        }
        let smallest = |&warm| self.lists.smallest(order, migratetype, warm).filter(&suits);
        let block = warmth.iter().find_map(smallest).ok_or(AllocError::NoFreeRun { order })?;
        self.carve(block, order, frames, migratetype);
        Ok(block.pfn)
    }

    /// Frees a block of 2^order frames: a run of that length.
    pub fn free(&mut self, pfn: Pfn, order: Order, warm: Warm) -> Result<(), FreeError> {
        self.free_run(pfn, order.frames(), warm)
    }

    /// Frees the run of `frames` frames whose head is `pfn`, as a whole.
    pub fn free_run(&mut self, pfn: Pfn, frames: u32, warm: Warm) -> Result<(), FreeError> {
        let run = FreedRun { pfn, frames, warm };
        self.clear_run(run)?;
        self.give_back_all(run);
        Ok(())
    }

    /// Frees runs. Those that follow each other, lowest first, go back as one, which takes fewer
    /// merges. Returns the first refusal; the others are freed. If the iterator panics, the runs
    /// that it gave before are freed.
    pub fn free_runs(&mut self, runs: impl Iterator<Item = FreedRun>) -> Result<(), FreeError> {
        let (mut joined, mut freed) = (Joined { zone: self, run: None }, Ok(()));
        for run in runs {
            if let Err(error) = joined.zone.clear_run(run) {
                freed = freed.and(Err(error));
                continue;
            }
            match &mut joined.run {
                Some(before) if before.is_followed_by(run) => before.frames += run.frames,
                _ => {
                    joined.give_back();
                    joined.run = Some(run);
                }
            }
        }
        drop(joined);
        freed
    }

    /// Takes a run's frames from their owner: the caller gives them back.
    fn clear_run(&mut self, FreedRun { pfn, frames, .. }: FreedRun) -> Result<(), FreeError> {
        let (allocated, migratetype) = self.run_at(pfn)?;
        if allocated != frames {
            return Err(FreeError::WrongLength { pfn, allocated, freed: frames });
        }
        self.directory.clear_allocated(pfn, frames, migratetype);
        Ok(())
    }

    /// Puts the frames of what is no run any more on the lists.
    fn give_back_all(&mut self, FreedRun { pfn, frames, warm }: FreedRun) {
        for (pfn, order) in Pieces::of(pfn, frames) {
            self.give_back(FreeBlock { pfn, order, warm });
        }
    }

    fn find(&mut self, order: Order, mt: Migratetype) -> Result<FreeBlock, AllocError> {
        if self.cma_is_next(mt)
            && let Some(block) = self.fit(order, Migratetype::Cma)
        {
            return Ok(block);
        }
        match self.fit(order, mt) {
            Some(block) => Ok(block),
            None => self.find_elsewhere(order, mt),
        }
    }

    /// When the free blocks of the type itself do not serve.
    fn find_elsewhere(&mut self, order: Order, mt: Migratetype) -> Result<FreeBlock, AllocError> {
        match mt {
            Migratetype::HighAtomic => return self.find(order, Migratetype::Unmovable),
            Migratetype::Cma => return Err(AllocError::NoFreeRun { order }),
            _ => {}
        }
        if mt == Migratetype::Movable
            && let Some(block) = self.fit(order, Migratetype::Cma)
        {
            return Ok(block);
        }
        match self.bring_online(order, mt) {
            Ok(()) => self.fit(order, mt).ok_or(AllocError::NoFreeRun { order }),
            Err(refused) => self.fallback(order, mt).ok_or(refused),
        }
    }

    /// The block W1 names.
    pub(crate) fn fit(&self, order: Order, migratetype: Migratetype) -> Option<FreeBlock> {
        let smallest = |warm| self.lists.smallest(order, migratetype, warm);
        Warm::ALL.into_iter().find_map(smallest)
    }

    /// Makes the first `frames` frames of a free block a run. What is left of the block goes to
    /// the heads of its lists: the upper halves down to `order`, which holds the run, and the
    /// tail. None of it can merge, for each piece's buddy holds some of the run.
    fn carve(&mut self, block: FreeBlock, order: Order, frames: u32, migratetype: Migratetype) {
        let FreeBlock { pfn, warm, .. } = block;
        self.lists.take(&mut self.directory, block);
        let halves = order.and_above().rev().filter(|half| *half < block.order);
        let halves = halves.map(|half| (pfn.plus(half.frames()), half));
        let tail = Pieces::of(pfn.plus(frames), order.frames() - frames);
        for (pfn, order) in halves.chain(tail) {
            self.lists.add(&mut self.directory, FreeBlock { pfn, order, warm }, End::Head);
        }
        self.directory.set_allocated(pfn, frames, migratetype);
    }

    /// The length of the run whose head is `pfn`, and what it was asked for as.
    pub(crate) fn run_at(&self, pfn: Pfn) -> Result<(u32, Migratetype), FreeError> {
        if !self.directory.contains(pfn.pageblock()) {
            return Err(FreeError::OutOfRange(pfn));
        }
        if !self.directory.is_online(pfn.pageblock()) {
            return Err(FreeError::Offline(pfn));
        }
        match self.directory.role(pfn) {
            Some(Role::Allocated(mt)) => Ok((self.directory.run_frames(pfn), mt)),
            Some(Role::Free { .. }) => Err(FreeError::AlreadyFree(pfn)),
            Some(Role::Inner) | None => Err(FreeError::NotAHead(pfn)),
        }
    }

    /// Merges a block whose frames are all inner as far as it goes and puts it on its list.
    pub(crate) fn give_back(&mut self, mut block: FreeBlock) {
        while let Some(buddy) = self.mergeable_buddy(block) {
            block = self.merge(block, buddy);
        }
        let end = self.end_for(block);
        self.lists.add(&mut self.directory, block, end);
    }

    /// The buddy of a block, if it is free and of a type that lets them merge.
    pub(crate) fn mergeable_buddy(&self, block: FreeBlock) -> Option<FreeBlock> {
        block.order.above()?;
        let buddy = self.free_of(block.pfn.buddy(block.order), block.order)?;
        let mt = |block: FreeBlock| self.directory.migratetype(block.pfn.pageblock());
        // Smaller ones are of one pageblock, and so of one type.
        let small = block.order < Order::PAGEBLOCK;
        (small || mt(buddy).merges_with(mt(block))).then_some(buddy)
    }

    /// One block of a block and its buddy. A whole pageblock takes the type of the one it joins,
    /// for which I3 gives the reason.
    fn merge(&mut self, block: FreeBlock, buddy: FreeBlock) -> FreeBlock {
        self.lists.take(&mut self.directory, buddy);
        if block.order == Order::PAGEBLOCK {
            let migratetype = self.directory.migratetype(block.pfn.pageblock());
            self.directory.set_migratetype(buddy.pfn.pageblock(), migratetype);
        }
        let order = block.order.above().expect("mergeable_buddy stops below the largest order");
        FreeBlock { pfn: block.pfn.head(order), order, warm: block.warm.or(buddy.warm) }
    }

    /// The free block whose head is `pfn`.
    pub(crate) fn free_at(&self, pfn: Pfn) -> Option<FreeBlock> {
        match self.directory.role(pfn)? {
            Role::Free { order, warm } => Some(FreeBlock { pfn, order, warm }),
            Role::Inner | Role::Allocated(_) => None,
        }
    }

    /// The free block of this order whose head is `pfn`, if it is one.
    pub(crate) fn free_of(&self, pfn: Pfn, order: Order) -> Option<FreeBlock> {
        let warm = self.directory.state(pfn)?.free_of(order)?;
        Some(FreeBlock { pfn, order, warm })
    }

    /// The tail if only this block's buddy is missing for a merge two orders up: it is worth
    /// waiting for (the kernel's `buddy_merge_likely`). The head otherwise.
    fn end_for(&self, block: FreeBlock) -> End {
        let Some(above) = block.order.above().filter(|above| *above < Order::MAX) else {
            return End::Head;
        };
        let uncle = self.free_of(block.pfn.head(above).buddy(above), above);
        if uncle.is_some() { End::Tail } else { End::Head }
    }
}

/// One part in so many of a zone may be its reserve.
const RESERVE_PART: u32 = 100;

/// Pageblocks of reserve at most, of a zone with so many frames: one part in a hundred, rounded up
/// to a pageblock; none if that part is less than one. The kernel's `reserve_highatomic_pageblock`.
pub(crate) fn reserve_max(frames: u32) -> u32 {
    let part = frames / RESERVE_PART;
    if part < PAGEBLOCK_FRAMES { 0 } else { part.div_ceil(PAGEBLOCK_FRAMES) }
}
