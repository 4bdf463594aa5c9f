//! What a memory's worker does, and what is done at once if there is no worker.
//!
//! Locks: none is held while a pool is asked for something.

use std::sync::Arc;

use host::sync::atomic::Ordering;

use super::Memory;
use super::worker::Chores;

impl Chores for Memory {
    fn frame_bytes(&self) -> u64 {
        self.arena.resident_frames() * host::PAGE_SIZE as u64
    }

    fn run_jobs(&self) {
        self.jobs.run_all();
    }

    fn drain(&self) {
        self.tenants().iter().for_each(|tenant| tenant.drain_deferred());
    }

    fn repay(&self, frames: u64, keep: u64) {
        // What a CPU keeps is held.
        self.zones.drain();
        self.release_frames(keep, frames);
    }

    fn compact_at_rest(&self) -> bool {
        // Each of them, also after one that is in use.
        let mut settled = true;
        for tenant in self.tenants() {
            settled &= tenant.compact_at_rest();
        }
        settled
    }

    fn give_back_whole(self: &Arc<Memory>) {
        // relaxed: an independent value.
        if !self.stays.load(Ordering::Relaxed) {
            self.evacuate();
        }
        self.release(0);
    }

    fn give_back(&self, keep: u64) {
        self.release(keep);
    }
}

impl Memory {
    /// Has sparse pageblocks evacuated, and the free frames returned to the system: by the worker
    /// if there is one, and else at once.
    pub(crate) fn release_soon(self: &Arc<Memory>) {
        if !self.worker.release_now(self) {
            self.give_back_whole();
        }
    }

    /// Compacts every pool now and returns all that is free to the system, as a shrinker of the
    /// kernel does: for when memory is short, which [`host::Pressure`] tells of. Gives the bytes by
    /// which the frames in memory became fewer meanwhile.
    ///
    /// ```
    /// # use ramfold_zsmalloc::{Memory, MemoryConfig, Pool, PoolConfig};
    /// # let memory = Memory::new(MemoryConfig::for_disk(16 << 20))?;
    /// # let pool = Pool::new(memory, PoolConfig::default())?;
    /// let handles: Vec<_> = (0..64).map(|_| pool.alloc(&[7; 1500])).collect::<Result<_, _>>()?;
    /// for (at, handle) in handles.into_iter().enumerate() {
    ///     if at % 4 > 0 {
    ///         pool.free_handle(handle)?;
    ///     }
    /// }
    /// assert!(pool.memory().relieve() > 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn relieve(self: &Arc<Memory>) -> u64 {
        let before = self.frame_bytes();
        // One after the other is let go, so that a pool that was given up meanwhile ends soon.
        self.tenants().into_iter().for_each(|tenant| tenant.compact());
        self.release(0);
        before.saturating_sub(self.frame_bytes())
    }

    /// Frees what lags in all pools.
    pub(crate) fn flush_lagging(&self) {
        self.tenants().iter().for_each(|tenant| tenant.flush_lagging());
    }
}
