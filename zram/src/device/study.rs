//! Slots that are emptied later: the callback form of study S3, for comparison. Without the feature
//! `study` the file `aside` is in the place of this one.
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
//! Locks: the queue's turn, then a cell. A thread that flushes holds no cell. One that pushes may,
//! because a push never waits. Source: study S3, v3.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use zsmalloc::deferred::{Meters, Queue, QueueConfig, Values};
use zsmalloc::{CellGuard, LEAF_CELLS, MemoryError, PoolConfig, Slots};

use super::Zram;
use crate::cells::flags::{MARK, clear, is_marked};
use crate::cells::totals::{AtomicU64, change, total};
use crate::cells::{Counters, Emptied, Stored};
use crate::terms::ZramConfig;
use crate::terms::study::{FreeDesign, Study};

/// The slots of a device that are emptied later; none but with [`FreeDesign::Entries`].
pub(crate) struct Aside(Option<Arc<SetAside>>);

/// The slots of a device that are to be emptied.
pub(crate) struct SetAside {
    queue: Queue<u32>,
    /// Bytes of objects in marked slots.
    marked_bytes: Arc<AtomicU64>,
    /// A buffer became full, or none was free.
    full: Arc<AtomicBool>,
    /// A job that drains is on its way.
    asked: AtomicBool,
}

/// Marks that were set, and marks that went: entered in the counter together when this is dropped.
pub(crate) struct Marks<'c> {
    counter: &'c AtomicU64,
    /// Bytes of the objects of slots that lost their mark, and of those that got one.
    lost: u64,
    set: u64,
}

impl<'c> Marks<'c> {
    fn new(counter: &'c AtomicU64) -> Marks<'c> {
        Marks { counter, lost: 0, set: 0 }
    }
}

impl Drop for Marks<'_> {
    fn drop(&mut self) {
        change(self.counter, self.lost, self.set);
    }
}

/// What a locked slot holds, though it may be marked.
fn kept(slot: &CellGuard<'_>) -> Stored {
    Stored::of(slot.content(), slot.client())
}

impl Aside {
    /// The pool of a device.
    pub(super) fn pool(config: &ZramConfig, pool: PoolConfig) -> PoolConfig {
        let Study { design, shards, deferred, .. } = config.study;
        PoolConfig { deferred, shards, study: design.into(), ..pool }
    }

    /// None yet.
    pub(super) fn new(
        config: &ZramConfig,
        slots: &Arc<Slots>,
        counters: &Arc<Counters>,
    ) -> Result<Aside, MemoryError> {
        let Study { free, deferred, .. } = config.study;
        let set_aside = || SetAside::new(deferred, slots, counters);
        Ok(Aside((free == FreeDesign::Entries).then(set_aside).transpose()?))
    }

    /// The slots, if this is how pages are freed.
    pub(crate) fn slots(&self) -> Option<&Arc<SetAside>> {
        self.0.as_ref()
    }

    /// Empties the slots; false if there never are any. The caller has no slot locked.
    pub(crate) fn flush(&self) -> bool {
        self.0.as_ref().map(|slots| slots.queue.flush()).is_some()
    }

    /// The content of a locked slot, which is about to be replaced. The mark goes.
    pub(crate) fn take(&self, slot: &mut CellGuard<'_>) -> Stored {
        let old = kept(slot);
        if is_marked(slot) {
            let bytes = old.tally().bytes;
            self.0.iter().for_each(|slots| change(&slots.marked_bytes, bytes, 0));
            clear(slot, MARK);
        }
        old
    }

    /// The content that a locked slot has until it is emptied.
    pub(crate) fn kept(&self, slot: &CellGuard<'_>) -> Stored {
        kept(slot)
    }

    /// Bytes of the objects in the slots. The counters of the device have them too.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.as_ref().map_or(0, |slots| total(&slots.marked_bytes))
    }

    /// Bytes of heap.
    pub(crate) fn heap_bytes(&self) -> u64 {
        self.0.as_ref().map_or(0, |slots| slots.queue.meters().heap_bytes)
    }

    /// Recounts the slots.
    pub(crate) fn check(&self, slots: &Slots) -> Result<(), String> {
        if self.0.is_none() {
            return Ok(());
        }
        let leaves = (0..slots.root_len()).filter(|&index| slots.leaf(index).is_some());
        let pages = leaves.flat_map(|index| index * LEAF_CELLS..(index + 1) * LEAF_CELLS);
        let marked = pages.filter_map(|page| slots.lock(page as u64).filter(is_marked));
        let bytes: u64 = marked.map(|slot| kept(&slot).tally().bytes).sum();
        let counted = self.bytes();
        if counted == bytes {
            return Ok(());
        }
        Err(format!("marked slots hold {bytes} bytes, counted {counted}"))
    }
}

impl Zram {
    /// The queue of [`FreeDesign::Entries`] and [`FreeDesign::Handles`]: what is pending in it, and
    /// what was freed at once because the queue had no room. All zero in the other ways.
    pub fn deferred(&self) -> Meters {
        match self.aside.slots() {
            Some(slots) => slots.queue.meters(),
            None => self.slots.pool.deferred(),
        }
    }
}

impl SetAside {
    /// None yet.
    fn new(
        config: QueueConfig,
        slots: &Arc<Slots>,
        counters: &Arc<Counters>,
    ) -> Result<Arc<SetAside>, MemoryError> {
        let full = Arc::new(AtomicBool::new(false));
        let (slots, of, told) = (Arc::clone(slots), Arc::clone(counters), Arc::clone(&full));
        let marked_bytes = Arc::new(AtomicU64::new(0));
        let marked = Arc::clone(&marked_bytes);
        let drain = move |pages: &mut Values<'_, u32>| {
            let change = of.change();
            let mut emptied = Emptied::new(&change);
            let mut marks = Marks::new(&marked);
            pages.for_each(|page| empty(&slots, page, &mut emptied, &mut marks));
        };
        // relaxed: a hint to the thread that pushed.
        let tell = move || told.store(true, Ordering::Relaxed);
        let queue = Queue::new(config, drain, tell).map_err(|_| MemoryError::BadConfig {
            what: "no memory for the buffers of slots that are to be emptied",
        })?;
        Ok(Arc::new(SetAside { queue, marked_bytes, full, asked: AtomicBool::new(false) }))
    }

    /// Marks that are yet to be entered.
    pub(crate) fn marks(&self) -> Marks<'_> {
        Marks::new(&self.marked_bytes)
    }

    /// Sets a locked slot aside; false when it holds no object, or the queue has no room.
    pub(crate) fn put(&self, page: u64, slot: &mut CellGuard<'_>, marks: &mut Marks<'_>) -> bool {
        let Stored::Blob { len, .. } = kept(slot) else { return false };
        if is_marked(slot) {
            return true; // it is in the queue
        }
        // The slot is locked: the drain waits for the mark.
        if self.queue.push(page as u32, len as u64).is_err() {
            return false;
        }
        slot.set_client(MARK);
        marks.set += len as u64;
        true
    }

    /// Asks the memory's worker to drain what was set aside, unless it is asked already; given no
    /// slot is locked. Where there is no worker, it is drained when this returns.
    pub(crate) fn ask(self: &Arc<SetAside>, slots: &Slots) {
        // relaxed: a hint; what is pushed later asks later.
        self.full.store(false, Ordering::Relaxed);
        // AcqRel pairs with the exchange in the job, so that the job flushes what was pushed by a
        // thread that finds it asked for.
        if self.asked.swap(true, Ordering::AcqRel) {
            return;
        }
        let set_aside = Arc::downgrade(self);
        slots.pool.memory().defer(0, move || {
            if let Some(set_aside) = set_aside.upgrade() {
                // This comes before the flush, so that a thread whose page the flush misses asks
                // again. AcqRel pairs with the exchange in `ask`, so that the flush sees what a
                // thread pushed before it found the job asked for.
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
}

/// Empties the slot of a page, if it is still to be emptied.
fn empty(slots: &Slots, page: u32, emptied: &mut Emptied<'_>, marks: &mut Marks<'_>) {
    // The objects of a device that is about to go end with its pool.
    if slots.pool.is_retired() {
        return;
    }
    let Some(mut slot) = slots.lock(page.into()) else { return };
    if is_marked(&slot) {
        let before = kept(&slot);
        clear(&mut slot, MARK);
        slot.clear();
        marks.lost += before.tally().bytes;
        emptied.add(&slot, before);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::study::FreeDesign;
    use crate::{Zram, ZramConfig, small};

    const PAGE: usize = 4096;

    fn device() -> Zram {
        let config =
            ZramConfig { study: FreeDesign::Entries.into(), ..ZramConfig::new("zram0", 1 << 22) };
        Zram::new(small::memory(), config).expect("a device")
    }

    fn data(page: u64, version: u64) -> Vec<u8> {
        (0..PAGE as u64)
            .map(|at| if at % 5 == 0 { (at * version + page) as u8 } else { 9 })
            .collect()
    }

    /// Discards a page, and asks nobody to drain.
    fn set_aside(zram: &Zram, page: u64) {
        zram.discard_slots(page..page + 1, &zram.counters.change());
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
        zram.aside.flush();
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
        zram.aside.flush();
        expect(&zram, 3, &data(3, 2));
        set_aside(&zram, 3);
        zram.write_page(3, &[7; PAGE]).expect("room");
        zram.aside.flush();
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
        zram.aside.flush();
        zram.write_page(3, &data(3, 9)).expect("room");
        zram.aside.flush();
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
        zram.aside.flush();
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
