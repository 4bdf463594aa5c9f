//! What a client and the server have agreed on.

use crate::exports;
use crate::nbd::wire;
use disk::Disk;

/// A disk that a client has chosen or asks about, with the facts about it that never change.
pub(crate) struct Export {
    open: exports::Export,
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
    /// Notes what never changes.
    pub(super) fn new(open: exports::Export) -> Self {
        let (size, read_only) = (open.disk.size_bytes(), open.disk.read_only());
        Self { open, size, read_only }
    }

    /// The disk itself.
    pub(super) fn disk(&self) -> &dyn Disk {
        &*self.open.disk
    }

    /// What clients call it.
    pub(super) fn name(&self) -> &str {
        &self.open.name
    }

    /// For people.
    pub(super) fn description(&self) -> &str {
        &self.open.description
    }

    /// What the client may do.
    pub(super) fn transmission_flags(&self, structured: bool) -> u16 {
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
        if structured {
            flags |= wire::SEND_DF;
        }
        flags
    }
}
