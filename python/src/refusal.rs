//! What Python is told when something is refused: the exception that a Python programmer expects,
//! with the words of the layer that refused.
//!
//! ```text
//!   ValueError     what was asked for cannot be
//!   MemoryError    the process or the system has no more of it
//!   RuntimeError   the system refuses, or this is the wrong process
//! ```

use pyo3::PyErr;
use pyo3::exceptions::{PyMemoryError, PyRuntimeError, PyValueError};
use region::{FaultError, RegionError, ZramError};
use values::ValuesError;
use zsmalloc::MemoryError;

/// The exception for an error of a region.
pub(crate) fn of_region(error: RegionError) -> PyErr {
    let text = error.to_string();
    match error {
        RegionError::Empty
        | RegionError::Unaligned { .. }
        | RegionError::OutOfRange { .. }
        | RegionError::LimitTooSmall { .. }
        | RegionError::NotPinned { .. }
        | RegionError::Pinned { .. }
        | RegionError::Codec(_) => PyValueError::new_err(text),
        RegionError::NoTiers => PyValueError::new_err(
            "pages stay as they left: give the Limit the density \"balanced\" or \"dense\"",
        ),
        RegionError::Tending(_) => PyMemoryError::new_err(text),
        RegionError::Fault(FaultError::TooManyRegions { .. }) => {
            PyMemoryError::new_err(text + ": let arrays share a limit (ramfold.Limit)")
        }
        RegionError::FieldFull { .. } => PyMemoryError::new_err(
            "the arrays that share this limit have used up its room: make \
                                    the Limit with a larger `room`",
        ),
        RegionError::Store(ZramError::TooLarge { .. }) => PyValueError::new_err(text),
        RegionError::Host(_)
        | RegionError::Store(_)
        | RegionError::TooManyMappings { .. }
        | RegionError::Fault(FaultError::Mappings { .. } | FaultError::Exhausted { .. }) => {
            PyMemoryError::new_err(text)
        }
        _ => PyRuntimeError::new_err(text),
    }
}

/// The exception for a memory that could not be made.
pub(crate) fn of_memory(error: MemoryError) -> PyErr {
    PyMemoryError::new_err(error.to_string())
}

/// The exception for a value that was refused.
pub(crate) fn of_values(error: ValuesError) -> PyErr {
    let text = error.to_string();
    match error {
        ValuesError::TooLong { .. } | ValuesError::Parameter(_) | ValuesError::Train(_) => {
            PyValueError::new_err(text)
        }
        ValuesError::Alloc(_) | ValuesError::Memory(_) => PyMemoryError::new_err(text),
        _ => PyRuntimeError::new_err(text),
    }
}
