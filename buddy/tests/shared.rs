//! The shared zone under threads, with per-CPU lists and without.
//!
//! Claim: whatever the interleaving, no frame is in two runs at once, and when all is freed, and
//! the lists are drained, the zone is as if one thread had done it.

use std::sync::atomic::{AtomicBool, Ordering};

use ramfold_buddy::{FreedRun, Order, Pfn, SharedZone, Warm};

const FRAMES: u32 = 4 * 512;
const THREADS: u32 = 4;
const ROUNDS: u32 = if cfg!(miri) { 20 } else { 40_000 };

struct Owned<'a> {
    zone: &'a SharedZone,
    frames: &'a [AtomicBool],
    runs: Vec<(Pfn, u32)>,
    /// Two threads share one.
    cpu: usize,
}

impl Owned<'_> {
    fn alloc(&mut self, frames: u32) {
        let Ok(pfn) = self.zone.alloc_movable(self.cpu, frames) else { return };
        self.mark(pfn, frames, true);
        self.runs.push((pfn, frames));
    }

    fn free(&mut self, nth: u32) {
        if self.runs.is_empty() {
            return;
        }
        let (pfn, frames) = self.runs.swap_remove(nth as usize % self.runs.len());
        self.mark(pfn, frames, false);
        let run = FreedRun { pfn, frames, warm: Warm::Resident };
        let freed = self.zone.free_movable(self.cpu, [run].into_iter());
        assert_eq!(freed, Ok(()), "{frames} at {pfn}");
    }

    fn mark(&self, pfn: Pfn, frames: u32, owned: bool) {
        for frame in &self.frames[pfn.get() as usize..][..frames as usize] {
            let before = frame.swap(owned, Ordering::Relaxed);
            assert_ne!(before, owned, "a frame of the run of {frames} at {pfn} has two owners");
        }
    }

    fn release(&mut self) {
        if let Some((pfn, order)) = self.zone.take_largest_warm(Order::ZERO) {
            self.mark(pfn, order.frames(), true);
            self.mark(pfn, order.frames(), false);
            let back = self.zone.free_run(pfn, order.frames(), Warm::Untouched);
            assert_eq!(back, Ok(()), "putting back {order} at {pfn}");
        }
    }
}

/// A linear congruential generator: the same calls in every run, whatever their interleaving.
fn next(seed: &mut u32) -> u32 {
    *seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    *seed >> 16
}

fn churn(mut owned: Owned<'_>, mut seed: u32) {
    for _ in 0..ROUNDS {
        match next(&mut seed) % 8 {
            0..4 => owned.alloc(next(&mut seed) % 40 + 1),
            4..7 => owned.free(next(&mut seed)),
            _ => owned.release(),
        }
    }
    while !owned.runs.is_empty() {
        owned.free(0);
    }
}

fn threads_share_nothing_on(zone: &SharedZone) {
    let frames: Vec<AtomicBool> = (0..FRAMES).map(|_| AtomicBool::new(false)).collect();
    std::thread::scope(|scope| {
        for seed in 0..THREADS {
            let cpu = seed as usize / 2;
            let owned = Owned { zone, frames: &frames, runs: Vec::new(), cpu };
            scope.spawn(move || churn(owned, seed));
        }
    });
    let found = zone.check().expect("sound after the threads");
    assert_eq!(found.allocated_frames, found.listed_frames, "something was not freed");
    zone.drain();
    let found = zone.check().expect("sound without runs on lists");
    assert_eq!((found.runs, found.listed_frames), (0, 0), "something was not drained");
    assert_eq!(zone.free_frames(), zone.online_frames());
    assert!(zone.largest_free_order() >= Some(Order::PAGEBLOCK), "free blocks were not merged");
}

#[test]
fn threads_never_share_a_frame() {
    threads_share_nothing_on(&SharedZone::new(FRAMES));
}

#[test]
fn threads_with_lists_never_share_a_frame() {
    threads_share_nothing_on(&SharedZone::with_lists(FRAMES, 2, 64));
}
