//! Where pointers of Python and of NumPy come in: all `unsafe` code of the crate.

pub(crate) mod exports;
pub(crate) mod hook;
