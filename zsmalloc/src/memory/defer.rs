//! Work that a memory's users put off: jobs for its worker, and frees that its pools hold back.
//!
//! Locks: none is held while a job runs or a pool frees.

use std::sync::Arc;

use super::Memory;
use super::jobs::{DeferredStatus, PENDING_MAX};

impl Memory {
    /// Has the memory's worker run `job` soon. `pending_bytes` is what it will free, of which at
    /// most 2^40 are counted. Jobs begin in the order in which they were deferred.
    ///
    /// If there is no worker, or the system has no thread for it, the job has run when this
    /// returns, and so have those before it. With 1024 jobs queued the caller runs the oldest. A
    /// job that panics is counted, see [`Memory::deferred`]. Jobs that are queued when the memory
    /// is dropped are run then.
    ///
    /// A job must not wait for a lock that its caller, or a thread that flushes, may hold.
    pub fn defer(self: &Arc<Memory>, pending_bytes: u64, job: impl FnOnce() + Send + 'static) {
        self.jobs.push(pending_bytes.min(PENDING_MAX), Box::new(job));
        if !self.worker.run_jobs(self) {
            self.jobs.run_all();
            self.jobs.flush(); // another thread may be at it
        }
    }

    /// Returns when every job that was deferred before has run, and runs jobs itself meanwhile. A
    /// job that calls it waits for older ones only. Then it frees what is pending in the pools, see
    /// [`Pool::free_deferred`].
    ///
    /// The caller holds no lock that a job might want.
    ///
    /// [`Pool::free_deferred`]: crate::Pool::free_deferred
    pub fn flush_deferred(&self) {
        self.jobs.flush();
        for tenant in self.tenants() {
            tenant.flush_deferred();
        }
    }

    /// Bytes that deferred jobs are still to free, as their callers said, and that are pending in
    /// the pools.
    pub fn pending_bytes(&self) -> u64 {
        let of_pools: u64 = self.tenants().iter().map(|tenant| tenant.pending_bytes()).sum();
        self.jobs.pending_bytes() + of_pools
    }

    /// What is deferred.
    pub fn deferred(&self) -> DeferredStatus {
        self.jobs.status()
    }
}

impl Drop for Memory {
    /// Runs the jobs that are left. None of them can have a reference to the memory, which would
    /// still be there: the worker runs those.
    fn drop(&mut self) {
        self.jobs.run_all();
    }
}
