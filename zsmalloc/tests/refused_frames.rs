//! Per-CPU lists and evacuation, where frames or their return are refused.
//!
//! ```text
//!   for n = 1, 2, 3 ...     the nth guarded operation fails, once or from then on
//!       free, release       frames were on lists; what is not returned is held, and counted
//!       evacuate            a sparse arena; what has no room stays where it is
//!   until nothing failed    then all is as without refusals
//! ```
//!
//! Claims
//! - a release that is refused leaves nothing on lists, counts what it did not return, and the next
//!   one returns it; meanwhile the frames serve again;
//! - an evacuation that is refused frames says of each pageblock whether it was emptied, moves
//!   whole zspages or leaves them, and leaves no pageblock isolated; the next one goes on with it;
//! - nothing is leaked.
#![cfg(not(loom))]

use std::sync::Arc;

use buddy::{Migratetype, PAGEBLOCK_FRAMES};
use host::FailureInjector;
use host::faults::Operation;
use ramfold_zsmalloc::{
    AllocError, Evacuation, Handle, Memory, MemoryConfig, Pool, PoolConfig, SIZE_MAX,
};

const CONFIG: MemoryConfig = MemoryConfig {
    arena_frames: 6 * PAGEBLOCK_FRAMES,
    entries_max: 1 << 16,
    // A CPU lists 64 frames.
    expected_bytes: 64 << 20,
    worker: false,
};
const FRAME: u64 = host::PAGE_SIZE as u64;
/// How the injector is armed: to fail once, or from then on.
const ARMS: [fn(&FailureInjector, u64); 2] = [FailureInjector::arm, FailureInjector::arm_from];

/// A pool and what is stored in it.
struct Stored {
    faults: Arc<FailureInjector>,
    memory: Arc<Memory>,
    pool: Arc<Pool>,
    objects: Vec<(usize, Handle)>,
}

/// A whole frame, or of 100 the last one less than half, that says which it is.
fn bytes(seed: usize) -> Vec<u8> {
    let len = if seed % 100 == 99 { 700 + seed % 1300 } else { SIZE_MAX };
    let mut bytes = vec![seed as u8; len];
    bytes[..8].copy_from_slice(&(seed as u64).to_le_bytes());
    bytes
}

impl Stored {
    fn new(count: usize) -> Stored {
        let faults = FailureInjector::new();
        let memory = Memory::with_faults(CONFIG, Arc::clone(&faults)).expect("nothing is armed");
        let config = PoolConfig { shards: Some(1), ..PoolConfig::default() };
        let pool = Pool::new(Arc::clone(&memory), config).expect("a pool");
        let alloc = |seed| (seed, pool.alloc(&bytes(seed)).expect("room"));
        let objects = (0..count).map(alloc).collect();
        Stored { faults, memory, pool, objects }
    }

    /// Frees what is not to be kept, one by one.
    fn keep(&mut self, kept: impl Fn(usize) -> bool) {
        for (seed, handle) in std::mem::take(&mut self.objects) {
            match kept(seed) {
                true => self.objects.push((seed, handle)),
                false => self.pool.free_handle(handle).expect("ours"),
            }
        }
        self.pool.flush_deferred();
    }

    /// Nothing is lost, miscounted or isolated.
    fn check(&self) {
        for (seed, handle) in &self.objects {
            assert_eq!(*self.pool.read(handle).expect("ours"), bytes(*seed)[..], "object {seed}");
        }
        let found = self.pool.check().expect("no defect");
        assert_eq!((found.objects, found.in_flight), (self.objects.len() as u64, 0));
        self.memory.check_zone().expect("no defect in the zone");
        self.memory.check_free_held().expect("no defect in what is held");
        let isolated = self.memory.zone_counts().pageblocks[Migratetype::Isolate as usize];
        assert_eq!(isolated, 0, "a pageblock stayed isolated");
    }

    /// Pageblocks with frames in use.
    fn in_use(&self) -> u64 {
        self.memory.release(0);
        self.memory.check_zone().expect("no defect in the zone").online_pageblocks
    }

    /// Frees everything: all frames are there again.
    fn end(mut self) {
        self.faults.arm(0);
        self.keep(|_| false);
        self.check();
        assert_eq!(self.in_use(), 0, "frames were lost");
        assert_eq!(self.memory.free_bytes_held(), 0);
        let all = |pool: &Pool| pool.store(&[1; SIZE_MAX]).map(std::mem::forget);
        let frames = std::iter::repeat_with(|| all(&self.pool)).take_while(Result::is_ok).count();
        assert_eq!(frames, CONFIG.arena_frames as usize, "the arena and nothing else");
    }
}

/// Twelve frames are on lists when a release is refused.
fn release_refused(arm: fn(&FailureInjector, u64), nth: u64) -> Option<Operation> {
    let mut stored = Stored::new(24);
    stored.keep(|seed| seed.is_multiple_of(2));
    let (memory, held) = (Arc::clone(&stored.memory), stored.memory.free_bytes_held());
    assert_eq!((memory.listed_bytes(), held), (12 * FRAME, 12 * FRAME), "all of it is listed");
    arm(&stored.faults, nth);
    let returned = memory.release(0);
    let refused = stored.faults.fired();
    assert_eq!(memory.listed_bytes(), 0, "what is listed was not offered to the system");
    assert_eq!(memory.free_bytes_held(), held - returned, "after {refused:?} failed");
    stored.check();
    stored.keep(|seed| seed.is_multiple_of(4));
    assert_eq!(memory.listed_bytes(), 6 * FRAME, "a CPU keeps what is freed now");
    stored.check();
    if refused.is_some() && stored.faults.is_armed() {
        assert_eq!(stored.pool.alloc(&bytes(1)).err(), Some(AllocError::OutOfFrames));
        stored.check();
    }
    stored.faults.arm(0);
    let before = memory.free_bytes_held();
    stored.objects.push((1, stored.pool.alloc(&bytes(1)).expect("room")));
    assert_eq!(memory.free_bytes_held(), before - FRAME, "a listed frame serves again");
    assert_eq!(memory.release(0), before - FRAME);
    stored.check();
    stored.end();
    refused
}

#[test]
fn what_was_on_lists_is_held_and_counted_when_a_release_is_refused() {
    for arm in ARMS {
        let met: Vec<_> = (1..).map_while(|nth| release_refused(arm, nth)).collect();
        for operation in [Operation::Claim, Operation::Purge] {
            assert!(met.contains(&operation), "no {operation} was refused: {met:?}");
        }
    }
}

/// Three sparse pageblocks.
fn sparse() -> Stored {
    let mut stored = Stored::new(3 * PAGEBLOCK_FRAMES as usize);
    stored.keep(|seed| seed % 100 == 99 || seed % 128 == seed / 512);
    stored
}

/// Evacuates, and compares what is said with what has moved.
fn evacuate(stored: &Stored) -> Evacuation {
    let (before, used) = (stored.pool.zspages(), stored.pool.stats().mem_used_total);
    let done = stored.memory.evacuate();
    stored.check();
    let after = stored.pool.zspages();
    let moved = before.iter().zip(&after).filter(|(before, after)| before.pfn != after.pfn);
    let frames: u64 = moved.map(|(_, after)| u64::from(after.frames)).sum();
    assert_eq!((after.len(), frames), (before.len(), done.frames), "{done:?}");
    assert_eq!(stored.pool.stats().mem_used_total, used, "frames in use");
    done
}

fn evacuation_refused(arm: fn(&FailureInjector, u64), nth: u64, whole: Evacuation) -> bool {
    let stored = sparse();
    arm(&stored.faults, nth);
    let done = evacuate(&stored);
    let refused = stored.faults.fired();
    let lasts = refused.is_some() && stored.faults.is_armed();
    assert_eq!(done.pageblocks + done.kept, whole.pageblocks, "each is emptied or kept: {done:?}");
    if refused.is_none() {
        assert_eq!(done, whole);
    }
    if lasts && nth == 1 {
        assert_eq!((done.frames, done.pageblocks), (0, 0), "without frames nothing moves");
    }
    stored.faults.arm(0);
    evacuate(&stored);
    let (pageblocks, used) = (stored.in_use(), stored.pool.stats().mem_used_total / FRAME);
    assert!(
        pageblocks <= used.div_ceil(PAGEBLOCK_FRAMES.into()) + 1,
        "after {refused:?} failed at {nth}: {used} frames in {pageblocks} pageblocks"
    );
    stored.check();
    stored.end();
    refused.is_some()
}

#[test]
fn an_evacuation_that_is_refused_frames_leaves_nothing_half_done() {
    let undisturbed = sparse();
    let whole = evacuate(&undisturbed);
    assert!(whole.pageblocks > 0 && whole.kept == 0, "{whole:?}");
    undisturbed.end();
    for arm in ARMS {
        let points = (1..).take_while(|nth| evacuation_refused(arm, *nth, whole)).count();
        assert!(points as u64 > whole.frames / 4, "{points} points of failure: {whole:?}");
    }
}
