//! The setting that tests of regions share.

use ramfold_region::{FaultError, Memory, MemoryConfig, Pager, PagerConfig, RegionError};
use std::sync::Arc;

/// A pager with a memory of its own. If the system has no userfaultfd for us, it is `None`, and a
/// message says that the test is skipped.
pub(crate) fn pager(config: &PagerConfig) -> Option<Arc<Pager>> {
    let memory = Memory::new(MemoryConfig {
        arena_frames: 1 << 18,
        entries_max: 1 << 20,
        expected_bytes: 512 << 20,
        worker: true,
    });
    match Pager::new(memory.expect("a memory"), config) {
        Ok(pager) => Some(pager),
        Err(RegionError::Fault(
            error @ (FaultError::Denied { .. }
            | FaultError::Unsupported { .. }
            | FaultError::Unguarded { .. }),
        )) => {
            eprintln!("skipped: needs {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}
