//! One memory: arena, zone, descriptors and cells, shared by every pool built on it.
//!
//! ```text
//!            Pool   Pool   Pool          limits are per pool
//!               \     |     /
//!                  Memory
//!      +--------+-----+------+--------------+
//!    arena    zones owners  descriptors   leaves
//!    frames   free  frame   of zspages    of cells
//!             runs  -> descriptor
//! ```
//!
//! A run of frames goes zone -> arena claim -> zspage -> arena unclaim -> the same zone. A zone
//! deals in numbers and may be wrong without harm: a frame handed out twice is refused by the
//! claim. A CPU keeps some runs of the zones for itself; they are free like those in the zones.
//!
//! Invariants
//! - I1 every online frame is free in its zone or on a CPU's list, claimed by a zspage or by
//!   [`Frames`], or claimed by a release in progress.
//! - I2 `free_held` counts the resident frames among those that are free or in a release.
//!
//! Locks: one zone's at a time, and before it a CPU's, inside `SharedZone`; they are the last in
//! the order and held for list work only.
//!
//! [`Frames`]: crate::Frames

mod chores;
mod defer;
mod evacuate;
mod frames;
mod give_back;
mod jobs;
mod owed;
mod room;
mod runs;
mod tenant;
mod worker;
mod zones;

use std::ops::Range;
use std::sync::{Arc, Weak};

use buddy::Warm;
use host::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use host::{
    Arena, FailureInjector, NUMBERED_FRAMES_MIN, Pfn, Rank, RankedMutex, RankedMutexGuard, Run,
    Table, limits, unmodelled,
};

use crate::leaves::{Leaves, POOL_ID_MAX};
use crate::numbers::{LEAF_CELLS, MemoryError, PFN_BITS};
use crate::zspages::{DescriptorHeap, DescriptorId, Header};
pub use evacuate::Evacuation;
pub use frames::{Frames, MigrateError};
pub use jobs::DeferredStatus;
use jobs::Jobs;
pub(crate) use tenant::Tenant;
use worker::Worker;
pub use worker::WorkerStatus;
use zones::{Unclaimed, Zones};

/// Frames of the largest arena.
const ARENA_FRAMES_MAX: u32 = 1 << PFN_BITS; // 4 TiB
/// Frames of the smallest: the zone hands out whole pageblocks' worth.
const ARENA_FRAMES_MIN: u32 = 512; // 2 MiB
/// Frames of an arena on the smallest machine.
pub(crate) const ARENA_FRAMES_SMALL: u32 = 1 << 16; // 256 MiB
/// Memory assumed where the system does not say how much there is.
const FALLBACK_BYTES: u64 = 1 << 30; // 1 GiB
/// Free bytes held from which on other shards' are looked for: as little as a release bothers for.
const WARM_MIN: u64 = 1 << 20; // 1 MiB
/// Runs given back under one hold of the zone's lock.
const RUNS_AT_ONCE: usize = 32;
const _: () = assert!(ARENA_FRAMES_MAX.is_power_of_two(), "a PFN fits its field exactly");
const _: () = assert!(ARENA_FRAMES_MIN >= NUMBERED_FRAMES_MIN, "handles name memories by number");

/// How large a memory may become. These are reservations, so nothing is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryConfig {
    /// Frames in the arena, 512 to 2^30. More than the limits of the pools add up to, so that a run
    /// never fails for fragmentation: an untouched frame costs nothing.
    pub arena_frames: u32,
    /// Cells at most: pages of all disks together, plus single handles.
    pub entries_max: u64,
    /// Resident bytes that the pools are expected to stay under. This limits nothing. It decides
    /// how many free frames are kept for reuse, 1/32 of it, and how many of them are on lists of
    /// CPUs. [`Pool::set_limit`](crate::Pool::set_limit) limits one pool, and `arena_frames` limits
    /// all of them together.
    pub expected_bytes: u64,
    /// Whether a thread may be started that compacts pools at rest and gives free frames back.
    /// Without it, that is done when asked for.
    pub worker: bool,
}

impl MemoryConfig {
    /// Room for a disk of `bytes`, whatever share of this machine's memory it comes to hold.
    pub fn for_disk(bytes: u64) -> MemoryConfig {
        let limits = limits::memory_available();
        let frames = limits.mem_total.unwrap_or(FALLBACK_BYTES) / host::PAGE_SIZE as u64 * 5 / 4;
        MemoryConfig {
            arena_frames: frames.clamp(ARENA_FRAMES_SMALL.into(), ARENA_FRAMES_MAX.into()) as u32,
            entries_max: bytes.div_ceil(host::PAGE_SIZE as u64) + (1 << 24),
            expected_bytes: limits.default_limit.unwrap_or(FALLBACK_BYTES),
            worker: true,
        }
    }
}

/// A value that changes, on cache lines of its own: what lies beside it is read by every operation.
#[repr(align(128))]
pub(crate) struct Apart<T>(pub(crate) T);

/// See the module documentation.
pub struct Memory {
    pub(crate) arena: Arena,
    pub(crate) zones: Zones,
    /// The descriptor of the zspage that starts at a frame.
    pub(crate) owners: Table<AtomicU32>,
    pub(crate) descriptors: DescriptorHeap,
    pub(crate) leaves: Leaves,
    pub(crate) free_held: Apart<AtomicU64>,
    pool_ids: AtomicU32,
    /// The pools there are.
    tenants: unmodelled::RankedMutex<Vec<Weak<dyn Tenant>>>,
    pub(crate) worker: Worker,
    pub(crate) jobs: Jobs,
    /// Held while pageblocks are isolated: a release would not see what is free in them.
    isolating: RankedMutex<()>,
    /// Sparse pageblocks are not to be evacuated.
    stays: AtomicBool,
    /// The program was seen to have locked its memory.
    locked: AtomicBool,
    /// 1 more than the first frame that a zone handed out although it was in use; 0 for none.
    in_use: AtomicU32,
    faults: Option<Arc<FailureInjector>>,
    /// Set if there is less room than was asked for: see `room`.
    pub(crate) limit_max: Option<u64>,
}

impl Memory {
    /// Reserves the address space; every table starts untouched.
    pub fn new(config: MemoryConfig) -> Result<Arc<Memory>, MemoryError> {
        Memory::build(config, config.expected_bytes, None)
    }

    /// As [`Memory::new`], with `faults` to make any step fail that the system, or a full table,
    /// might refuse.
    pub fn with_faults(
        config: MemoryConfig,
        faults: Arc<FailureInjector>,
    ) -> Result<Arc<Memory>, MemoryError> {
        Memory::build(config, config.expected_bytes, Some(faults))
    }

    /// A memory whose per-CPU lists are those of a limit of `listed_of` bytes.
    pub(crate) fn build(
        config: MemoryConfig,
        listed_of: u64,
        faults: Option<Arc<FailureInjector>>,
    ) -> Result<Arc<Memory>, MemoryError> {
        Memory::assemble(config, listed_of, faults).map(Arc::new)
    }

    /// As [`Memory::build`], before it is shared.
    pub(crate) fn assemble(
        config: MemoryConfig,
        listed_of: u64,
        faults: Option<Arc<FailureInjector>>,
    ) -> Result<Memory, MemoryError> {
        if !(ARENA_FRAMES_MIN..=ARENA_FRAMES_MAX).contains(&config.arena_frames) {
            return Err(MemoryError::BadConfig {
                what: "an arena has 2 MiB to 4 TiB, which are 512 to 2^30 frames",
            });
        }
        let leaves = config.entries_max.div_ceil(LEAF_CELLS as u64);
        if leaves >= u64::from(u32::MAX) / LEAF_CELLS as u64 {
            return Err(MemoryError::BadConfig { what: "a memory has fewer than 2^32 cells" });
        }
        Ok(Memory {
            arena: Arena::with_faults(config.arena_frames, faults.clone())?,
            zones: Zones::new(config.arena_frames, listed_of),
            owners: Table::in_steps(config.arena_frames as usize, faults.clone())?,
            descriptors: DescriptorHeap::reserve(config.arena_frames, faults.clone())?,
            leaves: Leaves::reserve(leaves as usize, faults.clone())?,
            free_held: Apart(AtomicU64::new(0)),
            pool_ids: AtomicU32::new(0),
            tenants: unmodelled::RankedMutex::new(Rank::Leaf, Vec::new()),
            isolating: RankedMutex::new(Rank::Isolating, ()),
            stays: AtomicBool::new(false),
            locked: AtomicBool::new(false),
            in_use: AtomicU32::new(0),
            worker: Worker::new(config.expected_bytes, config.worker, faults.clone()),
            jobs: Jobs::new(),
            faults,
            limit_max: None,
        })
    }

    /// Bytes of free frames that are still resident.
    pub fn free_bytes_held(&self) -> u64 {
        // relaxed: a statistic; each change is made by the owner of the frames it counts.
        self.free_held.0.load(Ordering::Relaxed) * host::PAGE_SIZE as u64
    }

    /// Bytes of free frames that CPUs keep on lists of their own. The resident ones among them are
    /// in [`Memory::free_bytes_held`]. A release puts them back.
    pub fn listed_bytes(&self) -> u64 {
        self.zones.listed_frames() * host::PAGE_SIZE as u64
    }

    /// How the memory's worker fares.
    pub fn worker(&self) -> WorkerStatus {
        self.worker.status()
    }

    /// Bytes that describe frames: the zone's metadata and the frame table.
    pub fn frame_table_bytes(&self) -> u64 {
        self.zones.metadata_bytes()
            + self.owners.held_bytes()
            + self.owners.heap_bytes()
            + self.arena.metadata_bytes()
    }

    /// Cells there can be; their numbers are below.
    pub fn cells_max(&self) -> usize {
        self.leaves.cells_max()
    }

    /// Bytes held for cells of every pool, free leaves included.
    pub fn cell_table_bytes(&self) -> u64 {
        self.leaves.held_bytes()
    }

    /// Bytes held for zspage descriptors of every pool.
    pub fn descriptor_bytes(&self) -> u64 {
        self.descriptors.held_bytes()
    }

    /// The address ranges reserved, for comparing with the system's view of them.
    pub fn ranges(&self) -> Vec<Range<usize>> {
        let mut ranges = vec![self.arena.range(), self.owners.range()];
        ranges.extend(self.leaves.ranges());
        ranges.extend(self.descriptors.ranges());
        ranges.extend(self.arena.metadata_ranges());
        ranges
    }

    /// Bytes that the mappings in [`Memory::ranges`] hold, by this memory's own count: touched
    /// frames and table pages.
    pub fn mapped_bytes(&self) -> u64 {
        let arena = self.arena.resident_frames() * host::PAGE_SIZE as u64;
        let bits = self.arena.metadata_bytes() - self.arena.heap_bytes();
        arena
            + bits
            + self.owners.held_bytes()
            + self.descriptors.mapped_bytes()
            + self.leaves.mapped_bytes()
    }

    /// Whether the program was ever seen to have locked its memory (`mlockall`) after this one was
    /// made. What of the mappings was open then is in memory, and more than
    /// [`Memory::mapped_bytes`], until it is used or the program ends.
    pub fn was_locked(&self) -> bool {
        if self.arena.is_locked() {
            // relaxed: an independent value, never cleared.
            self.locked.store(true, Ordering::Relaxed);
        }
        // relaxed: the same.
        self.locked.load(Ordering::Relaxed)
    }

    /// Bytes that the system says the mappings hold, `extra` ones included (`Rss` of smaps).
    ///
    /// # Errors
    ///
    /// When `/proc/self/smaps` cannot be read.
    pub fn resident_bytes(&self, extra: &[Range<usize>]) -> std::io::Result<u64> {
        let mut ranges = self.ranges();
        ranges.extend_from_slice(extra);
        host::smaps::rss_of(&ranges)
    }

    /// Free blocks by order and migratetype, and pageblocks by migratetype, of all zones together:
    /// the arena as one zone. It is read without a lock, so each number is of its own moment. They
    /// add up while no thread allocates or frees; see [`buddy::Published`].
    pub fn zone_counts(&self) -> buddy::ZoneCounts {
        self.zones.counts()
    }

    /// How often a run had to be placed beside runs of the other mobility. It is read without a
    /// lock, and never falls.
    pub fn mixings(&self) -> u64 {
        self.zones.mixings()
    }

    /// Recounts the zones' lists, and returns the sums.
    pub fn check_zone(&self) -> Result<buddy::ZoneCheck, buddy::ZoneDefect> {
        self.zones.check()
    }

    /// The turn to isolate pageblocks; or to see all that is free.
    pub(crate) fn turn_to_isolate(&self) -> RankedMutexGuard<'_, ()> {
        self.isolating.lock()
    }

    /// Whether compaction has sparse pageblocks evacuated, which is the default. Comparisons turn
    /// it off. [`Memory::evacuate`] does it either way.
    pub fn set_evacuation(&self, evacuation: bool) {
        // relaxed: an independent value, read by later compactions.
        self.stays.store(!evacuation, Ordering::Relaxed);
    }

    /// What handles name this memory by.
    pub(crate) fn number(&self) -> u32 {
        self.arena.number()
    }

    /// A pool is dropped while handles to its objects are out: the memory's number is not to be
    /// used again.
    pub(crate) fn handles_are_out(&self) {
        self.arena.keep_number();
    }

    /// An id for a pool.
    pub(crate) fn pool_id(&self) -> Result<u32, MemoryError> {
        let next = |id: u32| (id < POOL_ID_MAX).then_some(id + 1);
        // relaxed: only uniqueness matters.
        let last = self.pool_ids.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        let spent = |_| MemoryError::BadConfig { what: "this memory has had 2^29 pools" };
        last.map(|id| id + 1).map_err(spent)
    }

    /// Enters a pool, which is asked from now on when the memory wants something back.
    pub(crate) fn enter(&self, tenant: Weak<dyn Tenant>) {
        let mut tenants = self.tenants.lock();
        tenants.retain(|tenant| tenant.strong_count() > 0);
        tenants.push(tenant);
    }

    /// The pools there are.
    pub(crate) fn tenants(&self) -> Vec<Arc<dyn Tenant>> {
        let tenants = self.tenants.lock().clone();
        tenants.iter().filter_map(Weak::upgrade).collect()
    }

    /// Gives runs back to the zone, 32 at a time. Returns how many of their frames stay resident.
    pub(crate) fn give_runs(self: &Arc<Memory>, runs: impl Iterator<Item = Run>) -> u64 {
        let mut runs = runs.fuse().peekable();
        let mut total = 0;
        while runs.peek().is_some() {
            let nothing = Unclaimed { pfn: Pfn::new(0), frames: 0, warm: Warm::Untouched };
            let (mut unclaimed, mut len, mut resident) = ([nothing; RUNS_AT_ONCE], 0, 0);
            for (slot, run) in unclaimed.iter_mut().zip(&mut runs) {
                let (run, touched) = self.free_run(run);
                *slot = run;
                resident += u64::from(touched);
                len += 1;
            }
            self.give(&unclaimed[..len], resident);
            total += resident;
        }
        total
    }

    /// The same for one run.
    pub(crate) fn give_run(self: &Arc<Memory>, run: Run) -> u64 {
        let (run, resident) = self.free_run(run);
        self.give(&[run], resident.into());
        resident.into()
    }

    fn give(self: &Arc<Memory>, runs: &[Unclaimed], resident: u64) {
        // relaxed: the frames counted are this thread's until the zone has them.
        let held = self.free_held.0.fetch_add(resident, Ordering::Relaxed) + resident;
        self.zones.free_runs(runs);
        self.worker.notice_free(self, held * host::PAGE_SIZE as u64);
    }

    /// The descriptor of the zspage that starts at `pfn`. It stays so while the caller keeps an
    /// object of it from moving, or holds its class lock. Otherwise it is what was so a moment ago.
    #[inline]
    pub(crate) fn owner(&self, pfn: Pfn) -> DescriptorId {
        // Acquire pairs with the Release in `set_owner`, so that a thread that sees a frame's next
        // life sees what ended the last.
        DescriptorId(self.owners[pfn.index()].load(Ordering::Acquire))
    }

    /// The descriptor of the zspage that starts at any number, if one does.
    pub(crate) fn owner_at(&self, pfn: Pfn) -> Option<DescriptorId> {
        // Acquire pairs with the Release in `set_owner`, so that the descriptor is seen that is
        // named.
        DescriptorId(self.owners.get(pfn.index())?.load(Ordering::Acquire)).some()
    }

    /// What `look` sees of the zspage that starts at a frame, if one does. Its descriptor is not
    /// freed meanwhile. It was not free when the frame named it, with the heap held. A thread that
    /// frees it makes the frame name nothing first.
    pub(crate) fn with_zspage_at<R>(
        &self,
        pfn: Pfn,
        look: impl FnOnce(DescriptorId, Header<'_>) -> R,
    ) -> Option<R> {
        loop {
            let id = self.owner_at(pfn)?;
            let _held = self.descriptors.hold(id);
            if self.owner_at(pfn) == Some(id) {
                return Some(look(id, self.descriptors.header(id)));
            }
        }
    }

    /// Names the descriptor of the zspage that starts at `pfn`.
    pub(crate) fn set_owner(&self, pfn: Pfn, id: DescriptorId) {
        // Release pairs with the Acquire in `owner` and `owner_at`, so that a thread that sees the
        // number sees the descriptor.
        self.owners[pfn.index()].store(id.0, Ordering::Release);
    }

    /// Ends the claim of a run, for the zone. Returns how many of its frames are resident.
    pub(crate) fn free_run(&self, run: Run) -> (Unclaimed, u32) {
        let (pfn, frames) = (run.pfn(), run.frames());
        let resident = self.unclaim(run);
        (Unclaimed { pfn, frames, warm: warmth(resident) }, resident)
    }

    /// Ends the claim of a run. Returns how many of its frames are resident.
    fn unclaim(&self, run: Run) -> u32 {
        let unclaimed = self.arena.unclaim(run);
        debug_assert!(unclaimed.is_ok(), "the run is this arena's");
        unclaimed.unwrap_or(0)
    }
}

/// What the zone is told of a run with so many resident frames.
fn warmth(resident: u32) -> Warm {
    if resident == 0 { Warm::Untouched } else { Warm::Resident }
}
