//! What cannot be is refused: lengths, full tables, and handles of others.
//!
//! Claims
//! - a length without a class is refused by every way in, and nothing is written;
//! - an arena without frames and a table without cells refuse each by its own error, keep what they
//!   hold, and serve again when something was freed; descriptors do not run out before frames;
//! - a handle of another pool or memory comes back, and what it names stays;
//! - a raw handle that is stale, another pool's, freed before or made up is refused.
//!
//! Invariant: what is refused has changed nothing; `check()` follows every refusal.
#![cfg(not(loom))]

use std::sync::Arc;

#[cfg(feature = "study")]
use ramfold_zsmalloc::study::LockDesign;
use ramfold_zsmalloc::{
    AllocError, Content, LEAF_CELLS, LeafId, Memory, MemoryConfig, Pool, PoolConfig, RawHandle,
    SIZE_MAX, StaleHandle, StaleLeaf,
};

/// The smallest arena.
const FRAMES: u32 = 512;

const CONFIG: MemoryConfig = MemoryConfig {
    arena_frames: FRAMES,
    entries_max: 64 * LEAF_CELLS as u64,
    expected_bytes: 1 << 20,
    worker: false,
};

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (seed.wrapping_mul(0x9e37_79b9) >> (at % 24)) as u8 ^ at as u8).collect()
}

fn pool(memory: &Arc<Memory>) -> Arc<Pool> {
    Pool::new(Arc::clone(memory), PoolConfig::default()).expect("a pool")
}

fn memory(config: MemoryConfig) -> Arc<Memory> {
    Memory::new(config).expect("address space")
}

#[test]
fn lengths_without_a_class_are_refused_by_every_way_in() {
    let pool = pool(&memory(CONFIG));
    for len in [0, SIZE_MAX + 1, 1 << 20] {
        let (bytes, refused) = (vec![1; len], Some(AllocError::BadLength { len }));
        assert_eq!(pool.alloc(&bytes).err(), refused);
        assert_eq!(pool.alloc_raw(&bytes).err(), refused);
        assert_eq!(pool.store(&bytes).err(), refused);
        let filled = pool.alloc_with(len, |_| panic!("there is nothing to fill"));
        assert_eq!(filled.err(), refused);
    }
    assert_eq!(pool.check().expect("no defect").objects, 0);
}

#[test]
fn runs_that_cannot_be_are_refused() {
    let memory = memory(MemoryConfig { arena_frames: 1 << 12, ..CONFIG });
    for frames in [0, 1025, u32::MAX] {
        assert_eq!(memory.frames(frames).err(), Some(AllocError::BadRun { frames }));
    }
    let whole: Vec<_> = (0..4).map(|_| memory.frames(1024).expect("an empty arena")).collect();
    assert_eq!(memory.frames(1).err(), Some(AllocError::OutOfFrames));
    drop(whole);
}

#[test]
fn an_arena_without_frames_refuses_and_recovers() {
    let pool = pool(&memory(CONFIG));
    let mut handles = Vec::new();
    let error = loop {
        match pool.alloc(&pattern(handles.len(), SIZE_MAX)) {
            Ok(handle) => handles.push(handle),
            Err(error) => break error,
        }
    };
    assert_eq!((error, handles.len()), (AllocError::OutOfFrames, FRAMES as usize));
    let leaf = pool.alloc_leaf().expect("cells are not frames");
    assert_eq!(pool.store(&[1; 64]).err(), Some(AllocError::OutOfFrames));
    assert_eq!(pool.alloc_raw(&[1; 64]).err(), Some(AllocError::OutOfFrames));
    let filled = pool.alloc_with(64, |_| panic!("there is nothing to fill"));
    assert_eq!(filled.err(), Some(AllocError::OutOfFrames));
    pool.check().expect("no defect");
    pool.free_handle(handles.pop().expect("512 of them")).expect("ours");
    let raw = pool.alloc_raw(&[1; 64]).expect("a frame became free");
    pool.cell(leaf, 0).expect("ours").put(pool.store(&[2; 64]).expect("its neighbour"));
    assert_eq!(pool.check().expect("no defect").objects, u64::from(FRAMES) + 1);
    for (seed, handle) in handles.iter().enumerate() {
        assert_eq!(*pool.read(handle).expect("ours"), pattern(seed, SIZE_MAX)[..]);
    }
    pool.free_raw(raw).expect("ours");
}

#[test]
fn a_full_table_of_cells_refuses_and_recovers() {
    let entries_max = 4 * LEAF_CELLS as u64;
    let pool = pool(&memory(MemoryConfig { entries_max, ..CONFIG }));
    let handle = pool.alloc(b"before").expect("room");
    let mut leaves = Vec::new();
    let refused = loop {
        match pool.alloc_leaf() {
            Ok(leaf) => leaves.push(leaf),
            Err(error) => break error,
        }
    };
    assert_eq!((refused, leaves.len()), (AllocError::OutOfCells, 3));
    let used = pool.stats().mem_used_total;
    assert_eq!(
        pool.alloc_raw(b"raw handles have leaves of their own"),
        Err(AllocError::OutOfCells)
    );
    assert_eq!(pool.check().expect("no defect").objects, 1, "the slot went back");
    assert_eq!(pool.stats().mem_used_total, used, "and its frames");
    pool.free_leaf(leaves.remove(0), |_| {}).expect("ours");
    let leaf = pool.alloc_leaf().expect("a leaf became free");
    assert_eq!(pool.cell(leaf, LEAF_CELLS - 1).expect("ours").content(), Content::Empty);
    pool.free_handle(handle).expect("ours");
}

/// One leaf, and classes enough for each to keep a part of its entries.
#[test]
fn free_entries_of_other_classes_are_found() {
    let entries_max = 2 * LEAF_CELLS as u64;
    let fill = |pool: &Pool, len: fn(usize) -> usize| {
        let alloc = |seed| pool.alloc(&pattern(seed, len(seed)));
        let handles: Vec<_> = (0..).map_while(|seed| alloc(seed).ok()).collect();
        assert_eq!(pool.alloc(b"one more").err(), Some(AllocError::OutOfCells));
        assert_eq!(pool.check().expect("no defect").objects, 1 + handles.len() as u64);
        for (seed, handle) in handles.iter().enumerate() {
            assert_eq!(*pool.read(handle).expect("ours"), pattern(seed, len(seed))[..]);
        }
        handles
    };
    let pool = pool(&memory(MemoryConfig { arena_frames: 1 << 14, entries_max, ..CONFIG }));
    let raw = pool.alloc_raw(b"the other leaf").expect("room");
    for len in [|seed| 1 + seed % 29 * 40, |_| 100, |seed| 1 + seed % 31 * 130] {
        let handles = fill(&pool, len);
        assert_eq!(handles.len(), LEAF_CELLS, "every entry there is");
        pool.free_batch(handles).expect("ours");
        assert_eq!(pool.check().expect("no defect").objects, 1);
    }
    let entries = LEAF_CELLS / 2 - 1;
    let raws: Vec<_> = (0..entries).map(|seed| pool.alloc_raw(&[1; 4000][seed * 15..])).collect();
    assert!(raws.iter().all(Result::is_ok), "raw entries take two cells each");
    assert_eq!(pool.alloc_raw(b"one more"), Err(AllocError::OutOfCells));
    raws.into_iter().flatten().chain([raw]).for_each(|raw| pool.free_raw(raw).expect("ours"));
    assert_eq!(pool.check().expect("no defect").objects, 0);
}

/// The longest descriptors, as many as there are frames for: those run out, not the table.
#[test]
fn the_smallest_objects_fill_every_frame_of_the_smallest_arena() {
    let entries_max = u64::from(FRAMES) * 128 + 64 * LEAF_CELLS as u64;
    let pool = pool(&memory(MemoryConfig { entries_max, ..CONFIG }));
    let mut handles = Vec::new();
    let error = loop {
        match pool.alloc(&pattern(handles.len(), 32)) {
            Ok(handle) => handles.push(handle),
            Err(error) => break error,
        }
    };
    assert_eq!((error, handles.len()), (AllocError::OutOfFrames, FRAMES as usize * 128));
    pool.check().expect("no defect");
    for (seed, handle) in handles.iter().enumerate() {
        assert_eq!(*pool.read(handle).expect("ours"), pattern(seed, 32)[..]);
    }
    pool.free_batch(handles).expect("ours");
    assert_eq!(pool.check().expect("no defect").objects, 0);
    let handle = pool.alloc(b"again").expect("descriptors became free");
    pool.free_handle(handle).expect("ours");
}

/// Another pool of the same memory, and the first pool of another, which has the same number.
fn strangers(pool: &Pool) -> [Arc<Pool>; 2] {
    [crate::pool(pool.memory()), crate::pool(&memory(CONFIG))]
}

#[test]
fn foreign_handles_come_back_and_do_nothing() {
    let ours = pool(&memory(CONFIG));
    for theirs in strangers(&ours) {
        let handle = ours.alloc(b"ours").expect("room");
        assert!(theirs.read(&handle).is_err());
        let handle = theirs.free_handle(handle).expect_err("another pool's").0;
        let mixed = [handle, theirs.alloc(b"theirs").expect("room")];
        let mut back = theirs.free_batch(mixed).expect_err("one is another pool's").0;
        assert_eq!(back.len(), 1, "its own was freed");
        assert_eq!(theirs.check().expect("no defect").objects, 0);
        let handle = back.remove(0);
        assert_eq!(*ours.read(&handle).expect("still there"), b"ours"[..]);
        ours.free_handle(handle).expect("ours");
        assert_eq!(ours.check().expect("no defect").objects, 0);
    }
}

#[test]
fn raw_handles_are_refused_when_stale_foreign_freed_twice_or_made_up() {
    let ours = pool(&memory(CONFIG));
    let refused = |pool: &Pool, raw: RawHandle| {
        assert_eq!(pool.read_raw(raw, &mut [0; 8]), Err(StaleHandle), "{raw:?}");
        assert_eq!(pool.free_raw(raw), Err(StaleHandle), "{raw:?}");
        pool.check().expect("no defect");
    };
    let (raw, handle) =
        (ours.alloc_raw(b"raw").expect("room"), ours.alloc(b"owned").expect("room"));
    strangers(&ours).iter().for_each(|stranger| refused(stranger, raw));
    for bit in 0..u64::BITS {
        refused(&ours, RawHandle::new(raw.get() ^ 1 << bit));
    }
    for made_up in [0, 1, u64::MAX, u64::from(u32::MAX)] {
        refused(&ours, RawHandle::new(made_up));
    }
    ours.free_raw(raw).expect("ours");
    refused(&ours, raw);
    // The same entry, the next of its lives.
    let again = ours.alloc_raw(b"again").expect("room");
    assert_eq!(again.get() as u32, raw.get() as u32, "the entry freed last is taken first");
    refused(&ours, raw);
    assert_eq!(ours.read_raw(again, &mut [0; 8]), Ok(5));
    ours.free_raw(again).expect("ours");
    assert_eq!(*ours.read(&handle).expect("untouched by all this"), b"owned"[..]);
    ours.free_handle(handle).expect("ours");
}

#[test]
fn a_batch_whose_iterator_panics_frees_what_it_gave() {
    let pool = pool(&memory(CONFIG));
    for given in [0, 1, 511, 512, 700] {
        let handles: Vec<_> = (0..given).map(|_| pool.alloc(b"object").expect("room")).collect();
        let end = std::iter::from_fn(|| panic!("on purpose"));
        let batch = || pool.free_batch(handles.into_iter().chain(end));
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(batch));
        assert!(panicked.is_err());
        assert_eq!(pool.check().expect("no defect").objects, 0, "of {given}");
    }
}

/// Its slot and its entry go back, and the next object gets them.
#[test]
fn an_object_whose_filling_panics_is_freed() {
    let pool = pool(&memory(CONFIG));
    let filling = || pool.alloc_unzeroed_with(100, |_| panic!("on purpose"));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(filling));
    assert!(panicked.is_err());
    assert_eq!(pool.check().expect("no defect").objects, 0, "of a handle");
    drop(pool.store(b"nobody's").expect("room"));
    assert_eq!(pool.check().expect("no defect").objects, 0, "dropped");
}

#[test]
fn an_empty_batch_does_nothing() {
    let pool = pool(&memory(CONFIG));
    pool.free_batch([]).expect("nothing");
    assert!(pool.is_settled(), "nothing was freed");
}

/// The next pool of the memory must not own what a handle of the last one names.
#[test]
fn a_handle_that_outlived_its_pool_is_foreign_to_the_next() {
    let memory = memory(MemoryConfig {
        arena_frames: 1 << 12,
        entries_max: 1 << 13,
        expected_bytes: 0,
        worker: false,
    });
    let first = pool(&memory);
    let stale = first.alloc(b"first").expect("room");
    drop(first);
    let next = pool(&memory);
    let own = next.alloc(b"second").expect("room");
    assert!(next.read(&stale).is_err());
    assert!(next.free_handle(stale).is_err());
    assert_eq!(*next.read(&own).expect("its own"), b"second"[..]);
    next.free_handle(own).expect("its own");
}

/// What a reader holds in place is walked past.
#[test]
fn a_pinned_object_does_not_stop_the_compaction_of_its_class() {
    let memory = memory(MemoryConfig {
        arena_frames: 1 << 14,
        entries_max: 1 << 15,
        expected_bytes: 0,
        worker: false,
    });
    let pool = pool(&memory);
    let all: Vec<_> =
        (0..2000).map(|seed| pool.alloc(&pattern(seed, 1000)).expect("room")).collect();
    let (kept, gone): (Vec<_>, Vec<_>) =
        all.into_iter().enumerate().partition(|(at, _)| at % 8 == 0);
    pool.free_batch(gone.into_iter().map(|(_, handle)| handle)).expect("its own");
    let guards: Vec<_> = kept.iter().take(3).map(|(_, one)| pool.read(one).expect("own")).collect();
    let freeable = pool.freeable_frames();
    assert!(pool.compact() > freeable / 2, "{freeable} frames were freeable");
    drop(guards);
    pool.check().expect("no defect");
}

/// Each class's old zspage goes back before the next class needs frames to move to. With one lock
/// no zspages join, which would give frames back before.
#[test]
#[cfg(feature = "study")]
fn frames_for_one_zspage_are_enough_to_pack_every_class() {
    let memory = memory(MemoryConfig { arena_frames: 1 << 12, entries_max: 1 << 15, ..CONFIG });
    let config = PoolConfig { study: LockDesign::Pool.into(), ..PoolConfig::default() };
    let pool = Pool::new(Arc::clone(&memory), config).expect("a pool");
    let shape = |class| pool.geometry().shape(class);
    let classes = || pool.geometry().classes().filter(|&class| shape(class).frames == 8);
    let resident = || pool.stats().object_bytes_resident / 4096;
    let mut kept = Vec::new();
    for size in classes().map(|class| usize::from(shape(class).size)) {
        let slots = 8 * 4096 / size;
        let mut handles: Vec<_> =
            (0..slots).map(|_| pool.alloc(&pattern(size, size)).expect("room")).collect();
        kept.push((size, handles.swap_remove(slots / 2)));
        pool.free_batch(handles).expect("ours");
    }
    assert!(kept.len() > 10, "{} classes have zspages of 8 frames", kept.len());
    assert_eq!(resident(), 8 * kept.len() as u64, "frames go back with their zspage");
    let mut rest: Vec<_> = std::iter::from_fn(|| memory.frames(8).ok()).collect();
    drop(rest.pop().expect("for one zspage"));
    pool.compact();
    assert_eq!(resident(), kept.len() as u64, "one frame each");
    for (size, handle) in &kept {
        assert_eq!(*pool.read(handle).expect("ours"), pattern(*size, *size)[..]);
    }
    pool.check().expect("no defect");
}

/// Whoever looks at what is in a leaf panics at one: the others are freed all the same.
#[test]
fn a_leaf_is_freed_though_who_looks_at_it_panics() {
    let pool = Pool::new(Memory::new(CONFIG).expect("address space"), PoolConfig::default());
    let pool = pool.expect("a pool");
    let leaf = pool.alloc_leaf().expect("room");
    for index in 0..LEAF_CELLS {
        let object = pool.store(&pattern(index, 100)).expect("room");
        pool.cell(leaf, index).expect("ours").put(object);
    }
    let mut seen = 0;
    let freeing = std::panic::AssertUnwindSafe(|| {
        pool.free_leaf(leaf, |_| {
            seen += 1;
            assert!(seen < 10, "on purpose");
        })
    });
    assert!(std::panic::catch_unwind(freeing).is_err());
    assert_eq!(pool.check().expect("no defect").objects, 0);
    assert_eq!(pool.stats().leaves, 0, "it can be had again");
}

#[test]
fn parts_of_a_table_at_the_end_of_all_numbers() {
    let parts: Vec<_> = ramfold_zsmalloc::leaf_parts(u64::MAX - 1..u64::MAX, u64::MAX).collect();
    assert_eq!(parts.len(), 1, "{parts:?}");
    assert_eq!(parts[0].pages, u64::MAX - 1..u64::MAX);
}

/// The story: the tables are not open where no leaf was ever used, and an exchange there, even one
/// that fails, ended the process.
#[test]
fn a_leaf_number_that_was_made_up_is_refused_wherever_it_is() {
    let entries_max = 1 << 24;
    let memory = memory(MemoryConfig { entries_max, ..CONFIG });
    let pool = pool(&memory);
    for number in [1, 20_000, (entries_max / LEAF_CELLS as u64) as u32, u32::MAX] {
        let leaf = LeafId::new(number).expect("not 0");
        assert_eq!(pool.free_leaf(leaf, |_| {}), Err(StaleLeaf), "leaf {number}");
        assert_eq!(pool.cell(leaf, 5).err(), Some(StaleLeaf), "leaf {number}");
        assert!(pool.peek(leaf, 5).is_none() && pool.leaf_word(leaf).is_none(), "leaf {number}");
        pool.prefetch(leaf, 5);
    }
    pool.check().expect("no defect");
}
