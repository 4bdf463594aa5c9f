//! A memory for tests with few pages.

use std::sync::Arc;

use zsmalloc::{Memory, MemoryConfig};

/// 64 MiB of frames. A worker drains and compacts, if there is one.
pub(crate) fn memory(worker: bool) -> Arc<Memory> {
    let config = MemoryConfig {
        arena_frames: 1 << 14,
        entries_max: 1 << 16,
        expected_bytes: 64 << 20,
        worker,
    };
    Memory::new(config).expect("address space")
}
