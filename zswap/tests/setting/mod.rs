//! What the tests of a cache share: a memory, and pages of every kind.

use ramfold_zswap::{Disk, Limit, Memory, MemoryConfig, Zswap, ZswapConfig};
use std::sync::Arc;

pub(crate) const PAGE: usize = 4096;

/// A memory without a worker: what is deferred is done when a call returns.
pub(crate) fn memory() -> Arc<Memory> {
    memory_with(false)
}

pub(crate) fn memory_with(worker: bool) -> Arc<Memory> {
    let config = MemoryConfig {
        arena_frames: 1 << 16,
        entries_max: 1 << 18,
        expected_bytes: 1 << 28,
        worker,
    };
    Memory::new(config).expect("address space")
}

/// A configuration with a limit in bytes and a disk, and no thread of its own.
pub(crate) fn config(limit: u64, backing: Option<Arc<dyn Disk>>) -> ZswapConfig {
    let limit = Limit::Bytes(limit);
    ZswapConfig { limit, backing, worker: false, ..ZswapConfig::new("test") }
}

pub(crate) fn cache(limit: u64, backing: Option<Arc<dyn Disk>>) -> Zswap {
    Zswap::new(memory(), config(limit, backing)).expect("a cache")
}

/// A page that compresses to about a quarter, and differs for each seed.
pub(crate) fn page(seed: u64) -> Vec<u8> {
    let mut page = noise(seed);
    page[1000..].fill(seed as u8);
    page
}

/// A page that does not compress.
pub(crate) fn noise(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let byte = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    (0..PAGE).map(byte).collect()
}
