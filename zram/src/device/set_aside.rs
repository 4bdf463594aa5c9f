//! Slots that are emptied later: the callback form of study S3, for comparison.
//!
//! ```text
//!   discard   slot locked: marked, its number queued   -> reads as zeros
//!   write     slot locked: new content, mark gone      -> the old object is freed by the write
//!   drain     slot locked: marked? object freed, mark gone
//!                          not?    nothing: a later write, or another drain, was first
//! ```
//!
//! A number in the queue is no right to anything: the mark in the cell is, and it is set, cleared
//! and looked at under the cell's lock. So a write that comes between a discard and its drain
//! wins, and so does one that comes with its leaf after the old leaf is gone.
//!
//! Invariants
//! - I1 a marked slot holds an object, and its number is in the queue at least once.
//! - I2 the counter of pending bytes is the sum of the marked slots' objects.
//! - I3 while numbers are queued a request is under way that will ask for the drain, or has asked.
//!
//! Locks: the queue's turn, then a cell. Who flushes holds no cell; who pushes may, as a push never
//! waits. Source: study S3, v3.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use zsmalloc::deferred::{Meters, Queue, QueueConfig, Values};
use zsmalloc::{CellGuard, MemoryError, Slots};

use crate::cells::flags::{MARK, clear, is_marked};
use crate::cells::{Counters, Emptied, Stored};

/// The slots of a device that are to be emptied.
pub(crate) struct SetAside {
    queue: Queue<u32>,
    /// A buffer became full, or none was free.
    full: Arc<AtomicBool>,
    /// A job that drains is on its way.
    asked: AtomicBool,
}

/// The mark of a slot whose content is about to be replaced goes.
pub(crate) fn unmark(slot: &mut CellGuard<'_>, counters: &Counters) {
    if is_marked(slot) {
        counters.replace_marked(Stored::in_cell(slot).object_bytes(), 0);
        clear(slot, MARK);
    }
}

impl SetAside {
    /// None yet.
    pub(crate) fn new(
        config: QueueConfig,
        slots: &Arc<Slots>,
        counters: &Arc<Counters>,
    ) -> Result<Arc<SetAside>, MemoryError> {
        let full = Arc::new(AtomicBool::new(false));
        let (slots, of, told) = (Arc::clone(slots), Arc::clone(counters), Arc::clone(&full));
        let drain = move |pages: &mut Values<'_, u32>| {
            let (_change, mut emptied) = (of.change(), Emptied::new(&of));
            pages.for_each(|page| empty(&slots, page, &mut emptied));
        };
        // relaxed: a hint to the thread that pushed.
        let tell = move || told.store(true, Ordering::Relaxed);
        let queue = Queue::new(config, drain, tell).map_err(|_| MemoryError::BadConfig {
            what: "no memory for the buffers of slots that are to be emptied",
        })?;
        Ok(Arc::new(SetAside { queue, full, asked: AtomicBool::new(false) }))
    }

    /// Sets a locked slot aside; false when it holds no object, or the queue has no room.
    pub(crate) fn put(
        &self,
        page: u64,
        slot: &mut CellGuard<'_>,
        emptied: &mut Emptied<'_>,
    ) -> bool {
        let Stored::Blob { len, .. } = Stored::in_cell(slot) else { return false };
        if is_marked(slot) {
            return true; // it is in the queue
        }
        // The slot is locked: the drain waits for the mark.
        if self.queue.push(page as u32, len as u64).is_err() {
            return false;
        }
        slot.set_client(MARK);
        emptied.marked(len as u64);
        true
    }

    /// Asks the memory's worker to drain what was set aside, unless it is asked already; given no
    /// slot is locked. Where there is no worker, it is drained when this returns.
    pub(crate) fn ask(self: &Arc<SetAside>, slots: &Slots) {
        // relaxed: a hint; what is pushed later asks later.
        self.full.store(false, Ordering::Relaxed);
        // AcqRel pairs with the exchange in the job: who finds it taken pushed before that flushes.
        if self.asked.swap(true, Ordering::AcqRel) {
            return;
        }
        let set_aside = Arc::downgrade(self);
        slots.pool.memory().defer(0, move || {
            if let Some(set_aside) = set_aside.upgrade() {
                // Before the flush: what is not flushed by it asks again.
                // AcqRel pairs with the exchange in `ask`: what was pushed before that found it
                // taken is seen by the flush.
                set_aside.asked.swap(false, Ordering::AcqRel);
                set_aside.queue.flush();
            }
        });
    }

    /// The same where a buffer is full.
    pub(crate) fn ask_if_full(self: &Arc<SetAside>, slots: &Slots) {
        // relaxed: a hint.
        if self.full.load(Ordering::Relaxed) {
            self.ask(slots);
        }
    }

    /// Empties every slot that was set aside before.
    pub(crate) fn flush(&self) {
        self.queue.flush();
    }

    /// What the queue counts.
    pub(crate) fn meters(&self) -> Meters {
        self.queue.meters()
    }
}

/// Empties the slot of a page, if it is still to be emptied.
fn empty(slots: &Slots, page: u32, emptied: &mut Emptied<'_>) {
    // The objects of a device that is about to go end with its pool.
    if slots.pool.is_retired() {
        return;
    }
    let Some(mut slot) = slots.lock(page.into()) else { return };
    if is_marked(&slot) {
        let before = Stored::in_cell(&slot);
        clear(&mut slot, MARK);
        slot.clear();
        emptied.unmarked(before.object_bytes());
        emptied.add(&slot, before);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::{Free, Zram, ZramConfig, small};

    const PAGE: usize = 4096;

    fn device() -> Zram {
        let config = ZramConfig { free: Free::Entries, ..ZramConfig::new("zram0", 1 << 22) };
        Zram::new(small::memory(), config).expect("a device")
    }

    fn data(page: u64, version: u64) -> Vec<u8> {
        (0..PAGE as u64)
            .map(|at| if at % 5 == 0 { (at * version + page) as u8 } else { 9 })
            .collect()
    }

    /// Discards a page, and asks nobody to drain.
    fn set_aside(zram: &Zram, page: u64) {
        zram.discard_slots(page..page + 1);
    }

    #[track_caller]
    fn expect(zram: &Zram, page: u64, expected: &[u8]) {
        let mut read = vec![1; PAGE];
        zram.read_page(page, &mut read).expect("in range");
        assert!(read == expected, "page {page}");
        zram.check().expect("no defect");
    }

    fn pending(zram: &Zram) -> (u64, u64) {
        (zram.deferred().pending_values, u64::from(zram.stat().pending_bytes > 0))
    }

    #[test]
    fn a_slot_set_aside_reads_as_zeros_and_is_emptied_by_a_flush() {
        let zram = device();
        zram.write_page(3, &data(3, 1)).expect("room");
        set_aside(&zram, 3);
        assert_eq!(pending(&zram), (1, 1));
        expect(&zram, 3, &[0; PAGE]);
        set_aside(&zram, 3);
        assert_eq!(pending(&zram), (1, 1), "it is queued once");
        assert_eq!(zram.mm_stat().0[0], PAGE as u64, "stored, until it is drained");
        zram.flush_set_aside();
        assert_eq!((pending(&zram), zram.mm_stat().0[0]), ((0, 0), 0));
        expect(&zram, 3, &[0; PAGE]);
        assert_eq!(zram.stat().mem_used_total, 0);
    }

    #[test]
    fn a_write_between_a_discard_and_its_drain_wins() {
        let zram = device();
        zram.write_page(3, &data(3, 1)).expect("room");
        set_aside(&zram, 3);
        zram.write_page(3, &data(3, 2)).expect("room");
        assert_eq!(pending(&zram), (1, 0), "the number is queued, and means nothing");
        zram.flush_set_aside();
        expect(&zram, 3, &data(3, 2));
        set_aside(&zram, 3);
        zram.write_page(3, &[7; PAGE]).expect("room");
        zram.flush_set_aside();
        expect(&zram, 3, &[7; PAGE]);
    }

    #[test]
    fn what_was_set_aside_twice_is_freed_once() {
        let zram = device();
        for version in 1..4 {
            zram.write_page(3, &data(3, version)).expect("room");
            set_aside(&zram, 3);
        }
        assert_eq!(zram.deferred().pending_values, 3);
        expect(&zram, 3, &[0; PAGE]);
        zram.flush_set_aside();
        zram.write_page(3, &data(3, 9)).expect("room");
        zram.flush_set_aside();
        expect(&zram, 3, &data(3, 9));
    }

    #[test]
    fn a_part_of_a_slot_set_aside_is_changed_among_zeros() {
        let zram = device();
        zram.write_page(3, &data(3, 1)).expect("room");
        set_aside(&zram, 3);
        disk::Disk::write(&zram, 3 * PAGE as u64 + 100, &[5; 50]).expect("room");
        let mut expected = vec![0; PAGE];
        expected[100..150].fill(5);
        zram.flush_set_aside();
        expect(&zram, 3, &expected);
    }

    #[test]
    fn a_same_filled_page_is_emptied_at_once() {
        let zram = device();
        zram.write_page(3, &[8; PAGE]).expect("room");
        set_aside(&zram, 3);
        assert_eq!((pending(&zram), zram.mm_stat().0[0]), ((0, 0), 0));
    }
}
