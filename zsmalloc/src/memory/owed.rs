//! Frames that are owed to the system.
//!
//! Sometimes untouched frames are taken although more free frames are held than the worker leaves.
//! The runs that are held are then too short for the request, or lie in warm blocks beside frames
//! that were returned. Resident memory would grow until the worker's next release. So for each such
//! frame a free one is owed, and is released as soon as that is worth a call.
//!
//! ```text
//!   taken: 3 frames, 1 resident    owed += 2    each 256: the worker releases as many
//! ```
//!
//! Invariants
//! - I1 no more than is owed goes back, except for the rest of a block that is larger. No frame of
//!   those that the worker leaves goes back, because it would soon be faulted in again.
//! - I2 what others free meanwhile is not chased.
//!
//! A run that comes and goes untouched is owed each time, although nothing grows. Then the frames
//! that are held fall to the bound, to which the next release would bring them too.
//!
//! Lock: none; the frames owed are one atomic. The release that pays them takes its own.

use std::sync::atomic::{AtomicU64, Ordering};

/// Frames owed that are worth a release.
const WORTH: u64 = 256; // 1 MiB

/// How many.
#[derive(Default)]
pub(crate) struct Owed(AtomicU64);

impl Owed {
    /// Counts untouched frames that were taken. True if that makes it enough for a release, or
    /// twice enough.
    pub(crate) fn owe(&self, frames: u32) -> bool {
        let frames = u64::from(frames);
        // relaxed: a hint of how much.
        let owed = self.0.fetch_add(frames, Ordering::Relaxed);
        (owed + frames) / WORTH > owed / WORTH
    }

    /// Takes what is owed: the caller releases as many frames.
    pub(crate) fn take(&self) -> u64 {
        // relaxed: a hint.
        self.0.swap(0, Ordering::Relaxed)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::memory::worker::Chores;
    use crate::{Handle, Memory, MemoryConfig, Pool, PoolConfig, SIZE_MAX};
    use host::PAGE_SIZE;
    use std::sync::Arc;

    fn pool(worker: bool) -> Arc<Pool> {
        let (arena_frames, entries_max, expected_bytes) = (1 << 15, 1 << 16, 1 << 30);
        let config = MemoryConfig { arena_frames, entries_max, expected_bytes, worker };
        Pool::new(Memory::new(config).expect("address space"), PoolConfig::default())
            .expect("a pool")
    }

    /// Objects of a whole frame each; every other one of them, and the others.
    fn frames(pool: &Pool) -> (Vec<Handle>, Vec<Handle>) {
        let (mut even, mut odd) = (Vec::new(), Vec::new());
        for _ in 0..1024 {
            even.push(pool.alloc(&[1; SIZE_MAX]).expect("room"));
            odd.push(pool.alloc(&[1; SIZE_MAX]).expect("room"));
        }
        (even, odd)
    }

    /// Frames that go back when so many are owed.
    fn repaid(memory: &Memory, owed: u64, keep: u64) -> u64 {
        let before = memory.free_bytes_held();
        let owing = Owed::default();
        owing.0.store(owed, Ordering::Relaxed);
        memory.repay(owing.take(), keep);
        memory.repay(owing.take(), keep);
        (before - memory.free_bytes_held()) / PAGE_SIZE as u64
    }

    /// Blocks of one frame each, beside larger ones: it is to the frame.
    #[test]
    fn as_many_frames_go_back_as_are_owed() {
        let pool = pool(false);
        let large: Vec<Handle> =
            (0..8192).map(|_| pool.alloc(&[1; SIZE_MAX]).expect("room")).collect();
        let (kept, freed) = frames(&pool);
        pool.free_batch(freed.into_iter().chain(large)).expect("ours");
        for owed in [0, 1, 256, 700] {
            assert_eq!(repaid(pool.memory(), owed, 0), owed);
        }
        pool.free_batch(kept).expect("ours");
    }

    /// If the smallest block has more frames than are owed, it goes alone.
    #[test]
    fn a_block_is_not_cut() {
        let pool = pool(false);
        let all: Vec<Handle> =
            (0..8192).map(|_| pool.alloc(&[1; SIZE_MAX]).expect("room")).collect();
        pool.free_batch(all).expect("ours");
        assert!((1..=1024).contains(&repaid(pool.memory(), 1, 0)));
    }

    #[test]
    fn what_the_worker_leaves_stays() {
        let pool = pool(false);
        let (kept, freed) = frames(&pool);
        pool.free_batch(freed).expect("ours");
        let held = pool.memory().free_bytes_held() / PAGE_SIZE as u64;
        assert_eq!(held, 1024);
        assert_eq!(repaid(pool.memory(), 5000, 300 * PAGE_SIZE as u64), held - 300);
        assert_eq!(repaid(pool.memory(), 5000, 300 * PAGE_SIZE as u64), 0);
        pool.free_batch(kept).expect("ours");
    }

    #[test]
    fn each_so_many_ask_once() {
        let owing = Owed::default();
        let asked = (0..600).filter(|_| owing.owe(3)).count() as u64;
        assert_eq!(asked, 600 * 3 / WORTH);
    }

    /// Every other free frame is resident, so all longer runs are resident in part. This is tried
    /// again if the release after a second came between.
    #[test]
    fn untouched_frames_of_a_warm_block_are_owed() {
        let owed = || {
            let pool = pool(true);
            let memory = pool.memory();
            let (even, odd) = frames(&pool);
            pool.free_batch(even).expect("ours");
            memory.release(0);
            pool.free_batch(odd).expect("ours");
            let several = [1; 3000];
            let stored = [(); 8].map(|()| pool.alloc(&several).expect("room"));
            let runs = pool.zspages();
            assert!(runs.iter().all(|zspage| zspage.frames > 1), "{runs:?}");
            pool.free_batch(stored).expect("ours");
            memory.worker.owed().0.load(Ordering::Relaxed)
        };
        assert!((0..100).any(|_| owed() > 0));
    }
}
