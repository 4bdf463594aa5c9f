//! Compression algorithms.
#![forbid(unsafe_code)]
