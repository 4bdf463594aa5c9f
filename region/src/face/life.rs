//! The life of a region, whether it lends its bytes or not: from what it is made of to its end.
//!
//! ```text
//!   Region     bytes ---.
//!                        >-- Life: folded, pager, ending
//!   RawRegion  address -'
//! ```
//!
//! Invariant: a region is in its pager's list and in the table of faults exactly as long as this
//! lives, except in a forked child.

use super::ending::{Ending, Teardown};
use crate::resources::Store;
use crate::state::Folded;
use crate::terms::{LIMIT_MIN, RegionConfig, RegionError};
use crate::upkeep::Pager;
use host::fault::{begin_call, is_blocked};
use host::{FaultError, FaultMode, PAGE_SIZE, Span};
use std::sync::Arc;
use zram::Density;

/// What every region has, besides its bytes.
pub(super) struct Life {
    folded: Arc<Folded>,
    pager: Arc<Pager>,
    pub(super) teardown: Teardown,
    /// It is dropped last.
    ending: Ending,
}

impl Life {
    /// The pages of a region of `bytes` bytes, if this thread may have one.
    pub(super) fn pages(pager: &Pager, bytes: usize) -> Result<usize, RegionError> {
        if bytes == 0 {
            return Err(RegionError::Empty);
        }
        let mode = pager.fault_mode();
        if mode != FaultMode::Thread && is_blocked(mode) {
            return Err(RegionError::SignalBlocked { mode });
        }
        Ok(bytes.div_ceil(PAGE_SIZE))
    }

    /// Makes a span a region.
    pub(super) fn begin(
        pager: &Arc<Pager>,
        span: Arc<Span>,
        config: &RegionConfig,
    ) -> Result<Life, RegionError> {
        let limit = config.resident_limit.map(limit_pages).transpose()?;
        let store = Store::new(pager.memory(), span.pages(), config)?;
        if store.has_disk() {
            pager.shared.prepare_reads(store.reads_in_handler())?;
        }
        if store.density() != Density::Fast {
            pager.start_tending()?;
        }
        let folded = Folded::new(&pager.shared, span, store, config.quads);
        watch(&folded, pager)?;
        let life = Life {
            folded,
            pager: Arc::clone(pager),
            teardown: Teardown::default(),
            ending: Ending::of(pager.memory()),
        };
        life.folded.limit_to(limit)?;
        pager.shared.add(&life.folded);
        Ok(life)
    }

    /// The folding half.
    pub(super) fn folded(&self) -> Arc<Folded> {
        Arc::clone(&self.folded)
    }
}

fn watch(folded: &Arc<Folded>, pager: &Pager) -> Result<(), RegionError> {
    match folded.watch() {
        Err(RegionError::Fault(FaultError::TooManyRegions { .. })) => {
            // Dropped regions keep their places in the table until the worker has handled them.
            pager.memory().flush_deferred();
            folded.watch()
        }
        watched => watched,
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        if self.pager.shared.path.expect_own().is_err() {
            // What ends a region are threads that a forked child does not have. Its copy stays
            // until the child ends.
            std::mem::forget((Arc::clone(&self.folded), Arc::clone(&self.pager)));
            return;
        }
        let _call = begin_call();
        self.pager.shared.remove(&self.folded);
        self.folded.close();
        let bytes = self.folded.store.frame_bytes();
        self.folded.store.leave(self.teardown == Teardown::Range);
        self.ending.begin(&self.folded, self.teardown, bytes);
    }
}

/// A limit in pages.
pub(super) fn limit_pages(bytes: usize) -> Result<u64, RegionError> {
    if bytes < LIMIT_MIN {
        return Err(RegionError::LimitTooSmall { bytes, min: LIMIT_MIN });
    }
    Ok((bytes / PAGE_SIZE) as u64)
}
