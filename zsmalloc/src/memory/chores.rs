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

    /// Frees what lags in all pools.
    pub(crate) fn flush_lagging(&self) {
        self.tenants().iter().for_each(|tenant| tenant.flush_lagging());
    }
}
