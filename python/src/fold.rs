//! A fold: bytes that arrays lie in.
//!
//! ```text
//!   ndarray --base--> ndarray of bytes --base--> Fold
//!                       made from its `__array_interface__`
//! ```
//!
//! Invariant: its address and its length stay what they are. Nothing here gives bytes back before
//! the last array is gone.

use crate::refusal::of_region;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use region::{FaultMode, PageOut, Plot, PlotStats, RawRegion, RegionStats};
use std::ops::Range;

const PAGE: usize = host::PAGE_SIZE; // 4096

/// A region, or a plot of one.
pub(crate) enum Mapped {
    Own(RawRegion),
    Plot(Plot),
}

/// See the head of this file.
#[pyclass(frozen, module = "ramfold._ramfold", dict, weakref)]
pub(crate) struct Fold {
    mapped: Mapped,
    /// Bytes that were asked for. The rest of the last page belongs to nobody.
    bytes: usize,
    /// Whether a system call fails on pages of it that are out.
    needs_pins: bool,
}

impl Fold {
    /// Of `bytes` bytes.
    pub(crate) fn new(mapped: Mapped, bytes: usize, mode: FaultMode) -> Fold {
        Fold { mapped, bytes, needs_pins: mode != FaultMode::Thread }
    }

    /// Whether bytes have to be pinned for a system call.
    pub(crate) fn needs_pins(&self) -> bool {
        self.needs_pins
    }

    /// The first byte's address.
    pub(crate) fn start(&self) -> usize {
        match &self.mapped {
            Mapped::Own(region) => region.as_ptr().addr(),
            Mapped::Plot(plot) => plot.as_ptr().addr(),
        }
    }

    fn len(&self) -> usize {
        match &self.mapped {
            Mapped::Own(region) => region.len(),
            Mapped::Plot(plot) => plot.len(),
        }
    }

    /// Pins a range of bytes.
    pub(crate) fn pin(&self, range: Range<usize>) -> Result<(), region::RegionError> {
        match &self.mapped {
            Mapped::Own(region) => region.pin(range),
            Mapped::Plot(plot) => plot.pin(range),
        }
    }

    /// Takes the pin of a range off.
    pub(crate) fn unpin(&self, range: Range<usize>) -> Result<(), region::RegionError> {
        match &self.mapped {
            Mapped::Own(region) => region.unpin(range),
            Mapped::Plot(plot) => plot.unpin(range),
        }
    }
}

#[pymethods]
impl Fold {
    /// NumPy makes an array of bytes of it, which holds this object.
    #[getter(__array_interface__)]
    fn array_interface<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item("version", 3)?;
        dict.set_item("typestr", "|u1")?;
        dict.set_item("shape", PyTuple::new(py, [self.len()])?)?;
        dict.set_item("data", (self.start(), false))?;
        Ok(dict)
    }

    #[getter]
    fn address(&self) -> usize {
        self.start()
    }

    #[getter]
    fn size(&self) -> usize {
        self.len()
    }

    /// Whether it has no limit of its own.
    #[getter]
    fn is_part(&self) -> bool {
        matches!(self.mapped, Mapped::Plot(_))
    }

    /// Brings a range of bytes to memory, and keeps it there.
    #[pyo3(name = "pin")]
    fn pin_bytes(&self, py: Python<'_>, start: usize, end: usize) -> PyResult<()> {
        py.detach(|| self.pin(start..end)).map_err(of_region)
    }

    /// Takes that back.
    #[pyo3(name = "unpin")]
    fn unpin_bytes(&self, start: usize, end: usize) -> PyResult<()> {
        self.unpin(start..end).map_err(of_region)
    }

    /// Compresses the pages that are wholly in a range, and says how many could not leave.
    fn page_out(&self, py: Python<'_>, start: usize, end: usize) -> PyResult<(u64, u64)> {
        let Some(range) = self.pages_inside(start, end) else { return Ok((0, 0)) };
        let out = py.detach(|| match &self.mapped {
            Mapped::Own(region) => region.control().page_out(range),
            Mapped::Plot(plot) => plot.page_out(range),
        });
        let PageOut { stored, busy, refused, .. } = out.map_err(of_region)?;
        Ok((stored, busy + refused))
    }

    /// Brings the pages of a range in.
    fn prefetch(&self, py: Python<'_>, start: usize, end: usize) -> PyResult<()> {
        let range = self.pages_around(start, end);
        let brought = py.detach(|| match &self.mapped {
            Mapped::Own(region) => region.control().prefetch(range),
            Mapped::Plot(plot) => plot.prefetch(range),
        });
        brought.map_err(of_region)
    }

    /// Sets its own limit.
    fn set_limit(&self, py: Python<'_>, limit: Option<usize>) -> PyResult<()> {
        let Mapped::Own(region) = &self.mapped else { return Ok(()) };
        py.detach(|| region.set_resident_limit(limit)).map_err(of_region)
    }

    /// Where its pages are. A part has no counts of faults.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        match &self.mapped {
            Mapped::Own(region) => dict_of(py, &py.detach(|| region.stats())),
            Mapped::Plot(plot) => dict_of_plot(py, &py.detach(|| plot.stats())),
        }
    }
}

impl Fold {
    /// The whole pages in a range; `None` if there are none.
    fn pages_inside(&self, start: usize, end: usize) -> Option<Range<usize>> {
        let start = start.next_multiple_of(PAGE);
        let end = if end >= self.bytes { self.len() } else { end / PAGE * PAGE };
        (start < end).then_some(start..end)
    }

    /// The pages that a range touches.
    fn pages_around(&self, start: usize, end: usize) -> Range<usize> {
        start / PAGE * PAGE..end.next_multiple_of(PAGE).min(self.len())
    }
}

fn bytes(pages: u64) -> u64 {
    pages * PAGE as u64
}

/// The statistics of a region, for Python.
pub(crate) fn dict_of<'py>(py: Python<'py>, stats: &RegionStats) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let places = PlotStats {
        pages: stats.pages,
        resident_pages: stats.resident_pages,
        staged_pages: stats.staged_pages,
        stored_pages: stats.stored_pages,
        unregistered_pages: stats.unregistered_pages,
    };
    set_places(&dict, &places)?;
    dict.set_item("compressed_bytes", stats.compr_data_size)?;
    dict.set_item("limit", stats.limit_pages.map(bytes))?;
    dict.set_item("faults", stats.faults)?;
    dict.set_item("first_touches", stats.first_touches)?;
    dict.set_item("pages_in", stats.pages_in)?;
    dict.set_item("pages_out", stats.pages_out)?;
    dict.set_item("refused", stats.refused)?;
    dict.set_item("last_refusal", stats.last_refusal.map(|refusal| refusal.to_string()))?;
    dict.set_item("stall_seconds", stats.stall_ns as f64 / 1e9)?;
    Ok(dict)
}

fn dict_of_plot<'py>(py: Python<'py>, stats: &PlotStats) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    set_places(&dict, stats)?;
    Ok(dict)
}

fn set_places(dict: &Bound<'_, PyDict>, stats: &PlotStats) -> PyResult<()> {
    dict.set_item("bytes", bytes(stats.pages))?;
    dict.set_item("resident_bytes", bytes(stats.resident_pages))?;
    dict.set_item("staged_bytes", bytes(stats.staged_pages))?;
    dict.set_item("folded_bytes", bytes(stats.stored_pages))?;
    dict.set_item("untracked_bytes", bytes(stats.unregistered_pages))
}
