//! What is done to pages that are stored: `idle`, `writeback`, `recompress`.
//!
//! Lock: the device's turn, so that one of them runs at a time.

use super::errno::{AttributeError, Errno};
use super::life::{BlockStates, Device};
use super::store::initialised;

pub(crate) fn idle(_device: &Device, _text: &str) -> Result<(), AttributeError> {
    Err(AttributeError::new(Errno::NotSupported, "pages cannot be marked"))
}

pub(crate) fn block_states(
    device: &Device,
    _page: u64,
    _bytes_max: usize,
) -> Result<BlockStates, AttributeError> {
    initialised(device)?;
    Ok(BlockStates { text: String::new(), next: None })
}
