//! A pool against its naive twin, a map from handle to bytes.
//!
//! Claims
//! - every object reads back as it was stored, also after others came, went and moved;
//! - objects never overlap: each is filled with a pattern of its own;
//! - `check()` finds nothing after any sequence of operations;
//! - when everything is freed, no zspage, no frame and no byte of the limit is in use;
//! - compaction loses nothing and leaves at most one zspage with free slots per class, and no
//!   object in a class much larger than it needs.

#[path = "support/designs.rs"]
mod designs;

use std::sync::Arc;

use proptest::prelude::*;
use ramfold_zsmalloc::deferred::QueueConfig;
use ramfold_zsmalloc::{
    AllocError, ChainSize, Handle, Memory, MemoryConfig, Pool, PoolConfig, RawHandle, Rule,
    StaleHandle,
};

/// So little that it is soon exhausted.
const DEFERRED: QueueConfig =
    QueueConfig { shards: Some(1), buffer_bytes: 4096, pending_bytes_max: 64 << 10 };

fn memory(frames: u32) -> Arc<Memory> {
    let config = MemoryConfig {
        arena_frames: frames,
        entries_max: 1 << 20,
        expected_bytes: 64 << 20,
        worker: false,
    };
    Memory::new(config).expect("address space")
}

fn pool(memory: &Arc<Memory>, rule: Rule, chain: usize) -> Arc<Pool> {
    let chain = ChainSize::new(chain).expect("1 to 16");
    let config = PoolConfig { rule, chain, ..PoolConfig::default() };
    Pool::new(Arc::clone(memory), config).expect("a pool")
}

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|at| (seed.wrapping_mul(0x9e37_79b9) >> (at % 24)) as u8 ^ at as u8)
        .collect()
}

#[derive(Clone, Debug)]
enum Action {
    Alloc(usize),
    Free(usize),
    FreeBatch(usize),
    FreeDeferred(usize),
    FlushDeferred,
    Read(usize),
    AllocRaw(usize),
    FreeRaw(usize),
    Migrate(usize),
    Shrink(u64),
    Compact,
    Release,
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        10 => prop_oneof![1usize..=4096, 1000usize..1400, 30usize..60, Just(4096)]
            .prop_map(Action::Alloc),
        7 => any::<usize>().prop_map(Action::Free),
        1 => (0usize..80).prop_map(Action::FreeBatch),
        2 => (0usize..20).prop_map(Action::FreeDeferred),
        1 => Just(Action::FlushDeferred),
        3 => any::<usize>().prop_map(Action::Read),
        2 => (1usize..=4096).prop_map(Action::AllocRaw),
        2 => any::<usize>().prop_map(Action::FreeRaw),
        2 => any::<usize>().prop_map(Action::Migrate),
        1 => (0u64..40).prop_map(Action::Shrink),
        1 => Just(Action::Compact),
        1 => Just(Action::Release),
    ]
}

struct Twin {
    pool: Arc<Pool>,
    objects: Vec<(Handle, Vec<u8>)>,
    raw: Vec<(RawHandle, Vec<u8>)>,
    /// Freed once.
    stale: Vec<RawHandle>,
    stored: u64,
    /// Freed, and perhaps not yet given back.
    pending: u64,
}

impl Twin {
    fn apply(&mut self, action: &Action) {
        match *action {
            Action::Alloc(len) => {
                self.stored += 1;
                let bytes = pattern(self.stored, len);
                let handle = self.pool.alloc(&bytes).expect("the arena is large enough");
                self.objects.push((handle, bytes));
            }
            Action::Free(which) if !self.objects.is_empty() => {
                let (handle, bytes) = self.objects.swap_remove(which % self.objects.len());
                assert_eq!(*self.pool.read(&handle).expect("ours"), bytes[..], "before its free");
                self.pool.free_handle(handle).expect("ours");
            }
            Action::Read(which) if !self.objects.is_empty() => {
                let (handle, bytes) = &self.objects[which % self.objects.len()];
                assert_eq!(*self.pool.read(handle).expect("ours"), bytes[..]);
            }
            Action::Free(_) | Action::Read(_) => {}
            Action::FreeBatch(count) => {
                let kept = self.objects.len().saturating_sub(count);
                let freed = self.objects.split_off(kept).into_iter().map(|(handle, _)| handle);
                self.pool.free_batch(freed).expect("ours");
            }
            Action::FreeDeferred(count) => {
                let kept = self.objects.len().saturating_sub(count);
                for (handle, bytes) in self.objects.split_off(kept) {
                    let before = self.pool.deferred();
                    self.pool.free_deferred(handle).expect("ours");
                    let after = self.pool.deferred();
                    let queued = after.fallbacks == before.fallbacks;
                    let expected = if queued { bytes.len() as u64 } else { 0 };
                    assert_eq!(after.pending_bytes - before.pending_bytes, expected);
                    self.pending += u64::from(queued);
                }
            }
            Action::FlushDeferred => {
                assert_eq!(self.pool.flush_deferred(), self.pending);
                self.pending = 0;
            }
            Action::AllocRaw(len) => {
                self.stored += 1;
                let bytes = pattern(self.stored, len);
                let raw = self.pool.alloc_raw(&bytes).expect("the arena is large enough");
                self.raw.push((raw, bytes));
            }
            Action::FreeRaw(which) => self.free_raw(which),
            Action::Migrate(which) => self.migrate(which),
            Action::Shrink(frames) => {
                self.pool.flush_deferred();
                self.pending = 0;
                let freeable = self.pool.freeable_frames();
                let freed = self.pool.shrink(frames);
                assert!(freed < frames + 16, "asked for {frames}, freed {freed}");
                assert!(freed >= frames.min(freeable), "{freeable} of {frames} freeable: {freed}");
            }
            Action::Compact => {
                self.pool.compact();
                self.pending = 0;
                self.expect_dense();
            }
            Action::Release => {
                self.pool.memory().release(0);
            }
        }
    }

    fn free_raw(&mut self, which: usize) {
        if !self.raw.is_empty() {
            let (raw, _) = self.raw.swap_remove(which % self.raw.len());
            assert_eq!(self.pool.free_raw(raw), Ok(()));
            self.stale.push(raw);
        }
        for &raw in self.stale.iter().rev().take(3) {
            assert_eq!(self.pool.read_raw(raw, &mut [0]), Err(StaleHandle));
            assert_eq!(self.pool.free_raw(raw), Err(StaleHandle));
        }
    }

    fn migrate(&mut self, which: usize) {
        let zspages = self.pool.zspages();
        let Some(zspage) = zspages.get(which % zspages.len().max(1)) else { return };
        let frames = self.pool.memory().frames(zspage.frames).expect("the arena is large enough");
        let to = frames.pfn().expect("not taken yet");
        self.pool.migrate(zspage.pfn, frames).expect("nobody uses an object");
        let moved = self.pool.zspages().into_iter().find(|moved| moved.pfn == to);
        assert_eq!(moved.map(|moved| moved.objects), Some(zspage.objects));
    }

    fn expect_dense(&self) {
        for row in self.pool.class_table().rows {
            let sparse: u64 = row.zspages[1..11].iter().sum();
            assert!(sparse <= 1, "class {}: {sparse} zspages with free slots", row.class);
            assert_eq!(row.freeable, 0, "class {}", row.class);
        }
        self.expect_close();
    }

    /// However often objects moved up, those in classes of at least some size are no more than
    /// those for which that is the smallest class, or that leave an eighth of such a slot at most.
    fn expect_close(&self) {
        let geometry = self.pool.geometry();
        let size_of = |len: usize| {
            let class = geometry.class_of(len).expect("it is stored");
            usize::from(geometry.shape(class).size)
        };
        let lens = self.objects.iter().map(|(_, bytes)| bytes.len());
        let lens: Vec<usize> = lens.chain(self.raw.iter().map(|(_, bytes)| bytes.len())).collect();
        let mut there = 0;
        for row in self.pool.class_table().rows.iter().rev() {
            there += row.obj_used as usize;
            let may = |len: &&usize| size_of(**len) >= row.size || **len * 8 >= row.size * 7;
            let most = lens.iter().filter(may).count();
            assert!(there <= most, "{there} objects of {most} from {} bytes up", row.size);
        }
    }

    fn check(&self) {
        let found = self.pool.check().expect("no defect");
        assert_eq!(found.objects, (self.objects.len() + self.raw.len()) as u64 + self.pending);
        assert_eq!(found.pending, self.pending);
        assert_eq!(self.pool.stats().pending_objects, self.pending);
        assert_eq!(found.in_flight, 0);
        self.pool.memory().check_zone().expect("no defect in the zone");
        self.pool.memory().check_free_held().expect("no defect");
        for (handle, bytes) in &self.objects {
            assert_eq!(*self.pool.read(handle).expect("ours"), bytes[..]);
        }
        for (raw, bytes) in &self.raw {
            let mut out = vec![0; bytes.len()];
            assert_eq!(self.pool.read_raw(*raw, &mut out), Ok(bytes.len()));
            assert_eq!(out, *bytes);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn a_pool_is_its_twin(
        actions in prop::collection::vec(action(), 1..400),
        rule in prop::sample::select(Rule::ALL.to_vec()),
        chain in 1usize..=16,
        config in prop::sample::select(designs::all()),
        shards in 1usize..=3,
        lag in prop::sample::select(vec![0, 1, 8]),
    ) {
        let memory = memory(1 << 14);
        let chain = ChainSize::new(chain).expect("1 to 16");
        let config = PoolConfig { rule, chain, deferred: DEFERRED, ..config };
        let config = PoolConfig { shards: Some(shards), lag, ..config };
        let pool = Pool::new(Arc::clone(&memory), config).expect("a pool");
        let (objects, raw, stale) = Default::default();
        let mut twin = Twin { pool, objects, raw, stale, stored: 0, pending: 0 };
        for (step, action) in actions.iter().enumerate() {
            twin.apply(action);
            if step % 16 == 0 {
                twin.check();
            }
        }
        twin.check();
        twin.apply(&Action::FlushDeferred);
        for (handle, _) in twin.objects.drain(..) {
            twin.pool.free_handle(handle).expect("ours");
        }
        while !twin.raw.is_empty() {
            twin.free_raw(0);
        }
        twin.check();
        let stats = twin.pool.stats();
        prop_assert_eq!(stats.mem_used_total, 0);
        prop_assert_eq!(stats.object_bytes_resident, 0);
        memory.release(0);
        prop_assert_eq!(memory.free_bytes_held(), 0, "everything went back to the system");
    }
}

#[test]
fn a_freshly_filled_class_touches_only_the_frames_it_uses() {
    let memory = memory(1 << 12);
    let pool = pool(&memory, Rule::LeastWaste, 8);
    // 1568 bytes: 13 objects in 5 frames. Three objects reach into the second frame.
    let handles: Vec<Handle> =
        (0..3).map(|seed| pool.alloc(&pattern(seed, 1568)).expect("room")).collect();
    assert_eq!(pool.stats().object_bytes_resident, 2 * 4096);
    assert_eq!(pool.stats().mem_used_total, 5 * 4096);
    drop(handles);
}

#[test]
fn the_limit_is_on_touched_bytes_and_freeing_makes_room() {
    let memory = memory(1 << 12);
    let pool = pool(&memory, Rule::LeastWaste, 8);
    pool.set_limit(16 * 4096);
    let mut handles: Vec<Handle> =
        (0..16).map(|seed| pool.alloc(&pattern(seed, 4096)).expect("below the limit")).collect();
    let refused = pool.alloc(&pattern(99, 4096)).expect_err("17 frames");
    assert_eq!(refused, AllocError::OverLimit { limit: 16 * 4096 });
    assert_eq!(pool.check().expect("no defect").objects, 16, "the refused object left nothing");
    pool.free_handle(handles.swap_remove(3)).expect("ours");
    handles.push(pool.alloc(&pattern(100, 4096)).expect("one frame became free"));
    assert!(pool.stats().object_bytes_resident <= 16 * 4096);
}

#[test]
fn a_warm_run_does_not_take_a_pool_over_its_limit() {
    let memory = memory(1 << 12);
    let (first, second) = (pool(&memory, Rule::LeastWaste, 8), pool(&memory, Rule::LeastWaste, 8));
    let full: Vec<Handle> =
        (0..130).map(|seed| first.alloc(&pattern(seed, 1568)).expect("room")).collect();
    for handle in full {
        first.free_handle(handle).expect("ours");
    }
    assert!(memory.free_bytes_held() > 8 * 4096, "frames stay for reuse");
    second.set_limit(4096);
    let handle = second.alloc(&pattern(1, 1568)).expect("one frame is within the limit");
    assert_eq!(second.stats().object_bytes_resident, 4096);
    second.check().expect("no defect");
    second.free_handle(handle).expect("ours");
}

#[test]
fn what_a_cpu_keeps_is_held_free_until_a_release() {
    let config = MemoryConfig {
        arena_frames: 1 << 12,
        entries_max: 1 << 20,
        expected_bytes: 64 << 20,
        worker: false,
    };
    let memory = Memory::new(config).expect("address space");
    let pool = pool(&memory, Rule::LeastWaste, 8);
    let handle = pool.alloc(&pattern(1, 4096)).expect("room");
    pool.free_handle(handle).expect("ours");
    pool.flush_deferred();
    assert_eq!((memory.listed_bytes(), memory.free_bytes_held()), (4096, 4096));
    memory.check_free_held().expect("no defect");
    assert_eq!(memory.release(0), 4096, "the frame is on a list and goes back all the same");
    assert_eq!((memory.listed_bytes(), memory.free_bytes_held()), (0, 0));
    let zone = memory.check_zone().expect("no defect in the zone");
    assert_eq!(zone.online_pageblocks, 0, "and so does what describes it");
}

/// Less than a release would bother for, and nothing to compact.
#[test]
fn what_a_cpu_keeps_goes_back_when_nobody_comes_for_it() {
    let config = MemoryConfig {
        arena_frames: 1 << 12,
        entries_max: 1 << 20,
        expected_bytes: 64 << 20,
        worker: true,
    };
    let memory = Memory::new(config).expect("address space");
    let pool = pool(&memory, Rule::LeastWaste, 8);
    let handle = pool.alloc(&pattern(1, 4096)).expect("room");
    pool.free_handle(handle).expect("ours");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while memory.free_bytes_held() > 0 || memory.listed_bytes() > 0 {
        assert!(std::time::Instant::now() < deadline, "{} bytes listed", memory.listed_bytes());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    memory.check_free_held().expect("no defect");
}

#[test]
fn free_frames_go_back_to_the_system_by_themselves() {
    let config = MemoryConfig {
        arena_frames: 1 << 12,
        entries_max: 1 << 20,
        expected_bytes: 2 << 20,
        worker: true,
    };
    let memory = Memory::new(config).expect("address space");
    let pool = pool(&memory, Rule::LeastWaste, 8);
    let handles: Vec<Handle> =
        (0..1024).map(|seed| pool.alloc(&pattern(seed, 4096)).expect("room")).collect();
    for handle in handles {
        pool.free_handle(handle).expect("ours");
    }
    // 4 MiB are free, 1 MiB may be held: the worker acts after a second.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while memory.free_bytes_held() > 1 << 20 {
        assert!(std::time::Instant::now() < deadline, "{} bytes held", memory.free_bytes_held());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    memory.check_zone().expect("no defect in the zone");
    memory.check_free_held().expect("no defect");
}

#[test]
fn a_pool_at_rest_compacts_itself() {
    let config = MemoryConfig {
        arena_frames: 1 << 14,
        entries_max: 1 << 20,
        expected_bytes: 64 << 20,
        worker: true,
    };
    let memory = Memory::new(config).expect("address space");
    let pool = pool(&memory, Rule::LeastWaste, 8);
    let mut handles: Vec<Handle> =
        (0..6000).map(|seed| pool.alloc(&pattern(seed, 1000)).expect("room")).collect();
    for handle in handles.drain(..).step_by(2).collect::<Vec<_>>() {
        pool.free_handle(handle).expect("ours");
    }
    assert!(!pool.is_settled());
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !pool.is_settled() {
        assert!(std::time::Instant::now() < deadline, "never settled");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let stats = pool.stats();
    assert!(stats.pages_compacted > 0);
    assert!(stats.object_bytes_resident < 3000 * 1050, "{stats:?}");
    pool.check().expect("no defect");
}

#[test]
fn numbers_that_no_leaf_has_are_refused() {
    let memory = memory(1 << 12);
    let pool = pool(&memory, Rule::LeastWaste, 8);
    for number in [1, 2, 1 << 20, 1 << 23, u32::MAX] {
        let leaf = ramfold_zsmalloc::LeafId::new(number).expect("not 0");
        assert!(pool.cell(leaf, 511).is_err() && pool.peek(leaf, 0).is_none(), "{number}");
    }
}

#[test]
fn compaction_does_not_count_as_use() {
    let memory = memory(1 << 14);
    let pool = pool(&memory, Rule::LeastWaste, 16);
    let mut handles: Vec<Handle> = (0..4000)
        .map(|seed| pool.alloc(&pattern(seed, 300 + seed as usize % 3000)).expect("room"))
        .collect();
    for handle in handles.drain(..).step_by(2).collect::<Vec<_>>() {
        pool.free_handle(handle).expect("ours");
    }
    let max = pool.stats().mem_used_max;
    pool.compact();
    assert_eq!(pool.stats().mem_used_max, max);
    pool.check().expect("no defect");
}

#[test]
fn a_leaf_is_refused_to_other_pools_and_after_it_was_freed() {
    let memory = memory(1 << 12);
    let (ours, theirs) = (pool(&memory, Rule::LeastWaste, 8), pool(&memory, Rule::LeastWaste, 8));
    let leaf = ours.alloc_leaf().expect("room");
    assert!(theirs.cell(leaf, 0).is_err() && theirs.free_leaf(leaf, |_| {}).is_err());
    let object = ours.store(b"in a cell").expect("room");
    ours.cell(leaf, 5).expect("ours").put(object);
    let mut seen = 0;
    ours.free_leaf(leaf, |cell| {
        assert_eq!(cell.bytes(), Some(&b"in a cell"[..]));
        seen += 1;
    })
    .expect("ours");
    assert_eq!(seen, 1);
    assert!(ours.cell(leaf, 5).is_err() && ours.free_leaf(leaf, |_| {}).is_err());
    assert_eq!(ours.check().expect("no defect").objects, 0);
}
