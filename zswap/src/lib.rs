//! zswap in user space: a compressed cache of pages in front of a disk.

#![forbid(unsafe_code)]

mod order;

pub use order::Order;
