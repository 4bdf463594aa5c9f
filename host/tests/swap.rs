//! Claim: pages that the system has swapped out are seen, and move to staging like others, in each
//! way in which pages move. The test needs swap space.

use ramfold_host::{FaultMode, FaultPath, PAGE_SIZE, Span, Staging};
use std::sync::Arc;

const PAGES: usize = 64;

#[test]
fn pages_in_the_systems_swap_are_moved() {
    let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    if swaps.lines().count() < 2 {
        return eprintln!("skipped: needs swap space");
    }
    for mode in [FaultMode::Signal, FaultMode::Protection, FaultMode::Guards] {
        match FaultPath::open(mode) {
            Ok(path) => they_are_moved(&path),
            Err(error) => eprintln!("skipped: needs {error}"),
        }
    }
}

fn they_are_moved(path: &Arc<FaultPath>) {
    let staging = Staging::reserve(path, 1).expect("staging");
    let (span, mut memory) = Span::reserve(path, PAGES).expect("a span");
    let bytes = memory.bytes_mut(0..PAGES * PAGE_SIZE).expect("all of it");
    bytes.chunks_mut(PAGE_SIZE).enumerate().for_each(|(at, page)| page.fill(at as u8 + 1));
    let start = std::ptr::without_provenance_mut(span.range().start);
    // SAFETY: a range of ours; the advice changes no byte.
    let answer = unsafe { libc::madvise(start, PAGES * PAGE_SIZE, libc::MADV_PAGEOUT) };
    assert_eq!(answer, 0);
    let there = span.resident(0..PAGES).count_ones();
    println!("{:?}: {there} of {PAGES} pages are in memory", span.mode());
    assert!(there < PAGES as u32, "the system has swapped some out");
    assert_eq!(span.touched(0..PAGES), Some(u64::MAX), "what is swapped out is the span's still");
    span.register(0..PAGES).expect("registered");
    let mut segment = staging.take().expect("taken back").expect("free");
    let moved = span.move_out(0, PAGES, &mut segment, 0);
    assert_eq!((moved.pages, moved.stop), (PAGES, None));
    for at in 0..PAGES {
        assert!(segment.page(at).expect("moved").iter().all(|&byte| byte == at as u8 + 1), "{at}");
    }
}
