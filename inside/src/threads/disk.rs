//! What both pagers have to do with the disk behind a store.
//!
//! Invariant: what is said of it is of this process. Lock: none.

use crate::board::{Board, Packing, Slot};
use crate::ways::{Store, Writer};
use std::sync::atomic::Ordering;

/// The store of a process of a run. `None` if there is no room for one, or if the board names what
/// this library does not know.
pub(super) fn store(board: &Board) -> Option<Store> {
    let packing = Packing::named(&board.algorithm())?;
    // relaxed: written before this process was started.
    let limit = board.head().limit.load(Ordering::Relaxed);
    let store = match board.backing() {
        Some(_) => Store::backed(packing, 2 * limit),
        None => Store::new(packing, 2 * limit),
    };
    store.ok()
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
