//! The kernel's stores, borrowed for a measurement and given back as they were.
//!
//! ```text
//!   claim_zram, claim_zswap: take the lock
//!                            give back what a lab that was killed left
//!                            claim, unless it is in use
//! ```
//!
//! A group of processes whose memory is counted needs no lock: each is one of its own (`group`).
//!
//! Lock: the lock file, which keeps two labs apart and says what its holder has to give back.

use crate::ground::{Cleanup, LabError};
use claimed::GiveBack;
use lock::Lock;

mod aligned;
mod claimed;
mod group;
mod lock;
mod ring;
mod settings;
mod swap;
mod text;
mod zram;
pub(crate) mod zswap;

pub(crate) use aligned::Aligned;
#[cfg(test)]
pub(crate) use claimed::patiently;
pub(crate) use group::{Charged, GROUPS, Group};
pub(crate) use ring::Requests;
pub(crate) use settings::{needs_root, page_cluster};
pub(crate) use swap::{SPARE_BYTES, pages_swapped_out};
pub(crate) use text::MmStat;
pub(crate) use zram::{KernelZram, NAME};
pub(crate) use zswap::KernelZswap;

/// Claims zram0, or a device added for this where there is none or it is in use.
pub(crate) fn claim_zram(cleanup: &Cleanup) -> Result<KernelZram, LabError> {
    let claimed = lock().and_then(|lock| KernelZram::claim(cleanup, lock));
    claimed.map_err(|why| LabError::missing(zram::NAME, why))
}

/// Claims the kernel's zswap; nothing is changed yet.
pub(crate) fn claim_zswap(cleanup: &Cleanup) -> Result<KernelZswap, LabError> {
    let claimed = lock().and_then(|lock| KernelZswap::claim(cleanup, lock));
    claimed.map_err(|why| LabError::missing(zswap::NAME, why))
}

/// The lock; what a lab left that was killed is given back first.
fn lock() -> Result<Lock, String> {
    needs_root()?;
    let lock = Lock::take()?;
    if let Some(note) = lock.left() {
        eprintln!("lab: giving back what a lab that was killed left");
        if let Some((claim, bytes)) = zram::Claim::left(&note, &lock) {
            claim.give_back_for_another(&bytes)?;
        } else if let Some(claim) = zswap::Claim::left(&note, &lock) {
            claim.give_back()?;
        }
    }
    Ok(lock)
}
