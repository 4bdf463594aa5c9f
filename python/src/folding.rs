//! What all folded arrays of a process share: a memory for compressed pages, and a pager.
//!
//! ```text
//!   Folding --map--> Fold      an array with a limit of its own, or none
//!      `----share--> Shared --plot--> Fold      arrays that share one
//!                           `-hook--> Hook      and those of unchanged code
//! ```
//!
//! Python keeps one of these for each process, and makes another one in a forked child.
//!
//! Invariant: a `Shared` and a `Fold` keep the pager, so its threads run as long as there is an
//! array.

use crate::border::hook::Hook;
use crate::fold::{Fold, Mapped};
use crate::refusal::{of_memory, of_region};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use region::{
    Codec, Density, FaultMode, Field, Memory, MemoryConfig, Pager, PagerConfig, RawRegion,
    RegionConfig, TiersConfig,
};
use std::sync::Arc;

/// Bytes of all arrays of a process for whose pages there are entries.
const ARRAYS_BYTES: u64 = 1 << 40; // 1 TiB

/// The ways to serve a fault, by their names in Python.
const MODES: [(&str, FaultMode); 4] = [
    ("signal", FaultMode::Signal),
    ("thread", FaultMode::Thread),
    ("protection", FaultMode::Protection),
    ("guards", FaultMode::Guards),
];

fn mode_of(name: &str) -> PyResult<FaultMode> {
    let mode = MODES.into_iter().find(|(known, _)| *known == name).map(|(_, mode)| mode);
    mode.ok_or_else(|| {
        PyValueError::new_err(format!(
            "no fault mode is '{name}': take 'thread', 'protection', 'signal' or 'guards'"
        ))
    })
}

/// The pager of a process, and the memory that compressed pages are in.
#[pyclass(frozen, module = "ramfold._ramfold")]
pub(crate) struct Folding {
    pager: Arc<Pager>,
}

#[pymethods]
impl Folding {
    /// Serves faults in the named way.
    #[new]
    fn new(py: Python<'_>, mode: &str) -> PyResult<Folding> {
        let config = PagerConfig { fault_mode: Some(mode_of(mode)?), ..PagerConfig::default() };
        let make = || {
            let memory = Memory::new(MemoryConfig::for_disk(ARRAYS_BYTES)).map_err(of_memory)?;
            Pager::new(memory, &config).map_err(of_region)
        };
        Ok(Folding { pager: py.detach(make)? })
    }

    /// The name of the way in which faults are served.
    #[getter]
    fn mode(&self) -> &'static str {
        let found = self.pager.fault_mode();
        MODES.into_iter().find(|(_, mode)| *mode == found).map_or("", |(name, _)| name)
    }

    /// Maps a region of its own.
    fn map(
        &self,
        py: Python<'_>,
        bytes: usize,
        limit: Option<usize>,
        codec: &str,
        shuffle: Option<Shuffle>,
    ) -> PyResult<Fold> {
        let config = config(limit, codec, shuffle, Density::Fast)?;
        let region = py.detach(|| RawRegion::map(&self.pager, bytes, &config));
        Ok(Fold::new(Mapped::Own(region.map_err(of_region)?), bytes, self.pager.fault_mode()))
    }

    /// Maps `room` bytes, of which arrays get parts.
    fn share(
        &self,
        py: Python<'_>,
        room: usize,
        limit: Option<usize>,
        codec: &str,
        shuffle: Option<Shuffle>,
        density: &str,
    ) -> PyResult<Shared> {
        let density = density.parse::<Density>().map_err(PyValueError::new_err)?;
        let config = config(limit, codec, shuffle, density)?;
        let field = py.detach(|| Field::map(&self.pager, room, &config));
        Ok(Shared { field: field.map_err(of_region)?, mode: self.pager.fault_mode() })
    }

    /// What all arrays of the process take beside their resident pages.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let memory = self.pager.memory();
        let dict = PyDict::new(py);
        dict.set_item("compressed_bytes", memory.mapped_bytes() - memory.free_bytes_held())?;
        dict.set_item("free_bytes", memory.free_bytes_held())?;
        dict.set_item(
            "metadata_bytes",
            memory.frame_table_bytes() + memory.cell_table_bytes() + memory.descriptor_bytes(),
        )?;
        dict.set_item("buffer_bytes", self.pager.buffer_bytes())?;
        Ok(dict)
    }
}

/// How pages are shuffled.
#[derive(FromPyObject)]
enum Shuffle {
    /// By elements of so many bytes.
    Bytes(usize),
    /// `auto`: those that gain by it, as samples say.
    Word(String),
}

fn config(
    resident_limit: Option<usize>,
    codec: &str,
    shuffle: Option<Shuffle>,
    density: Density,
) -> PyResult<RegionConfig> {
    let refused = |error: &dyn std::error::Error| PyValueError::new_err(error.to_string());
    let mut algorithm = codec.parse::<Codec>().map_err(|error| refused(&error))?;
    match shuffle {
        None => {}
        Some(Shuffle::Bytes(bytes)) => {
            algorithm = algorithm.with_shuffle(bytes).map_err(|error| refused(&error))?;
        }
        Some(Shuffle::Word(word)) if word == "auto" => algorithm = algorithm.with_sampled_shuffle(),
        Some(Shuffle::Word(word)) => {
            let text = format!("pages are shuffled by 2, 4 or 8 bytes, or \"auto\", not {word:?}");
            return Err(PyValueError::new_err(text));
        }
    }
    let tiers = Some(TiersConfig::new(density));
    Ok(RegionConfig { algorithm, resident_limit, tiers, ..RegionConfig::default() })
}

/// Memory of which arrays have parts, and whose limit they share.
#[pyclass(frozen, module = "ramfold._ramfold")]
pub(crate) struct Shared {
    field: Arc<Field>,
    mode: FaultMode,
}

#[pymethods]
impl Shared {
    /// A part of it, all zeros.
    fn plot(&self, bytes: usize) -> PyResult<Fold> {
        let plot = self.field.plot(bytes).map_err(of_region)?;
        Ok(Fold::new(Mapped::Plot(plot), bytes, self.mode))
    }

    /// A hook by which NumPy's arrays from `least` bytes on are parts of it.
    fn hook(&self, py: Python<'_>, least: usize) -> PyResult<Hook> {
        self.field.expect_own().map_err(of_region)?;
        Hook::new(py, Arc::clone(&self.field), least)
    }

    /// Sets the limit.
    fn set_limit(&self, py: Python<'_>, limit: Option<usize>) -> PyResult<()> {
        py.detach(|| self.field.set_resident_limit(limit)).map_err(of_region)
    }

    /// Makes the pages that are out as dense as the density allows.
    fn densify(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.field.densify()).map_err(of_region)
    }

    /// Bytes that no array has.
    #[getter]
    fn free_bytes(&self) -> usize {
        self.field.free_bytes()
    }

    /// Where the pages are, and what faults have cost.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = py.detach(|| self.field.stats());
        crate::fold::dict_of(py, &stats)
    }
}
