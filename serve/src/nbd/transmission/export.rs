//! What a client and the server have agreed on: an export, and the form of replies.
//!
//! Invariant: size and whether it is read-only never change while the export is open. Locks: none.

use super::wire;
use disk::Disk;
use std::sync::Arc;
use zram::Opened;

/// A disk that a client has chosen or asks about, with the facts about it that never change.
pub(crate) struct Export {
    name: String,
    description: String,
    disk: Arc<dyn Disk>,
    /// Bytes on it.
    size: u64,
    /// Whether changes are refused.
    read_only: bool,
    /// Kept until the connection is over, so that the device is neither reset nor removed.
    _opened: Option<Opened>,
}

/// What was agreed in the handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Agreed {
    /// Reads are answered in chunks.
    pub(crate) structured: bool,
    /// Block status requests are about `base:allocation`.
    pub(crate) allocation: bool,
}

impl Export {
    /// An export of a disk. For a device, `opened` keeps it open.
    pub(crate) fn new(
        name: String,
        description: String,
        disk: Arc<dyn Disk>,
        opened: Option<Opened>,
    ) -> Self {
        let (size, read_only) = (disk.size_bytes(), disk.read_only());
        Self { name, description, disk, size, read_only, _opened: opened }
    }

    /// The disk itself.
    pub(crate) fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    /// The name that clients use.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// A text for people.
    pub(crate) fn description(&self) -> &str {
        &self.description
    }

    /// Bytes on the disk.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Whether changes are refused.
    pub(crate) fn read_only(&self) -> bool {
        self.read_only
    }

    /// Flags that tell the client what it may do.
    pub(crate) fn transmission_flags(&self, structured: bool) -> u16 {
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
