//! The memory for the unit tests of this crate: small, and without a thread of its own.

use std::sync::Arc;

use zsmalloc::{Memory, MemoryConfig};

pub(crate) fn memory() -> Arc<Memory> {
    let config = MemoryConfig {
        arena_frames: 1 << 12,
        entries_max: 1 << 13,
        expected_bytes: 1 << 24,
        worker: false,
    };
    Memory::new(config).expect("address space")
}
