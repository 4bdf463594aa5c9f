//! Arrays of unchanged code: NumPy asks for bytes by their number, and gets an address.
//!
//! ```text
//!   make(bytes) --> a spare plot, or a new one --> address --> table: address -> plot
//!   end(address) -> out of the table, and the plot is spare, or dropped
//! ```
//!
//! Invariant: the table has each plot that NumPy has, by the address that NumPy has.
//!
//! Locks: those of the table and of what is spare, of rank `Leaf`, each with nothing else. Plots
//! are made before and dropped after them.

use crate::refusal::of_region;
use crate::spare::Spare;
use host::unmodelled::RankedMutex;
use host::{Home, PAGE_SIZE, Rank};
use pyo3::PyResult;
use pyo3::exceptions::PyRuntimeError;
use region::{Field, PageOut, Plot};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most bytes of arrays that have ended.
const SPARE_MAX: usize = 32 << 20; // 32 MiB
/// They may be 1/this of the limit.
const SPARE_PART: usize = 16;

/// Where an array is.
pub(crate) struct Made {
    pub(crate) address: usize,
    /// It is all zeros. Otherwise its bytes are those of an array that has ended.
    pub(crate) is_zero: bool,
}

/// See the head of this file.
pub(crate) struct Arrays {
    home: Home,
    field: Arc<Field>,
    addresses: Range<usize>,
    /// Bytes from which on an array folds.
    least: usize,
    plots: RankedMutex<HashMap<usize, Plot>>,
    spare: RankedMutex<Spare>,
    /// Blocks in which new arrays come from here.
    open: AtomicUsize,
}

impl Arrays {
    pub(crate) fn new(field: Arc<Field>, least: usize) -> PyResult<Arrays> {
        let home = Home::new().map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        let start = field.as_ptr().addr();
        let addresses = start..start + field.len();
        let plots = RankedMutex::new(Rank::Leaf, HashMap::new());
        let spare = RankedMutex::new(Rank::Leaf, Spare::default());
        Ok(Arrays { home, field, addresses, least, plots, spare, open: AtomicUsize::new(0) })
    }

    /// Whether an array of so many bytes folds. In a forked child, whose parent has the field, none
    /// does.
    pub(crate) fn folds(&self, bytes: usize) -> bool {
        bytes >= self.least && self.home.is_here()
    }

    /// Bytes for an array. `None` if the field is full.
    pub(crate) fn make(&self, bytes: usize) -> Option<Made> {
        let bytes = bytes.max(1).checked_next_multiple_of(PAGE_SIZE)?;
        let spare = self.spare.lock().take(bytes);
        let is_zero = spare.is_none();
        let plot = match spare {
            Some(plot) => plot,
            None => self.field.plot(bytes).ok().or_else(|| {
                self.drop_spare();
                self.field.plot(bytes).ok()
            })?,
        };
        let address = plot.as_ptr().addr();
        self.plots.lock().insert(address, plot);
        Some(Made { address, is_zero })
    }

    /// The bytes that an array at an address may have, a multiple of 4096. `None` if the array is
    /// not of the field.
    pub(crate) fn room(&self, address: usize) -> Option<usize> {
        if !self.addresses.contains(&address) {
            return None;
        }
        if self.home.is_here() {
            return self.plots.lock().get(&address).map(Plot::len);
        }
        // A forked child may have something else there. The table is as it was at the fork. If
        // another thread had it then, it stays locked, and the array is taken for the parent's.
        self.plots.try_lock().map_or(Some(0), |plots| plots.get(&address).map(Plot::len))
    }

    /// Forgets what an array has beyond so many bytes, of which it keeps the addresses.
    pub(crate) fn shorten(&self, address: usize, bytes: usize) {
        // Out of the table meanwhile, because the pages leave under locks of the region.
        let Some(plot) = self.plots.lock().remove(&address) else { return };
        let kept = bytes.next_multiple_of(PAGE_SIZE).min(plot.len());
        // Bytes that could not be forgotten take memory, and do no other harm.
        let _ = plot.discard(kept..plot.len());
        self.plots.lock().insert(address, plot);
    }

    /// Gives up an array of the field. A forked child has a copy at most, which ends with it.
    pub(crate) fn end(&self, address: usize) {
        if self.home.is_here() {
            let plot = self.plots.lock().remove(&address);
            let max = self.spare_max();
            let gone = plot.map(|plot| self.spare.lock().put(plot, max));
            drop(gone);
        }
    }

    /// Bytes that arrays that have ended may leave.
    fn spare_max(&self) -> usize {
        // relaxed: at the end of a block, what is left is dropped in any case.
        if self.open.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let part = self.field.resident_limit().map_or(SPARE_MAX, |limit| limit / SPARE_PART);
        part.min(SPARE_MAX)
    }

    /// A block begins in which new arrays come from here.
    pub(crate) fn open(&self) {
        // relaxed: a count that stands alone.
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// Such a block ends.
    pub(crate) fn close(&self) {
        // relaxed: as above.
        if self.open.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.drop_spare();
        }
    }

    /// Drops what arrays that have ended have left.
    fn drop_spare(&self) {
        if self.home.is_here() {
            let spare = std::mem::take(&mut *self.spare.lock());
            drop(spare);
        }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        if self.home.is_here() { self.plots.lock().len() } else { 0 }
    }

    /// Compresses all pages that are in memory.
    pub(crate) fn page_out(&self) -> PyResult<PageOut> {
        self.drop_spare();
        self.field.page_out().map_err(of_region)
    }
}
