//! The ways in which discarded pages are freed.
//!
//! Claims
//! - In every way, a discarded page reads as zeros at once and a written page as written, whichever
//!   thread frees meanwhile. `check()` finds nothing.
//! - What is pending is counted and bounded, makes room for a write at the limit, and goes by
//!   itself.
//! - If the queue has no room, the discard frees at once.
//! - A device that is dropped takes its pending objects along.
#![cfg(not(loom))]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use disk::Disk;
use proptest::prelude::*;
use ramfold_zram::study::{FreeDesign, QueueConfig, Study};
use ramfold_zram::{Zram, ZramConfig};
use zsmalloc::Memory;

use memory::memory;

#[path = "support/memory.rs"]
mod memory;

const PAGE: usize = 4096;
const PAGES: u64 = 1100;

fn device(memory: &Arc<Memory>, free: FreeDesign, deferred: QueueConfig) -> Zram {
    let study = Study { free, deferred, ..Study::default() };
    let config = ZramConfig { study, ..ZramConfig::new("zram0", PAGES * PAGE as u64) };
    Zram::new(Arc::clone(memory), config).expect("a device")
}

fn plenty() -> QueueConfig {
    QueueConfig::default()
}

/// A queue that is soon exhausted.
fn little() -> QueueConfig {
    QueueConfig { shards: Some(1), buffer_bytes: 0, pending_bytes_max: 200_000 }
}

/// Content that says which page it is of, and which version.
fn data(page: u64, version: u64) -> Vec<u8> {
    if version.is_multiple_of(4) {
        return vec![version as u8 | 1; PAGE];
    }
    let mut state = (page << 32 | version) | 1;
    let mut next = move || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(page);
        (state >> 56) as u8
    };
    (0..PAGE).map(|at| if at % 4 == 0 { next() } else { version as u8 }).collect()
}

fn read(zram: &Zram, page: u64) -> Vec<u8> {
    let mut data = vec![1; PAGE];
    zram.read_page(page, &mut data).expect("in range");
    data
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[derive(Clone, Debug)]
enum Action {
    Write(u64),
    WritePart(u64, usize),
    Discard(u64, u64),
    DiscardBytes(u64, u64),
    Compact,
    Flush,
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        10 => (0..PAGES).prop_map(Action::Write),
        2 => (0..PAGES, 0..PAGE).prop_map(|(page, at)| Action::WritePart(page, at)),
        6 => (0..PAGES, 1u64..700).prop_map(|(page, count)| Action::Discard(page, count)),
        2 => (0..PAGES, 1u64..20_000).prop_map(|(page, len)| Action::DiscardBytes(page, len)),
        1 => Just(Action::Compact),
        1 => Just(Action::Flush),
    ]
}

struct Twin {
    zram: Zram,
    pages: BTreeMap<u64, Vec<u8>>,
    version: u64,
}

impl Twin {
    fn apply(&mut self, action: &Action) {
        self.version += 1;
        match *action {
            Action::Write(page) => {
                for page in page..(page + 30).min(PAGES) {
                    self.zram.write_page(page, &data(page, self.version)).expect("room");
                    self.pages.insert(page, data(page, self.version));
                }
            }
            Action::WritePart(page, at) => {
                let len = (PAGE - at).min(100);
                let offset = page * PAGE as u64 + at as u64;
                self.zram.write(offset, &vec![3; len]).expect("room");
                let whole = self.pages.entry(page).or_insert_with(|| vec![0; PAGE]);
                whole[at..at + len].fill(3);
            }
            Action::Discard(page, count) => {
                let end = (page + count).min(PAGES);
                self.zram.discard_pages(page..end).expect("in range");
                self.pages.retain(|at, _| !(page..end).contains(at));
            }
            Action::DiscardBytes(page, len) => self.discard_bytes(page * PAGE as u64 + 1000, len),
            Action::Compact => drop(self.zram.compact()),
            Action::Flush => self.zram.memory().flush_deferred(),
        }
    }

    fn discard_bytes(&mut self, offset: u64, len: u64) {
        let len = len.min(PAGES * PAGE as u64 - offset);
        self.zram.discard(offset, len).expect("in range");
        for (page, whole) in &mut self.pages {
            let first = page * PAGE as u64;
            let start = offset.clamp(first, first + PAGE as u64) - first;
            let end = (offset + len).clamp(first, first + PAGE as u64) - first;
            whole[start as usize..end as usize].fill(0);
        }
    }

    fn check(&self) {
        let report = self.zram.check().expect("no defect");
        let stat = self.zram.stat();
        assert!(report.moved || stat.pending_bytes <= stat.mem_used_total);
        for page in 0..PAGES {
            let expected = self.pages.get(&page).map_or(&[0; PAGE][..], Vec::as_slice);
            assert!(read(&self.zram, page) == expected, "page {page}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_device_is_its_twin_however_it_frees(
        actions in prop::collection::vec(action(), 1..40),
        free in prop::sample::select(FreeDesign::ALL.to_vec()),
        worker in any::<bool>(),
        scarce in any::<bool>(),
    ) {
        let memory = memory(worker);
        let zram = device(&memory, free, if scarce { little() } else { plenty() });
        let mut twin = Twin { zram, pages: BTreeMap::new(), version: 0 };
        for (step, action) in actions.iter().enumerate() {
            twin.apply(action);
            if step % 8 == 0 {
                twin.check();
            }
        }
        twin.check();
        twin.apply(&Action::Discard(0, PAGES));
        memory.flush_deferred();
        twin.pages.clear();
        twin.check();
        let stat = twin.zram.stat();
        prop_assert_eq!((stat.mem_used_total, stat.pending_bytes, stat.orig_data_size), (0, 0, 0));
    }
}

fn fill(zram: &Zram, pages: u64) {
    (0..pages).for_each(|page| zram.write_page(page, &data(page, 1)).expect("room"));
}

#[test]
fn an_object_is_pending_until_somebody_frees_it() {
    let memory = memory(false);
    let zram = device(&memory, FreeDesign::Handles, plenty());
    fill(&zram, 100);
    let before = zram.stat();
    zram.discard_pages(0..40).expect("in range");
    let stat = zram.stat();
    assert_eq!((stat.orig_data_size, zram.deferred().pending_values), (60 * PAGE as u64, 40));
    assert_eq!(stat.pending_bytes, before.compr_data_size - stat.compr_data_size);
    assert_eq!(memory.pending_bytes(), stat.pending_bytes);
    let held = stat.object_bytes_resident + stat.pending_bytes;
    assert_eq!(held, before.object_bytes_resident, "every byte is in one counter");
    memory.flush_deferred();
    assert_eq!((zram.stat().pending_bytes, memory.pending_bytes()), (0, 0));
    zram.check().expect("no defect");
}

#[test]
fn without_room_in_the_queue_a_discard_frees_at_once() {
    for free in [FreeDesign::Entries, FreeDesign::Handles] {
        let memory = memory(false);
        let deferred = QueueConfig { pending_bytes_max: 0, ..plenty() };
        let zram = device(&memory, free, deferred);
        fill(&zram, 100);
        zram.discard_pages(0..PAGES).expect("in range");
        let meters = zram.deferred();
        let stored = (0..100).filter(|page| data(*page, 1).iter().any(|&byte| byte != 1)).count();
        assert_eq!((meters.pending_values, meters.fallbacks), (0, stored as u64), "{free}");
        assert_eq!(zram.stat().mem_used_total, 0, "{free}");
    }
}

#[test]
fn sync_leaves_nothing_to_be_done() {
    let memory = memory(true);
    let zram = device(&memory, FreeDesign::Sync, plenty());
    fill(&zram, PAGES);
    zram.discard_pages(0..PAGES).expect("in range");
    let stat = zram.stat();
    assert_eq!((stat.mem_used_total, stat.pending_bytes, memory.deferred().jobs), (0, 0, 0));
}

#[test]
fn what_is_pending_goes_by_itself_where_there_is_a_worker() {
    for free in FreeDesign::ALL {
        let memory = memory(true);
        let zram = device(&memory, free, plenty());
        fill(&zram, PAGES);
        zram.discard_pages(10..PAGES).expect("in range");
        wait_until("nothing is pending", || zram.stat().pending_bytes == 0);
        assert_eq!(zram.stat().orig_data_size, 10 * PAGE as u64, "{free}");
        zram.check().expect("no defect");
    }
}

#[test]
fn a_write_at_the_limit_has_the_room_that_is_pending() {
    for free in FreeDesign::ALL {
        for worker in [false, true] {
            let zram = device(&memory(worker), free, plenty());
            zram.set_mem_limit(1 << 20);
            let fits = (0..PAGES)
                .find(|&page| zram.write_page(page, &data(page, 1)).is_err())
                .expect("1 MiB is not enough for all");
            for round in 2..6 {
                zram.discard_pages(0..fits).expect("in range");
                for page in 0..fits / 2 {
                    zram.write_page(page, &data(page, round)).expect("what is pending makes room");
                }
                assert!((0..fits / 2).all(|page| read(&zram, page) == data(page, round)));
            }
            zram.check().expect("no defect");
        }
    }
}

#[test]
fn a_device_that_is_dropped_takes_what_is_pending_along() {
    for free in FreeDesign::ALL {
        for worker in [false, true] {
            let memory = memory(worker);
            let zram = device(&memory, free, plenty());
            fill(&zram, PAGES);
            zram.discard_pages(0..PAGES / 2).expect("in range");
            drop(zram);
            memory.flush_deferred();
            wait_until("all frames are free", || {
                let zone = memory.check_zone().expect("no defect in the zone");
                zone.allocated_frames == zone.listed_frames
            });
        }
    }
}

/// Threads that own pages write, discard and read them while the worker drains and another thread
/// compacts. The queue is exhausted again and again. Each thread finds its own bytes.
#[test]
fn a_later_write_wins_against_any_drain() {
    const THREADS: u64 = 3;
    const STEPS: u64 = 12_000;
    for free in FreeDesign::ALL {
        for deferred in [plenty(), little()] {
            let zram = device(&memory(true), free, deferred);
            let done = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let (zram, done) = (&zram, &done);
                let workers: Vec<_> = (0..THREADS)
                    .map(|thread| scope.spawn(move || own_pages(zram, thread, STEPS)))
                    .collect();
                scope.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        zram.compact();
                        zram.check().expect("no defect under load");
                        zram.memory().flush_deferred();
                    }
                });
                let ended: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
                done.store(true, Ordering::Relaxed);
                ended.into_iter().for_each(|ended| ended.expect("no wrong read"));
            });
            zram.check().expect("no defect");
        }
    }
}

/// Every 3rd page, in an order that depends on the thread.
fn own_pages(zram: &Zram, thread: u64, steps: u64) {
    let mut versions = vec![0; 64];
    let mut state = thread + 1;
    for step in 1..=steps {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(99);
        let which = (state >> 33) % 64;
        // They are spread over all leaves.
        let page = (which * 17 * 3 + thread) % (PAGES / 3 * 3);
        let known = &mut versions[which as usize];
        let expected = if *known == 0 { vec![0; PAGE] } else { data(page, *known) };
        assert!(read(zram, page) == expected, "page {page} of thread {thread} at step {step}");
        if !(state >> 50).is_multiple_of(3) {
            zram.write_page(page, &data(page, step)).expect("room");
            *known = step;
        } else {
            zram.discard_pages(page..page + 1).expect("in range");
            *known = 0;
        }
    }
}
