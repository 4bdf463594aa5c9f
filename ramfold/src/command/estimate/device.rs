//! A device that pages are stored in, one way of storing at a time.
//!
//! Invariant: the memory of a device is bounded by the limit that it was made with. Locks: none.

use host::PAGE_SIZE;
use zram::{Zram, ZramConfig};
use zsmalloc::{Memory, MemoryConfig};

use crate::line::Failure;

/// One page.
pub(crate) type Page = [u8; PAGE_SIZE];

/// A way of storing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) codec: codec::Codec,
    pub(super) chain_order: u32,
}

/// Why a device does not hold the pages.
#[derive(Debug)]
pub(super) enum Stop {
    /// The memory was full after so many pages.
    Full {
        stored: u64,
    },
    Failed(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop::Failed(failure)
    }
}

/// An empty device with room for so many pages.
pub(super) fn device(pages: u64, setting: &Setting, mem_limit: u64) -> Result<Zram, Failure> {
    let bytes = pages * PAGE_SIZE as u64;
    let room = MemoryConfig { expected_bytes: mem_limit, ..MemoryConfig::for_disk(bytes) };
    let config = ZramConfig {
        algorithm: setting.codec.clone(),
        chain_order: setting.chain_order,
        mem_limit,
        ..ZramConfig::new("estimate", bytes)
    };
    Ok(Zram::new(Memory::new(room)?, config)?)
}
