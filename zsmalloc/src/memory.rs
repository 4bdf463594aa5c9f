//! One memory: arena, zone, descriptors and cells, shared by every pool built on it.
//!
//! ```text
//!            Pool   Pool   Pool          limits are per pool
//!               \     |     /
//!                  Memory
//!      +--------+-----+------+--------------+
//!    arena    zone  owners  descriptors   leaves
//!    frames   free  frame   of zspages    of cells
//!             runs  -> descriptor
//! ```
//!
//! A run of frames goes zone -> arena claim -> zspage -> arena unclaim -> zone. The zone deals in
//! numbers and may be wrong without harm: a frame handed out twice is refused by the claim.
//!
//! Invariants
//! - I1 every online frame is free in the zone, claimed by a zspage, or claimed by a release in
//!   progress.
//! - I2 `free_held` counts the resident frames among those that no zspage owns.
//!
//! Locks: the zone's, inside `SharedZone`; it is the last in the order and held for list work only.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use buddy::{Migratetype, Order, Pfn, SharedZone, Warm};
use host::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use host::{Arena, Run, Table, limits};

use crate::descriptor::DescriptorId;
use crate::descriptor_heap::DescriptorHeap;
use crate::error::{AllocError, MemoryError};
use crate::leaf::{LEAF_CELLS, Leaves, POOL_ID_MAX};
use crate::pool::Pool;
use crate::word::PFN_BITS;
use crate::worker::Worker;

/// Frames of the largest arena.
const ARENA_FRAMES_MAX: u32 = 1 << PFN_BITS; // 4 TiB
/// Frames per slab of descriptors: 64 bytes a frame, enough when the objects of a full arena
/// average 300 bytes. An arena is larger than memory, and shorter objects need fewer frames.
const FRAMES_PER_SLAB: u32 = 32;
/// Frames of the smallest: the zone hands out whole pageblocks' worth.
const ARENA_FRAMES_MIN: u32 = 512; // 2 MiB
/// Memory assumed where the system does not say how much there is.
const FALLBACK_BYTES: u64 = 1 << 30;
/// The smallest block that a release returns alone. A single frame costs a system call of its own,
/// but only what merged with nothing else is left in single frames.
const RELEASE_ORDER: Order = match Order::new(0) {
    Some(order) => order,
    None => panic!("order 0 exists"),
};
const _: () = assert!(ARENA_FRAMES_MAX.is_power_of_two(), "a PFN fits its field exactly");

/// How large a memory may become; reservations only, nothing is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryConfig {
    /// Frames in the arena, 512 to 2^30. More than the limits of the pools add up to, so that a run
    /// never fails for fragmentation: an untouched frame costs nothing.
    pub arena_frames: u32,
    /// Cells at most: pages of all disks together, plus single handles.
    pub entries_max: u64,
    /// Resident bytes that the pools are expected to stay under; decides how many free frames are
    /// kept for reuse.
    pub limit_bytes: u64,
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
            arena_frames: frames.clamp(1 << 16, u64::from(ARENA_FRAMES_MAX)) as u32,
            entries_max: bytes.div_ceil(host::PAGE_SIZE as u64) + (1 << 24),
            limit_bytes: limits.default_limit.unwrap_or(FALLBACK_BYTES),
            worker: true,
        }
    }
}

/// See the module documentation.
pub struct Memory {
    pub(crate) arena: Arena,
    zone: SharedZone,
    /// The descriptor of the zspage that starts at a frame.
    owners: Table<AtomicU32>,
    pub(crate) descriptors: DescriptorHeap,
    pub(crate) leaves: Leaves,
    free_held: AtomicU64,
    pool_ids: AtomicU32,
    /// The pools there are, for the worker.
    pools: Mutex<Vec<Weak<Pool>>>,
    pub(crate) worker: Worker,
}

impl Memory {
    /// Reserves the address space; every table starts untouched.
    pub fn new(config: MemoryConfig) -> Result<Arc<Memory>, MemoryError> {
        if !(ARENA_FRAMES_MIN..=ARENA_FRAMES_MAX).contains(&config.arena_frames) {
            return Err(MemoryError::BadConfig { what: "an arena has 512 to 2^30 frames" });
        }
        let leaves = config.entries_max.div_ceil(LEAF_CELLS as u64);
        if leaves >= u64::from(u32::MAX) / LEAF_CELLS as u64 {
            return Err(MemoryError::BadConfig { what: "a memory has fewer than 2^32 cells" });
        }
        Ok(Arc::new(Memory {
            arena: Arena::reserve(config.arena_frames)?,
            zone: SharedZone::new(config.arena_frames),
            owners: Table::reserve(config.arena_frames as usize)?,
            descriptors: DescriptorHeap::reserve(
                config.arena_frames.div_ceil(FRAMES_PER_SLAB) as usize
            )?,
            leaves: Leaves::reserve(leaves as usize)?,
            free_held: AtomicU64::new(0),
            pool_ids: AtomicU32::new(0),
            pools: Mutex::default(),
            worker: Worker::new(config.limit_bytes, config.worker),
        }))
    }

    /// Bytes of free frames that are still resident.
    pub fn free_bytes_held(&self) -> u64 {
        // relaxed: a statistic; each change is made by the owner of the frames it counts.
        self.free_held.load(Ordering::Relaxed) * host::PAGE_SIZE as u64
    }

    /// Bytes that describe frames: the zone's metadata and the frame table.
    pub fn frame_table_bytes(&self) -> u64 {
        self.zone.metadata_bytes() as u64
            + self.owners.held_bytes()
            + self.owners.heap_bytes()
            + self.arena.metadata_bytes()
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
        let [cells, owners] = self.leaves.ranges();
        let mut ranges =
            vec![self.arena.range(), self.owners.range(), self.descriptors.range(), cells, owners];
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

    /// Recounts the zone's lists.
    pub fn check_zone(&self) -> Result<buddy::ZoneCheck, buddy::ZoneDefect> {
        self.zone.check()
    }

    /// Returns free frames and free leaves to the system, until at most `keep` bytes of resident
    /// free frames are held; with 0, the zone's metadata of wholly free pageblocks goes too. Gives
    /// the bytes returned.
    pub fn release(&self, keep: u64) -> u64 {
        self.leaves.release();
        let mut returned = 0;
        while self.free_bytes_held() > keep {
            // Out of the zone's lists and claimed, the frames are this thread's while the system
            // clears them; allocation goes on meanwhile.
            let Some((pfn, order)) = self.zone.take_largest_warm(RELEASE_ORDER) else { break };
            returned += self.purge(pfn, order);
        }
        if keep == 0 {
            self.zone.offline_untouched();
        }
        returned * host::PAGE_SIZE as u64
    }

    /// An id for a pool.
    pub(crate) fn pool_id(&self) -> Result<u32, MemoryError> {
        // relaxed: only uniqueness matters.
        let id = self.pool_ids.fetch_add(1, Ordering::Relaxed) + 1;
        if id > POOL_ID_MAX {
            return Err(MemoryError::BadConfig { what: "this memory has had 2^30 pools" });
        }
        Ok(id)
    }

    /// Enters a pool for the worker.
    pub(crate) fn enter_pool(&self, pool: &Arc<Pool>) {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        pools.retain(|pool| pool.strong_count() > 0);
        pools.push(Arc::downgrade(pool));
    }

    /// Compacts the pools that are at rest; false while one is in use.
    pub(crate) fn settle(&self) -> bool {
        let pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let settled = |settled: bool, pool: Arc<Pool>| pool.settle() && settled;
        pools.iter().filter_map(Weak::upgrade).fold(true, settled)
    }

    /// A run of contiguous frames, and how many of them are resident already.
    pub(crate) fn take_run(&self, frames: u32) -> Result<(Run, u32), AllocError> {
        let pfn = self
            .zone
            .alloc_run(frames, Migratetype::Movable)
            .map_err(|_| AllocError::OutOfFrames)?;
        // A refused claim means the zone handed out a frame that is in use; the run is left
        // where it is, neither used nor given back.
        let run = self.arena.claim(pfn.get(), frames).map_err(|_| AllocError::OutOfFrames)?;
        let first = pfn.get() as usize;
        self.owners.touch(first..first + 1);
        let resident = self.arena.resident_in(run.pfn(), frames);
        // relaxed: the frames counted are this thread's.
        self.free_held.fetch_sub(u64::from(resident), Ordering::Relaxed);
        Ok((run, resident))
    }

    /// Returns the frames of a run to the system; gives how many of them were resident.
    pub(crate) fn purge_run(&self, run: &mut Run) -> u32 {
        self.arena.purge(run).unwrap_or(0)
    }

    /// Gives a run back to the zone; its frames stay resident until a release.
    pub(crate) fn give_run(self: &Arc<Memory>, run: Run) {
        let (pfn, frames) = (run.pfn(), run.frames());
        let resident = self.arena.resident_in(pfn, frames);
        // relaxed: the frames counted are this thread's until the zone has them.
        let held = self.free_held.fetch_add(u64::from(resident), Ordering::Relaxed);
        let warm = if resident == 0 { Warm::Untouched } else { Warm::Resident };
        self.unclaim(run, warm);
        self.worker.notice_free(self, (held + u64::from(resident)) * host::PAGE_SIZE as u64);
    }

    /// The descriptor of the zspage that starts at `pfn`; its class lock is held.
    pub(crate) fn owner(&self, pfn: u32) -> DescriptorId {
        // relaxed: written before the zspage entered its class, read under the class lock.
        DescriptorId(self.owners[pfn as usize].load(Ordering::Relaxed))
    }

    /// Names the descriptor of the zspage that starts at `pfn`.
    pub(crate) fn set_owner(&self, pfn: u32, id: DescriptorId) {
        // relaxed: see `owner`.
        self.owners[pfn as usize].store(id.0, Ordering::Relaxed);
    }

    fn purge(&self, pfn: Pfn, order: Order) -> u64 {
        let Ok(mut run) = self.arena.claim(pfn.get(), order.frames()) else { return 0 };
        // Where the system refuses, the frames stay resident and counted; filed as untouched, they
        // are not tried again until they were used.
        let purged = self.purge_run(&mut run);
        // relaxed: the frames counted are this thread's.
        self.free_held.fetch_sub(u64::from(purged), Ordering::Relaxed);
        self.unclaim(run, Warm::Untouched);
        u64::from(purged)
    }

    fn unclaim(&self, run: Run, warm: Warm) {
        let (pfn, frames) = (run.pfn(), run.frames());
        let unclaimed = self.arena.unclaim(run);
        debug_assert!(unclaimed.is_ok(), "the run is this arena's");
        let freed = self.zone.free_run(Pfn::new(pfn), frames, warm);
        debug_assert!(freed.is_ok(), "the zone handed this run out: {freed:?}");
    }
}
