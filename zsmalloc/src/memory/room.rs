//! A memory with less room than it would like, in a process that may not reserve more addresses.
//!
//! ```text
//!   arena:   5/4 of the machine   --refused (`ulimit -v`)-->   room for a limit
//! ```
//!
//! Invariant: pools whose limits add up to [`Memory::limit_max`] find frames.
//!
//! Lock: none.

use std::sync::Arc;

use host::HostError;

use super::{ARENA_FRAMES_SMALL, Memory, MemoryConfig};
use crate::numbers::MemoryError;

/// Frames for each frame of the limit: between zspages are holes, too short for the next one.
const FRAMES_PER_FRAME: u64 = 2;

impl MemoryConfig {
    /// The same with an arena that has room for pools of `limit` bytes together, if that is less.
    pub fn narrowed(self, limit: u64) -> MemoryConfig {
        let frames = limit.div_ceil(host::PAGE_SIZE as u64).saturating_mul(FRAMES_PER_FRAME);
        let frames = frames.saturating_add(ARENA_FRAMES_SMALL.into());
        let arena_frames = frames.min(self.arena_frames.into()) as u32;
        MemoryConfig { arena_frames, ..self }
    }
}

impl Memory {
    /// As [`Memory::new`], without per-CPU lists: for comparison.
    pub fn without_cpu_lists(config: MemoryConfig) -> Result<Arc<Memory>, MemoryError> {
        Memory::build(config, 0, None)
    }

    /// As [`Memory::new`]. If the system refuses the addresses, the memory has room for pools of
    /// `limit` bytes together; 0 means no limit.
    ///
    /// # Errors
    ///
    /// Those of [`Memory::new`].
    pub fn with_room_for(config: MemoryConfig, limit: u64) -> Result<Arc<Memory>, MemoryError> {
        let narrowed = config.narrowed(limit);
        match Memory::new(config) {
            Err(MemoryError::Host(HostError::Reserve { .. }))
                if limit > 0 && narrowed != config =>
            {
                let mut memory = Memory::assemble(narrowed, narrowed.expected_bytes, None)?;
                memory.limit_max = Some(limit);
                Ok(Arc::new(memory))
            }
            outcome => outcome,
        }
    }

    /// The most that the limits of the pools may add up to, in bytes, where the system refused
    /// addresses for more.
    pub fn limit_max(&self) -> Option<u64> {
        self.limit_max
    }
}
