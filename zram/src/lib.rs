//! A compressed RAM disk.
#![forbid(unsafe_code)]
