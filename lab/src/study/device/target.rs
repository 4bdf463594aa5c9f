//! What is measured from outside: a server of an NBD disk, or the kernel's device.
//!
//! Invariant: it is filled and verified with the same bytes, whichever it is.

use crate::apparatus::served::Served;
use crate::ground::{Cleanup, LabError};
use crate::kernel::{self, Aligned, KernelZram};
use crate::pages::PAGE_SIZE;

/// Requests under way.
pub(super) const DEPTH: u32 = 16;

/// A disk fio can be pointed at.
pub(super) enum Target {
    Nbd(Served),
    Kernel { peer: KernelZram, algorithm: &'static str },
}

/// Pages per request when the kernel's device is filled.
const BATCH: usize = 64;

impl Target {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Target::Nbd(served) => served.device,
            Target::Kernel { .. } => kernel::NAME,
        }
    }

    pub(super) fn algorithm(&self) -> &str {
        match self {
            Target::Nbd(served) => &served.algorithm,
            Target::Kernel { algorithm, .. } => algorithm,
        }
    }

    pub(super) fn fill(&self, pages: &[u8], cleanup: &Cleanup) -> Result<(), LabError> {
        match self {
            Target::Nbd(served) => served.fill(pages, cleanup),
            Target::Kernel { peer, .. } => {
                for (batch, bytes) in pages.chunks(BATCH * PAGE_SIZE).enumerate() {
                    let mut aligned = Aligned::new(bytes.len());
                    aligned.bytes().copy_from_slice(bytes);
                    peer.write(batch * BATCH, &mut aligned)?;
                }
                peer.close()
            }
        }
    }

    pub(super) fn verify(&self, pages: &[u8], cleanup: &Cleanup) -> Result<(), LabError> {
        match self {
            Target::Nbd(served) => served.verify(pages, cleanup),
            Target::Kernel { peer, .. } => {
                for (batch, bytes) in pages.chunks(BATCH * PAGE_SIZE).enumerate() {
                    let mut aligned = Aligned::new(bytes.len());
                    peer.read(batch * BATCH, &mut aligned)?;
                    if aligned.bytes() != bytes {
                        let what = format!("{} does not hold the corpus", kernel::NAME);
                        return Err(LabError::Wrong(what));
                    }
                }
                peer.close()
            }
        }
    }

    pub(super) fn stored_bytes(&self) -> Result<u64, LabError> {
        match self {
            Target::Nbd(served) => Ok(served.anonymous_bytes()),
            Target::Kernel { peer, .. } => Ok(peer.mm_stat()?.mem_used_total),
        }
    }

    pub(super) fn page_table_bytes(&self) -> Option<u64> {
        match self {
            Target::Nbd(served) => Some(served.page_table_bytes()),
            Target::Kernel { .. } => None,
        }
    }
}
