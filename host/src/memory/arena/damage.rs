//! Each rule of an arena's recount, against an arena that was damaged on purpose.
//!
//! Claim: the recount names the invariant that the damage breaks.

use std::sync::atomic::Ordering;

use super::{Arena, Pfn};

#[track_caller]
fn shows(damage: impl FnOnce(&Arena), finding: &str) {
    let arena = Arena::reserve(1024).expect("address space");
    let _run = arena.claim(Pfn::new(3), 2).expect("free");
    arena.check().expect("sound before the damage");
    damage(&arena);
    let defect = arena.check().expect_err("damaged").to_string();
    assert!(defect.contains(finding), "{defect:?} is not about {finding:?}");
}

#[test]
fn a_wrong_count_of_resident_frames_breaks_a3() {
    // relaxed: one thread, here and below.
    let counted = |arena: &Arena| _ = arena.resident_frames.fetch_add(1, Ordering::Relaxed);
    shows(counted, "A3: 1 resident frames, the bits say 0");
    let marked = |arena: &Arena| {
        arena.resident.touch(0..1);
        arena.resident[0].fetch_or(1 << 9, Ordering::Relaxed);
    };
    shows(marked, "A3: 0 resident frames, the bits say 1");
}
