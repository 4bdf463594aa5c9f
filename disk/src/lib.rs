//! What a block device is.
#![forbid(unsafe_code)]
