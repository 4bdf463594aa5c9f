//! Handlers of SIGBUS and SIGSEGV that a program installs after ours.
//!
//! ```text
//!   faulthandler.enable() --> step_aside --> Python's own --> step_back
//!                             its handler takes what was there before ours for the one before it,
//!                             and stands behind ours from then on
//! ```

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

/// Lets the handlers stand that were there before ours.
#[pyfunction]
pub(crate) fn step_aside() -> PyResult<()> {
    host::fault::step_aside().map_err(|error| PyOSError::new_err(error.to_string()))
}

/// Puts ours back in front of them.
#[pyfunction]
pub(crate) fn step_back() -> PyResult<()> {
    host::fault::step_back().map_err(|error| PyOSError::new_err(error.to_string()))
}
