//! What the kernel swaps to: its zram, or a file with its zswap before it.
//!
//! ```text
//!   set_up -> swapped on ... memory goes out and in ... all_in_memory? -> swap_off
//! ```

use super::ours::Backend;
use crate::frame::{Lab, note};
use crate::ground::LabError;
use crate::kernel::{self, KernelZram, zswap};

/// A claimed peer.
pub(crate) enum Peer {
    Zram(KernelZram),
    Zswap(zswap::KernelZswap),
}

/// What a peer counts.
#[derive(Clone, Copy)]
pub(crate) struct Used {
    /// Bytes of memory that stored pages take.
    pub(crate) bytes: u64,
    /// What is to be gone in the end. For zswap these are bytes of pages, not of its pool: a few
    /// that the kernel is late with, since they were looked at when they were unmapped, keep eight
    /// frames each.
    pub(crate) stored_bytes: u64,
    /// Pages written to a disk since the kernel started.
    pages_to_file: u64,
}

impl Peer {
    /// The like of `backend` where `--vs-kernel` asks for it; a note if it is not available.
    pub(crate) fn of(backend: Backend, lab: &Lab, notes: &mut Vec<String>) -> Option<Peer> {
        match backend {
            Backend::Zram => lab.kernel_peer(notes).map(Peer::Zram),
            Backend::Zswap => lab.kernel_zswap(notes).map(Peer::Zswap),
        }
    }

    /// The name rows and messages use.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Peer::Zram(_) => kernel::NAME,
            Peer::Zswap(_) => zswap::NAME,
        }
    }

    /// Swaps on room for `bytes`; the algorithm, which need not be the one asked for.
    pub(crate) fn set_up(
        &self,
        algorithm: &str,
        bytes: u64,
        notes: &mut Vec<String>,
    ) -> Result<String, LabError> {
        let bytes = bytes + kernel::SPARE_BYTES;
        let missing = |error: LabError| LabError::missing(self.name(), error);
        match self {
            Peer::Zram(peer) => {
                peer.set_up(algorithm, bytes).map_err(missing)?;
                peer.swap_on()?;
                Ok(algorithm.to_owned())
            }
            Peer::Zswap(peer) => {
                let has = peer.set_up(algorithm, bytes).map_err(missing)?;
                if has != algorithm {
                    let name = self.name();
                    note(notes, format!("{name}: {has}; this kernel's has no {algorithm}"));
                }
                Ok(has)
            }
        }
    }

    pub(crate) fn swap_off(&self) -> Result<(), LabError> {
        match self {
            Peer::Zram(peer) => peer.swap_off(),
            Peer::Zswap(peer) => peer.swap_off(),
        }
    }

    pub(crate) fn used(&self) -> Result<Used, LabError> {
        match self {
            Peer::Zram(peer) => {
                let bytes = peer.mm_stat()?.mem_used_total;
                Ok(Used { bytes, stored_bytes: bytes, pages_to_file: 0 })
            }
            Peer::Zswap(peer) => {
                let zswap::Counts { used_bytes, stored_bytes, pages_to_file } = peer.counts()?;
                Ok(Used { bytes: used_bytes, stored_bytes, pages_to_file })
            }
        }
    }
}

impl Used {
    /// Sees that what went out since `before` was kept in memory, all of it.
    pub(crate) fn all_in_memory_since(self, before: Used) -> Result<(), LabError> {
        let pages = self.pages_to_file - before.pages_to_file;
        let wrong = || LabError::Wrong(format!("{pages} pages went to the swap file"));
        (pages == 0).then_some(()).ok_or_else(wrong)
    }
}
