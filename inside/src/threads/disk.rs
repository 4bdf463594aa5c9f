//! What both pagers have to do with the disk behind a store.
//!
//! Invariant: what is said of it is of this process. Lock: none.

use crate::board::{Board, Slot};
use crate::ways::{Store, Writer};
use std::sync::atomic::Ordering;
use zram::Codec;

/// The store of a process of a run.
pub(super) fn store(board: &Board, codec: Codec) -> Result<Store, String> {
    // relaxed: written before this process was started.
    let limit = board.head().limit.load(Ordering::Relaxed);
    match board.backing() {
        Some(_) => Store::backed(codec, 2 * limit),
        None => Store::new(codec, 2 * limit),
    }
}

/// Says what a writer of a store has done: so many pages left memory.
pub(super) fn count_written(board: &Board, slot: &Slot, writer: &mut Writer, pages: usize) {
    // relaxed: figures.
    slot.disk_out.fetch_add(pages as u64, Ordering::Relaxed);
    let (refused, errno) = writer.failed();
    if refused > 0 {
        slot.disk_refused.fetch_add(refused, Ordering::Relaxed);
        // relaxed: as above.
        board.head().disk_error.store(errno as u64, Ordering::Relaxed);
    }
}

/// Says what is on the disk, and what came from there.
pub(super) fn say_disk(slot: &Slot, store: &Store, bytes: u64) {
    // relaxed: figures.
    slot.disk.store(bytes, Ordering::Relaxed);
    slot.disk_in.fetch_add(store.take_fetched(), Ordering::Relaxed);
}
