//! What both pagers say of their process on the board.
//!
//! Invariant: what forks share, the store too, is counted by parts, so that the sum over all
//! processes is what they have. Lock: none.

use crate::board::Slot;
use crate::ways::Store;
use std::sync::atomic::Ordering;

/// Bytes in memory, and those that are the part of other processes. Of the first, some were that
/// when it was asked last, and may have been copied since.
#[derive(Debug, Clone, Copy)]
pub(super) struct Used {
    pub(super) bytes: u64,
    pub(super) others: u64,
    pub(super) guessed: u64,
    /// Among which processes that was asked.
    pub(super) members: u64,
}

/// Says what is in memory. The store is shared like the rest.
pub(super) fn publish(slot: &Slot, used: Used, store: Option<&Store>) {
    let Used { bytes, others, guessed, members } = used;
    slot.shares(others, guessed, members);
    let held = store.map(Store::held).unwrap_or_default();
    if let Some(store) = store {
        // relaxed: figures.
        slot.disk.store(held.disk, Ordering::Relaxed);
        slot.disk_in.fetch_add(store.take_fetched(), Ordering::Relaxed);
    }
    let [stored, held] = [held.orig_data_size, held.compr_data_size]
        .map(|size| part(size, bytes, bytes.saturating_add(others)));
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
