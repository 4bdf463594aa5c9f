//! What is served, and what a client and the server have agreed on.

use crate::nbd::wire;
use disk::Disk;
use std::sync::Arc;

/// A disk with the facts about it that never change.
pub(crate) struct Export {
    /// The disk itself.
    pub(super) disk: Arc<dyn Disk>,
    /// What clients call it; they may also say nothing.
    pub(super) name: String,
    /// For people.
    pub(super) description: String,
    /// Bytes on it.
    pub(super) size: u64,
    /// Whether changes are refused.
    pub(super) read_only: bool,
}

/// What was agreed in the handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Agreed {
    /// Reads are answered in chunks.
    pub(super) structured: bool,
    /// Block status requests are about `base:allocation`.
    pub(super) allocation: bool,
}

impl Export {
    /// Serves `disk` under `name`.
    pub(crate) fn new(disk: Arc<dyn Disk>, name: String, description: String) -> Self {
        let (size, read_only) = (disk.size_bytes(), disk.read_only());
        Self { disk, name, description, size, read_only }
    }

    /// Whether a client that asks for `name` means this export.
    pub(super) fn answers_to(&self, name: &[u8]) -> bool {
        name.is_empty() || name == self.name.as_bytes()
    }

    /// What the client may do.
    pub(super) fn transmission_flags(&self, agreed: Agreed) -> u16 {
        let mut flags = wire::HAS_FLAGS
            | wire::SEND_FLUSH
            | wire::SEND_FUA
            | wire::SEND_TRIM
            | wire::SEND_WRITE_ZEROES
            | wire::CAN_MULTI_CONN
            | wire::SEND_CACHE
            | wire::SEND_FAST_ZERO;
        if self.read_only {
            flags |= wire::READ_ONLY;
        }
        if agreed.structured {
            flags |= wire::SEND_DF;
        }
        flags
    }
}
