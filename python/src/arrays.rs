//! Arrays of unchanged code: NumPy asks for bytes by their number, and gets an address.
//!
//! ```text
//!   make(bytes) --> a plot of the field --> address --> table: address -> plot
//!   end(address) -> out of the table, and the plot is dropped
//! ```
//!
//! Invariant: the table has each plot that NumPy has, by the address that NumPy has.
//!
//! Lock: that of the table, of rank `Leaf`, with nothing else. Plots are made before and dropped
//! after it.

use crate::refusal::of_region;
use host::unmodelled::RankedMutex;
use host::{Home, PAGE_SIZE, Rank};
use pyo3::PyResult;
use pyo3::exceptions::PyRuntimeError;
use region::{Field, PageOut, Plot};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// See the head of this file.
pub(crate) struct Arrays {
    home: Home,
    field: Arc<Field>,
    addresses: Range<usize>,
    /// Bytes from which on an array folds.
    least: usize,
    plots: RankedMutex<HashMap<usize, Plot>>,
}

impl Arrays {
    pub(crate) fn new(field: Arc<Field>, least: usize) -> PyResult<Arrays> {
        let home = Home::new().map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        let start = field.as_ptr().addr();
        let addresses = start..start + field.len();
        let plots = RankedMutex::new(Rank::Leaf, HashMap::new());
        Ok(Arrays { home, field, addresses, least, plots })
    }

    /// Whether an array of so many bytes folds. In a forked child, whose parent has the field, none
    /// does.
    pub(crate) fn folds(&self, bytes: usize) -> bool {
        bytes >= self.least && self.home.is_here()
    }

    /// Zeros for an array. `None` if the field is full.
    pub(crate) fn make(&self, bytes: usize) -> Option<usize> {
        let plot = self.field.plot(bytes.max(1)).ok()?;
        let address = plot.as_ptr().addr();
        self.plots.lock().insert(address, plot);
        Some(address)
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
            drop(plot);
        }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        if self.home.is_here() { self.plots.lock().len() } else { 0 }
    }

    /// Compresses all pages that are in memory.
    pub(crate) fn page_out(&self) -> PyResult<PageOut> {
        self.field.page_out().map_err(of_region)
    }
}
