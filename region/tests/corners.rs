//! Cases where promises meet: pins and chunks, limits and prefetching, full stores and limits,
//! drops and page-outs, and limits and their end.

mod setting;

use ramfold_region::{
    Memory, MemoryConfig, Pager, PagerConfig, Refusal, Region, RegionConfig, Teardown,
};
use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PAGE: usize = 4096;

fn signal() -> Option<Arc<Pager>> {
    setting::pager(&PagerConfig::default())
}

/// Fills bytes with content that does not compress.
fn noise(bytes: &mut [u8]) {
    let mut noise = 1u64;
    for byte in bytes {
        noise = noise.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        *byte = (noise >> 56) as u8;
    }
}

#[test]
fn a_pin_holds_when_its_chunk_is_paged_out_after_it() {
    let Some(pager) = signal() else { return };
    let mut region = Region::map(&pager, 512 * PAGE, &RegionConfig::default()).expect("one");
    let control = region.control();
    // No thread has touched these pages.
    let mut pinned = region.pin_mut(0..16 * PAGE).expect("pinned");
    control.page_out(0..65 * PAGE).expect("out");
    let mut zero = std::fs::File::open("/dev/zero").expect("zeros");
    assert_eq!(zero.read(&mut pinned).ok(), Some(16 * PAGE), "a system call uses them");
}

#[test]
fn prefetching_stops_at_the_limit() {
    let Some(pager) = signal() else { return };
    let config = RegionConfig { resident_limit: Some(2 << 20), ..RegionConfig::default() };
    let mut region = Region::map(&pager, 16 << 20, &config).expect("one");
    region.as_mut_slice().chunks_mut(PAGE).for_each(|page| noise(&mut page[..1000]));
    region.control().prefetch(0..16 << 20).expect("in");
    let stats = region.stats();
    assert!(stats.resident_pages + stats.staged_pages <= 512 + 64 + 16, "{stats:?}");
}

#[test]
fn a_full_store_exceeds_the_limit_and_stops_nobody() {
    let Some(pager) = signal() else { return };
    let config = RegionConfig {
        resident_limit: Some(1 << 20),
        store_limit: 64 << 10,
        ..RegionConfig::default()
    };
    let mut region = Region::map(&pager, 4 << 20, &config).expect("one");
    noise(region.as_mut_slice());
    let stats = region.stats();
    assert!(stats.refused > 0 && stats.resident_pages > 900, "{stats:?}");
    assert!(
        stats.waits < 8,
        "a fault waits until the pager has seen that it is of no use: {stats:?}"
    );
}

/// Every error of the device was once taken for its limit, and a region without a limit did
/// nothing.
#[test]
fn a_memory_that_is_used_up_is_told_from_a_store_at_its_limit() {
    let config = MemoryConfig { arena_frames: 1 << 10, ..MemoryConfig::for_disk(4 << 20) };
    let memory = Memory::new(config).expect("a memory");
    let Ok(pager) = Pager::new(memory, &PagerConfig::default()) else {
        return eprintln!("skipped: needs userfaultfd");
    };
    let mut region = Region::map(&pager, 8 << 20, &RegionConfig::default()).expect("one");
    noise(region.as_mut_slice());
    assert_eq!(region.stats().last_refusal, None);
    let out = region.control().page_out(0..8 << 20).expect("tried");
    assert!(out.stored > 0 && out.refused > 0, "{out:?}");
    assert_eq!(out.refusal, Some(Refusal::NoMemory), "{out:?}");
    assert_eq!(region.stats().last_refusal, Some(Refusal::NoMemory));
    assert!(Refusal::NoMemory.to_string().contains("arena"), "it says what to change");
}

#[test]
fn regions_come_and_go_in_any_number() {
    let Some(pager) = signal() else { return };
    for number in 0..3000 {
        let region = Region::map(&pager, 1 << 20, &RegionConfig::default());
        let mut region = region.unwrap_or_else(|error| panic!("region {number}: {error}"));
        region.as_mut_slice()[0] = 1;
        region.control().page_out(0..PAGE).expect("out");
    }
}

#[test]
fn busy_pages_are_counted_once() {
    let Some(pager) = signal() else { return };
    let mut region = Region::map(&pager, 640 * PAGE, &RegionConfig::default()).expect("one");
    region.as_mut_slice().fill(3);
    let pinned = region.pin(0..10 * PAGE).expect("pinned");
    let out = region.control().page_out_coldest(10_000).expect("out");
    drop(pinned);
    assert_eq!((out.stored, out.busy), (576, 64), "{out:?}");
}

#[test]
fn a_region_ends_without_a_worker_too() {
    let config = MemoryConfig { worker: false, ..MemoryConfig::for_disk(16 << 20) };
    let memory = Memory::new(config).expect("a memory");
    let Ok(pager) = Pager::new(memory, &PagerConfig::default()) else {
        eprintln!("skipped: needs userfaultfd");
        return;
    };
    for teardown in [Teardown::Range, Teardown::Sync] {
        let mut region = Region::map(&pager, 4 << 20, &RegionConfig::default()).expect("one");
        noise(region.as_mut_slice());
        region.control().page_out(0..4 << 20).expect("out");
        region.teardown(teardown);
        let zone = pager.memory().check_zone().expect("the zone is whole");
        assert_eq!(zone.allocated_frames, zone.listed_frames, "{teardown:?}");
        assert_eq!(pager.memory().pending_bytes(), 0);
    }
}

#[test]
fn a_lifted_limit_leaves_nothing_in_staging() {
    const BYTES: usize = 64 << 20;
    let Some(pager) = signal() else { return };
    let mut region = Region::map(&pager, BYTES, &RegionConfig::default()).expect("a region");
    region.as_mut_slice().chunks_mut(PAGE).for_each(|page| noise(&mut page[..800]));
    for round in 0..40 {
        region.control().prefetch(0..BYTES).expect("all of it is back");
        region.set_resident_limit(Some(BYTES / 2)).expect("a limit");
        // The pager is at work, near its beginning or further on.
        std::thread::sleep(Duration::from_micros(round * 37));
        region.set_resident_limit(None).expect("no limit");
        let started = Instant::now();
        while region.stats().staged_pages > 0 {
            assert!(started.elapsed() < Duration::from_secs(20), "round {round}: staged for good");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    assert_eq!(region.control().check().expect("alive"), [""; 0]);
}
