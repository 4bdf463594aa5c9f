//! The pager: what regions share, and the thread that keeps their limits.
//!
//! ```text
//!   raised by faults, or every 10 ms while a region has a limit; else every 100 ms
//!      for each region:   over its limit?  --> oldest groups to staging, from there to the store
//!                         dead copies?     --> discarded from the store
//!      the descriptor gone?               --> the process ends: missing pages would be zeros
//!   every second: memory not as it should be (module `look`)?  --> the same
//! ```
//!
//! Locks: the list of regions, held to read or change it; a region's gate while it is worked on.

use crate::GROUP_PAGES;
use crate::RegionError;
use crate::buffers::Buffers;
use crate::counters::Count;
use crate::fetchers::Fetchers;
use crate::folded::Folded;
use crate::look::Looks;
use crate::overhead;
use crate::runs::Mappings;
use crate::watch;
use crate::worth::Worth;
use host::fault::{FaultThread, Vital, begin_call, die};
use host::{Event, FaultMode, PAGE_SIZE, Rank, SEGMENT_PAGES, Staging, Userfault};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;
use zram::Memory;

const BUSY_TICK: Duration = Duration::from_millis(10);
const IDLE_TICK: Duration = Duration::from_millis(100);
/// Share of what a region holds that is in staging as its second chance: 1/this.
const STAGED_DIVISOR: u64 = 32;

/// What a pager is made with.
#[derive(Debug, Clone)]
pub struct PagerConfig {
    /// How faults are served.
    pub fault_mode: FaultMode,
    /// Bytes of staging, at least 512 KiB: pages on their way out, of all regions together.
    pub staging_bytes: usize,
    /// What a fault is taken to cost, where it is not to be measured.
    pub fault_costs: Option<FaultCosts>,
    /// Mappings that all regions of the pager may make; `None`: an eighth of those that the system
    /// allows a process (`vm.max_map_count`). Where they are used up, what is registered for a page
    /// to leave reaches up to what is registered already; first touches there cost a fault.
    pub mappings_max: Option<u64>,
}

/// What decides how many pages beside its own a fault brings in, with [`Quads::Measured`].
///
/// A neighbour pays where more than `page / (overhead + page)` of those beside a page that faults
/// are wanted, or with a limit, where `page_out` is added to both pages.
///
/// [`Quads::Measured`]: crate::Quads::Measured
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FaultCosts {
    /// A fault, but for its page: the way to who serves it and back.
    pub overhead: Duration,
    /// A page that comes by itself: decoding it and putting it in place.
    pub page: Duration,
    /// A page that goes: compressing and storing it. Counts where the region has a limit.
    pub page_out: Duration,
}

impl Default for PagerConfig {
    /// Signal mode, 16 MiB of staging, costs as they are measured, an eighth of the mappings.
    fn default() -> PagerConfig {
        let (fault_mode, staging_bytes) = (FaultMode::Signal, 16 << 20);
        PagerConfig { fault_mode, staging_bytes, fault_costs: None, mappings_max: None }
    }
}

/// What the regions of a pager share.
pub(crate) struct Shared {
    pub(crate) memory: Arc<Memory>,
    pub(crate) userfault: Arc<Userfault>,
    pub(crate) staging: Arc<Staging>,
    pub(crate) mappings: Arc<Mappings>,
    fault_costs: Option<FaultCosts>,
    /// What a fault costs besides what is done about it; measured for the first region.
    fault_overhead: OnceLock<Duration>,
    pub(crate) buffers: Buffers,
    /// For pages from a disk; there from the first region on that may have some.
    pub(crate) read_buffers: OnceLock<Buffers>,
    /// In signal mode, for disks that are no files; there from the first such region on.
    pub(crate) fetchers: OnceLock<Fetchers>,
    /// Raised when pages were read from a disk, or could not be.
    pub(crate) fetched: Event,
    /// Raised when the thread is wanted.
    pub(crate) work: Event,
    /// Raised when a region was brought below its limit.
    pub(crate) room: Event,
    /// Raised when the pager ends.
    pub(crate) over: Event,
    regions: Mutex<Vec<Weak<Folded>>>,
    stop: AtomicBool,
    /// In thread mode: as long as any region, and so as long as any may be touched.
    faults: OnceLock<FaultThread>,
}

/// The home of regions that share a memory, staging and one thread. It lives as long as any of
/// them.
pub struct Pager {
    pub(crate) shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    watch: Option<JoinHandle<()>>,
}

impl Pager {
    /// A pager whose regions keep their pages in `memory`.
    ///
    /// # Errors
    ///
    /// When the system has no userfaultfd for us, or no address space or thread.
    pub fn new(memory: Arc<Memory>, config: &PagerConfig) -> Result<Arc<Pager>, RegionError> {
        let userfault = Userfault::open(config.fault_mode)?;
        let segments = (config.staging_bytes / (SEGMENT_PAGES * PAGE_SIZE)).clamp(2, 1 << 20);
        let shared = Arc::new(Shared {
            staging: Staging::reserve(&userfault, segments as u32)?,
            memory,
            buffers: Buffers::new(Rank::FaultBuffer),
            read_buffers: OnceLock::new(),
            fetchers: OnceLock::new(),
            fetched: Event::new(),
            work: Event::new(),
            room: Event::new(),
            over: Event::new(),
            regions: Mutex::default(),
            stop: AtomicBool::new(false),
            faults: OnceLock::new(),
            fault_costs: config.fault_costs,
            mappings: Mappings::at_most(config.mappings_max),
            fault_overhead: OnceLock::new(),
            userfault,
        });
        if config.fault_mode == FaultMode::Thread {
            let faults = FaultThread::start(Arc::clone(&shared.userfault));
            // The first and only one.
            drop(shared.faults.set(faults.map_err(RegionError::Thread)?));
        }
        let mut pager = Pager { shared, thread: None, watch: None };
        // Where the second is refused, dropping the pager ends the first.
        let shared = || Arc::clone(&pager.shared);
        pager.thread = Some(start(shared()).map_err(RegionError::Thread)?);
        pager.watch = Some(watch::start(shared()).map_err(RegionError::Thread)?);
        Ok(Arc::new(pager))
    }

    /// The memory whose frames compressed pages are in.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.shared.memory
    }

    /// How faults are served.
    pub fn fault_mode(&self) -> FaultMode {
        self.shared.userfault.mode()
    }

    /// Bytes of staging and of buffers that pages are decoded to, at most.
    pub fn buffer_bytes(&self) -> u64 {
        let _call = begin_call();
        let staged = self.shared.staging.used() * SEGMENT_PAGES * PAGE_SIZE;
        let read = self.shared.read_buffers.get().map_or(0, Buffers::heap_bytes);
        let shared = &self.shared;
        staged as u64 + read + shared.buffers.heap_bytes() + shared.staging.heap_bytes()
    }

    /// Has buffers made for regions whose pages may be on a disk, since a fault makes none; and
    /// threads, where the disk is not to be read in a signal handler.
    pub(crate) fn prepare_reads(&self, in_handler: bool) -> Result<(), RegionError> {
        self.shared.read_buffers.get_or_init(|| Buffers::new(Rank::ReadBuffer));
        let elsewhere = !in_handler && self.fault_mode() == FaultMode::Signal;
        if elsewhere && self.shared.fetchers.get().is_none() {
            let fetchers = Fetchers::start().map_err(RegionError::Thread)?;
            // Of two at once, the other's end.
            drop(self.shared.fetchers.set(fetchers));
        }
        Ok(())
    }

    /// Takes a region off the list.
    pub(crate) fn forget(&self, folded: &Arc<Folded>) {
        let gone = Arc::downgrade(folded);
        self.shared.regions().retain(|region| !Weak::ptr_eq(region, &gone));
    }

    pub(crate) fn enter(&self, folded: &Arc<Folded>) {
        let mut regions = self.shared.regions();
        regions.retain(|region| region.strong_count() > 0);
        regions.push(Arc::downgrade(folded));
    }

    /// Ends the thread, and with it the keeping of limits.
    pub(crate) fn end_thread(&mut self) {
        // Pairs with the Acquire in `is_over`.
        self.shared.stop.store(true, Ordering::Release);
        self.shared.work.raise();
        if let Some(thread) = self.thread.take() {
            // It ends the process if it panics.
            drop(thread.join());
        }
    }
}

impl Drop for Pager {
    fn drop(&mut self) {
        self.end_thread();
        self.shared.over.raise();
        if let Some(watch) = self.watch.take() {
            // It ends the process if it panics.
            drop(watch.join());
        }
    }
}

impl std::fmt::Debug for Pager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let regions = self.shared.regions().len();
        f.debug_struct("Pager").field("regions", &regions).finish_non_exhaustive()
    }
}

impl Shared {
    fn regions(&self) -> MutexGuard<'_, Vec<Weak<Folded>>> {
        // A list that is valid after each change.
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the pager ends.
    pub(crate) fn is_over(&self) -> bool {
        // Pairs with the Release in `end_thread`.
        self.stop.load(Ordering::Acquire)
    }

    /// Who serves faults, in thread mode.
    pub(crate) fn fault_thread(&self) -> Option<&FaultThread> {
        self.faults.get()
    }

    /// What a new region is to take for its costs.
    pub(crate) fn worth(&self) -> Worth {
        let measure = || overhead::of_fault(&self.userfault);
        match self.fault_costs {
            Some(costs) => Worth::fixed(costs),
            None => Worth::measured(*self.fault_overhead.get_or_init(measure)),
        }
    }

    /// The regions there are, one after the other: who drops one waits for it to be let go.
    pub(crate) fn alive(&self) -> impl Iterator<Item = Arc<Folded>> + use<> {
        let regions = self.regions().clone();
        regions.into_iter().filter_map(|region| region.upgrade())
    }
}

fn start(shared: Arc<Shared>) -> std::io::Result<JoinHandle<()>> {
    host::thread::spawn("ramfold-pager", move || {
        let vital = Vital::new("the thread that keeps limits has failed");
        let mut looks = Looks::begin();
        while !shared.is_over() {
            let seen = shared.work.seen();
            let busy = tick(&shared);
            if looks.are_due() {
                shared.alive().for_each(|folded| folded.look());
            }
            shared.work.wait(seen, if busy { BUSY_TICK } else { IDLE_TICK });
        }
        vital.end();
    })
}

/// One round; true when there is something to keep.
fn tick(shared: &Shared) -> bool {
    if !shared.staging.is_watched() {
        die("the descriptor of folded memory was closed");
    }
    let mut busy = false;
    for folded in shared.alive() {
        if folded.counters.read(Count::DeadCopies) > 0
            && let Ok(_gate) = folded.enter()
        {
            folded.sweep();
        }
        if folded.limit().is_some() {
            busy = true;
            folded.keep_limit();
            shared.room.raise();
        } else {
            // Second chances of a limit that was lifted while it was being kept.
            folded.compress_staged();
        }
    }
    busy
}

impl Folded {
    /// Pages out the oldest groups until the region is below its limit.
    pub(crate) fn keep_limit(&self) {
        let Some(limit) = self.limit() else { return };
        if self.held() < limit {
            self.set_stuck(false);
            return;
        }
        let target = limit - (limit / 16).max(GROUP_PAGES as u64).min(limit / 2);
        // Each group is looked at once, on its way to staging and from there: what is pinned, or
        // refused by the store, stays.
        let steps = 2 * self.queue.lock().steps();
        let before = self.gone_for_good();
        for _ in 0..steps {
            let Ok(_gate) = self.enter() else { return };
            if self.limit() != Some(limit) || self.held() <= target || !self.age() {
                break;
            }
            self.shared.room.raise();
        }
        self.set_stuck(self.held() >= limit && self.gone_for_good() == before);
    }

    /// Compresses what is in staging as its second chance.
    pub(crate) fn compress_staged(&self) {
        while self.queue.lock().staged_len() > 0
            && self.enter().is_ok_and(|_gate| self.compress_oldest())
        {}
    }

    /// Pages that left memory so far and were not put back for want of room.
    fn gone_for_good(&self) -> u64 {
        self.counters.read(Count::PagesOut).wrapping_sub(self.counters.read(Count::Refused))
    }

    /// One step of the segmented queue: the oldest group goes to staging, or, where staging has its
    /// share, the oldest there to the store. False: there is nothing to do, or no room.
    pub(crate) fn age(&self) -> bool {
        let share = (self.held() / STAGED_DIVISOR / GROUP_PAGES as u64) as usize;
        let staging = self.shared.staging.used() + 1 < self.shared.staging.segments();
        let (staged, next) = {
            let mut queue = self.queue.lock();
            let full = queue.staged_len() > share || !staging || queue.len() == 0;
            let staged = if full { queue.pop_staged() } else { None };
            let next = if staged.is_none() { queue.pop() } else { None };
            (staged, next)
        };
        match (staged, next) {
            (Some(group), _) => self.compress(group as usize).refused == 0,
            (None, Some(group)) if staging => self.stage_oldest(group as usize),
            // The last segment is for those on their way out.
            (None, Some(group)) => self.page_out_oldest(group).is_ok_and(|out| out.refused == 0),
            (None, None) => false,
        }
    }

    /// Pages out a group that was taken off the queue, which has it again if something stays.
    fn page_out_oldest(&self, group: u32) -> Result<crate::PageOut, RegionError> {
        let index = group as usize;
        if let Some(mut group) = self.lock_known(index) {
            group.listed = false;
        }
        let out = self.page_out_group(index, u64::MAX);
        if let Some(mut group) = self.lock_known(index) {
            self.list(index, &mut group);
        }
        out
    }

    fn stage_oldest(&self, index: usize) -> bool {
        if let Some(mut group) = self.lock_known(index) {
            group.listed = false;
        }
        let staged = self.stage(index, u64::MAX);
        if let Some(mut group) = self.lock_known(index) {
            self.list(index, &mut group);
        }
        match staged {
            Ok((staged, _)) if staged > 0 => {
                self.queue.lock().push_staged(index as u32);
                true
            }
            outcome => outcome.is_ok(),
        }
    }

    /// Pages out the `pages` pages that came first, or as many as there are, whole groups at a
    /// time.
    pub(crate) fn page_out_coldest(&self, pages: u64) -> Result<crate::PageOut, RegionError> {
        let mut out = crate::PageOut::default();
        // Each group once: what is pinned goes to the end of the queue.
        let steps = self.queue.lock().steps();
        for _ in 0..steps {
            if out.stored >= pages || out.refused > 0 {
                break;
            }
            let _gate = self.enter()?;
            let staged = self.queue.lock().pop_staged();
            if let Some(staged) = staged {
                out += self.compress(staged as usize);
                continue;
            }
            let Some(next) = self.queue.lock().pop() else { break };
            out += self.page_out_oldest(next)?;
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use crate::{LIMIT_MIN, Memory, MemoryConfig, Pager, PagerConfig, Quads, Region, RegionConfig};
    use std::sync::Arc;

    const PAGE: usize = 4096;
    /// Pages of the least limit, and the slack above and below it.
    const LIMIT: usize = LIMIT_MIN / PAGE; // 256
    const SLACK: usize = 64;

    /// A region whose limit nobody keeps but the test; the first `touched` of its pages were
    /// touched, the last first, so that each came alone.
    fn region(pages: usize, limit: Option<usize>, touched: usize) -> Option<Region> {
        let memory = Memory::new(MemoryConfig::for_disk(64 << 20)).expect("a memory");
        let pager = Pager::new(memory, &PagerConfig::default());
        let mut pager = pager.inspect_err(|error| eprintln!("skipped: needs {error}")).ok()?;
        Arc::get_mut(&mut pager).expect("not shared yet").end_thread();
        let resident_limit = limit.map(|pages| pages * PAGE);
        let config = RegionConfig { resident_limit, quads: Quads::Never, ..Default::default() };
        let mut region = Region::map(&pager, pages * PAGE, &config).expect("a region");
        let pages = region.as_mut_slice()[..touched * PAGE].chunks_mut(PAGE).enumerate();
        pages.rev().for_each(|(number, page)| page[0] = number as u8 | 1);
        Some(region)
    }

    /// A comparison of the limit's keeping that was off by one passed all tests.
    #[test]
    fn a_region_at_its_limit_is_brought_down_to_the_slack_below_it() {
        let Some(region) = region(2 * LIMIT, Some(LIMIT), LIMIT) else { return };
        assert_eq!(region.folded.held(), LIMIT as u64);
        region.folded.keep_limit();
        assert_eq!(region.folded.held(), (LIMIT - SLACK) as u64, "as a whole, and no group more");
        assert!(!region.folded.is_stuck());
        region.folded.keep_limit();
        assert_eq!(region.folded.held(), (LIMIT - SLACK) as u64, "it is below");
    }

    #[test]
    fn a_region_that_stays_at_its_limit_is_stuck_until_it_is_below() {
        let Some(region) = region(2 * LIMIT, Some(LIMIT), LIMIT) else { return };
        let pinned = region.pin(0..LIMIT * PAGE).expect("pinned");
        region.folded.keep_limit();
        assert!(region.folded.is_stuck(), "all of it is pinned");
        drop(pinned);
        region.control().page_out(0..PAGE).expect("out");
        region.folded.keep_limit();
        assert!(!region.folded.is_stuck(), "it is below the limit");
    }

    #[test]
    fn nothing_comes_ahead_of_time_at_the_limit() {
        let Some(region) = region(2 * LIMIT, Some(LIMIT), LIMIT) else { return };
        let held = |pages: std::ops::Range<usize>| {
            region.control().prefetch(pages.start * PAGE..pages.end * PAGE).expect("tried");
            region.folded.held()
        };
        assert_eq!(region.control().page_out(0..32 * PAGE).expect("out").stored, 32);
        assert_eq!(held(0..32), LIMIT as u64, "below it, all come");
        // One over it: what went out is one more page than there is room for.
        let more = std::hint::black_box(region.as_slice())[LIMIT * PAGE];
        assert_eq!(more, 0);
        assert_eq!(region.control().page_out(0..PAGE).expect("out").stored, 1);
        assert_eq!(held(0..1), LIMIT as u64, "at it, none");
    }

    #[test]
    fn a_fault_waits_for_the_limit_from_the_slack_above_it_on() {
        let Some(region) = region(2 * LIMIT, Some(LIMIT), LIMIT + SLACK) else { return };
        assert_eq!((region.folded.held(), region.stats().waits), ((LIMIT + SLACK) as u64, 0));
        let late = std::hint::black_box(region.as_slice())[(LIMIT + SLACK) * PAGE];
        assert_eq!((late, region.stats().waits), (0, 1));
    }

    #[test]
    fn staging_has_its_share_of_what_is_held() {
        let share = |held: usize| held / 32 / 64;
        assert_eq!((share(2304), share(2047)), (1, 0));
        let Some(region) = region(2304, None, 2304) else { return };
        region.folded.learn_all().expect("known");
        let staged = || {
            assert!(region.folded.age());
            region.folded.queue.lock().staged_len()
        };
        assert_eq!(
            [staged(), staged(), staged(), staged()],
            [1, 2, 1, 2],
            "one, and one on its way"
        );
    }
}
