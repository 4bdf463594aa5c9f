//! The pager: what regions share, and the threads that look after them.
//!
//! ```text
//!   Pager ----- Arc<Shared> <----- each region       the memory lives as long as any of them
//!     `-- its threads, which end with it
//! ```
//!
//! Invariant: each region holds its pager, so the threads run as long as there is a region.

use super::{tending, thread, watch};
use crate::resources::Shared;
use crate::state::Folded;
use crate::terms::{PagerConfig, RegionError};
use host::fault::begin_call;
use host::{FaultError, FaultMode, Rank, RankedMutex};
use std::sync::Arc;
use std::thread::JoinHandle;
use zram::Memory;

/// What regions share: a memory, staging and threads, which are two, and one more as soon as a
/// region has tiers. The shared part lives as long as any of the regions.
pub struct Pager {
    pub(crate) shared: Arc<Shared<Folded>>,
    thread: Option<JoinHandle<()>>,
    watch: Option<JoinHandle<()>>,
    /// Once a region has tiers.
    tending: RankedMutex<Option<JoinHandle<()>>>,
}

impl Pager {
    /// A pager whose regions keep their pages in `memory`.
    ///
    /// # Errors
    ///
    /// [`RegionError`] if the system refuses userfaultfd, address space or a thread.
    pub fn new(memory: Arc<Memory>, config: &PagerConfig) -> Result<Arc<Pager>, RegionError> {
        let shared = Shared::new(memory, config)?;
        let tending = RankedMutex::new(Rank::Leaf, None);
        let mut pager = Pager { shared, thread: None, watch: None, tending };
        // If the second thread is refused, dropping the pager ends the first.
        let shared = || Arc::clone(&pager.shared);
        pager.thread = Some(thread::start(shared()).map_err(RegionError::Thread)?);
        pager.watch = Some(watch::start(shared()).map_err(RegionError::Thread)?);
        Ok(Arc::new(pager))
    }

    /// Starts the thread that makes stored pages denser, unless it was started before.
    pub(crate) fn start_tending(&self) -> Result<(), RegionError> {
        let mut tending = self.tending.lock();
        if tending.is_none() {
            let thread = tending::start(Arc::clone(&self.shared));
            *tending = Some(thread.map_err(RegionError::Thread)?);
        }
        Ok(())
    }

    /// The memory in whose frames compressed pages are.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.shared.memory
    }

    /// How faults are served.
    pub fn fault_mode(&self) -> FaultMode {
        self.shared.path.mode()
    }

    /// Why the system refused a userfaultfd, if pages that are out are closed instead.
    pub fn userfaultfd_refusal(&self) -> Option<&FaultError> {
        self.shared.path.refusals().first()
    }

    /// Why the system refused each way to serve faults that was tried before the one that is used.
    pub fn refusals(&self) -> &[FaultError] {
        self.shared.path.refusals()
    }

    /// The most bytes that staging and the buffers for decoded pages take.
    pub fn buffer_bytes(&self) -> u64 {
        let _call = begin_call();
        self.shared.buffer_bytes()
    }

    /// Ends the thread. Limits are no longer kept then.
    pub(crate) fn end_thread(&mut self) {
        self.shared.end();
        if let Some(thread) = self.thread.take() {
            // The thread ends the process if it panics.
            drop(thread.join());
        }
    }
}

impl Drop for Pager {
    fn drop(&mut self) {
        if self.shared.path.expect_own().is_err() {
            // In a forked child there are no such threads, and waiting for them would never end.
            let tending = self.tending.lock().take();
            std::mem::forget((self.thread.take(), self.watch.take(), tending));
            std::mem::forget(Arc::clone(&self.shared));
            return;
        }
        self.end_thread();
        self.shared.over.raise();
        if let Some(watch) = self.watch.take() {
            // The thread ends the process if it panics.
            drop(watch.join());
        }
        let tending = self.tending.lock().take();
        if let Some(tending) = tending {
            // If it panicked, the panic has reported that. Pages stay as they were then.
            drop(tending.join());
        }
    }
}

impl std::fmt::Debug for Pager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pager").field("regions", &self.shared.count()).finish_non_exhaustive()
    }
}
