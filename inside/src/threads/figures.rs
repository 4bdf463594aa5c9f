//! What both pagers say of their process on the board.
//!
//! Invariant: what forks share, the store too, is counted by parts, so that the sum over all
//! processes is what they have. Lock: none.

use crate::board::Slot;
use crate::ways::Store;
use std::sync::atomic::Ordering;

/// Memory of the process, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Used {
    /// In memory, without `others`.
    pub(super) bytes: u64,
    /// Shared by forks, as far as it is the part of other processes.
    pub(super) others: u64,
    /// Of `bytes`: it was the part of others at the last answer of the system, and threads were let
    /// copy it since.
    pub(super) guessed: u64,
    /// The processes of the run at that answer, as the board's number.
    pub(super) members: u64,
}

/// Says what is in memory. The store is shared like the rest.
pub(super) fn publish(slot: &Slot, used: Used, store: Option<&Store>) {
    let Used { bytes, others, guessed, members } = used;
    let held = store.map(Store::held).unwrap_or_default();
    if let Some(store) = store {
        // relaxed: figures.
        slot.disk.store(held.disk, Ordering::Relaxed);
        slot.disk_in.fetch_add(store.take_fetched(), Ordering::Relaxed);
    }
    let [stored, held] = [held.orig_data_size, held.compr_data_size]
        .map(|size| part(size, bytes, bytes.saturating_add(others)));
    // One after the other, so that hardly a look sees the one without the other.
    slot.shares(others, guessed, members);
    slot.publish(bytes, stored, held, (bytes + stored).saturating_sub(held));
}

/// The part of `size` that is `bytes` of `all`.
fn part(size: u64, bytes: u64, all: u64) -> u64 {
    if all == bytes {
        size
    } else {
        (u128::from(size) * u128::from(bytes) / u128::from(all)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn a_store_that_is_shared_is_counted_by_parts() {
        assert_eq!(part(1 << 40, 7, 7), 1 << 40, "alone");
        assert_eq!(part(1 << 40, 1 << 39, 1 << 40), 1 << 39);
        assert_eq!((part(100, 0, 50), part(0, 0, 0)), (0, 0));
    }
}
