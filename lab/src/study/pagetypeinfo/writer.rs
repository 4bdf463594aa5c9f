//! A thread that allocates and frees all the time.
//!
//! ```text
//!   gate | alloc or free, alloc or free, .. as long as `work` takes | frees all it has
//! ```
//!
//! Lock: none but the gate, which is passed once.

use crate::ground::{LabError, Rng};
use buddy::{Migratetype, PAGEBLOCK_FRAMES, Pfn, SharedZone, Warm};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

const SEED: u64 = 0x7772_6974;
const RUNS_MAX: usize = 256;
/// Frames of a run at most.
const FRAMES_MAX: u32 = 16;
/// Frames it may need: its runs, and as much again for pageblocks in part used.
pub(super) const ROOM: u32 = 2 * RUNS_MAX as u32 * FRAMES_MAX;
const _: () = assert!(ROOM / 2 >= 4 * PAGEBLOCK_FRAMES, "two types leave pageblocks in part used");

/// Runs `work` while the writer is busy; gives its result and the writer's operations in a second.
pub(super) fn beside<R>(
    zone: &SharedZone,
    run: u32,
    work: impl FnOnce() -> R,
) -> Result<(R, f64), LabError> {
    let (stop, gate) = (AtomicBool::new(false), Barrier::new(2));
    thread::scope(|scope| {
        let runs = Vec::with_capacity(RUNS_MAX);
        let mut writer = Writer { zone, rng: Rng::new(SEED, u64::from(run)), runs };
        let (stop, gate) = (&stop, &gate);
        let thread = scope.spawn(move || {
            gate.wait();
            writer.until(stop)
        });
        gate.wait();
        let done = work();
        // relaxed: it may do a few operations more; what it did is ordered by the join.
        stop.store(true, Ordering::Relaxed);
        let rate = thread.join();
        let rate = rate.unwrap_or_else(|_| Err(LabError::Wrong("the writer panicked".into())))?;
        Ok((done, rate))
    })
}

struct Writer<'a> {
    zone: &'a SharedZone,
    rng: Rng,
    runs: Vec<(Pfn, u32)>,
}

impl Writer<'_> {
    fn until(&mut self, stop: &AtomicBool) -> Result<f64, LabError> {
        let (start, mut operations) = (Instant::now(), 0_u64);
        // relaxed: see where it is stored.
        while !stop.load(Ordering::Relaxed) {
            self.operation()?;
            operations += 1;
        }
        let rate = operations as f64 / start.elapsed().as_secs_f64();
        while !self.runs.is_empty() {
            self.free(0)?;
        }
        Ok(rate)
    }

    /// The fuller its table, the likelier a free; a quarter of the requests is unmovable.
    fn operation(&mut self) -> Result<(), LabError> {
        let nth = self.rng.below(RUNS_MAX);
        if nth < self.runs.len() {
            return self.free(nth);
        }
        let frames = 1 + self.rng.below(FRAMES_MAX as usize) as u32;
        let unmovable = self.rng.below(4) == 0;
        let mt = if unmovable { Migratetype::Unmovable } else { Migratetype::Movable };
        let pfn = self.zone.alloc_run(frames, mt).map_err(LabError::store("the writer"))?;
        self.runs.push((pfn, frames));
        Ok(())
    }

    fn free(&mut self, nth: usize) -> Result<(), LabError> {
        let (pfn, frames) = self.runs.swap_remove(nth);
        let freed = self.zone.free_run(pfn, frames, Warm::Resident);
        freed.map_err(LabError::store("the writer"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apparatus::scattered;

    #[test]
    fn it_works_while_work_goes_on_and_leaves_nothing() {
        let zone = scattered::shared(300, ROOM).unwrap();
        let before = zone.allocated_frames();
        let busy = || {
            while zone.allocated_frames() <= before {
                thread::yield_now();
            }
        };
        let ((), rate) = beside(&zone, 0, busy).unwrap();
        assert!(rate > 0.0);
        assert_eq!(zone.allocated_frames(), before);
        scattered::is_scattered(&zone, 300).unwrap();
    }
}
