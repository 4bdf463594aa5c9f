//! ramfold for Python: the part of the package that is not Python.
//!
//! ```text
//!   ramfold/*.py --> Folding    a pager and its memory; one for each process
//!                      |-- Shared    a field, whose plots share a limit
//!                      |-- Fold      a region or a plot, which arrays lie in
//!                      `-- Hook      arrays of unchanged code get plots too (NEP 49)
//!                    border     ndarray, but whoever gets its buffer has the pages pinned;
//!                               the functions that NumPy calls
//!                    Store      keys, and values of `values`
//!                    signals    handlers that the program changes after ours was installed
//! ```
//!
//! `ramfold/_array.py` makes arrays of folds, and `docs/python.md` is the manual.
//!
//! Invariant: a fold lives as long as an array or a buffer leads to its bytes, because each of them
//! holds it.

#![deny(unsafe_code)]

mod arrays;
#[expect(unsafe_code, reason = "slots of a type and NumPy's hook have pointers")]
mod border;
mod fold;
mod folding;
mod index;
mod refusal;
mod signals;
mod spare;
mod store;

/// The part of `ramfold` that is not Python.
#[pyo3::pymodule(gil_used = true)]
mod _ramfold {
    #[pymodule_export]
    use super::border::exports::{exporting_type, fold_of};
    #[pymodule_export]
    use super::border::hook::Hook;
    #[pymodule_export]
    use super::fold::Fold;
    #[pymodule_export]
    use super::folding::{Folding, Shared};
    #[pymodule_export]
    use super::index::Frames;
    #[pymodule_export]
    use super::signals::{step_aside, step_back};
    #[pymodule_export]
    use super::store::Keyed;

    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
