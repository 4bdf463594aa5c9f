//! What Python is told when something is refused: the exception that a Python programmer expects,
//! with the words of the layer that refused.
//!
//! ```text
//!   TypeError      what was given is of another type
//!   ValueError     what was asked for cannot be
//!   MemoryError    the process or the system has no more of it
//!   RuntimeError   the system refuses, or this is the wrong process
//! ```

use pyo3::exceptions::{PyMemoryError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::types::{PyAnyMethods, PyTypeMethods};
use pyo3::{Borrowed, FromPyObject, PyAny, PyErr, PyResult};
use region::{FaultError, RegionError, ZramError};
use values::ValuesError;
use zsmalloc::MemoryError;

/// A key of a store, which is `bytes`.
pub(crate) struct Key<'a>(pub(crate) &'a [u8]);

/// A value of a store, which is `bytes`.
pub(crate) struct Value<'a>(pub(crate) &'a [u8]);

impl<'a, 'py> FromPyObject<'a, 'py> for Key<'a> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Key<'a>> {
        bytes_of("a key", object).map(Key)
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Value<'a> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Value<'a>> {
        bytes_of("a value", object).map(Value)
    }
}

fn bytes_of<'a>(what: &str, object: Borrowed<'a, '_, PyAny>) -> PyResult<&'a [u8]> {
    <&[u8]>::extract(object).map_err(|_| {
        let name = object.get_type().name().map(|name| name.to_string());
        let found = name.unwrap_or_else(|_| "something else".into());
        PyTypeError::new_err(format!("{what} is bytes, not {found}"))
    })
}

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
        RegionError::Store(ZramError::TooLarge { .. }) => {
            PyValueError::new_err(text.replacen("a disk of", "folded memory of", 1))
        }
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
