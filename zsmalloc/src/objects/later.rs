//! Freeing later: objects that their owners are done with are queued, and freed by other threads.
//!
//! ```text
//!   handle -- free_deferred --> its entry \               / sorted by class, one lock hold
//!   cell --- clear_deferred --> the place  > Queue ------>  for all of a class, frames back
//!                                            \            \ after it
//!                                             `-- no room: freed at once
//! ```
//!
//! Source: study S3, its allocator-only form. The memory's worker drains a buffer as soon as it is
//! full, and everything at its next tick. Everything is drained too before a compaction, when a
//! store finds the limit reached or no frame, and when the pool is dropped.
//!
//! Invariants
//! - I1 an object that is pending is in use to all others: its frames are touched and counted, so
//!   that limits see it, and no slot is given twice.
//! - I2 a queued entry is a handle's whose owner gave it away, so no client reads or frees it. The
//!   mover moves it like any other. A queued place is of an object whose cell names it no more. Its
//!   back reference is left alone, because the way to it costs as much as a free. So the mover
//!   finds the cell, finds something else in it, and leaves the object where it is.
//! - I3 an object is queued before its cell is unlocked: it is named by its cell, or pending.
//!
//! Locks: the queue's. A drain holds the turn to drain, and takes class locks under it. A thread
//! that flushes may hold a cell, because nothing here waits for one.

use std::sync::Weak;

use host::sync::atomic::Ordering;

use super::batch::BATCH;
use super::store::Reserved;
use crate::class::Class;
use crate::deferred::{Meters, Queue, QueueConfig, Values};
use crate::leaves::LeafUse;
use crate::numbers::{AllocError, CellNumber, LEAF_CELLS, Place, Word};
use crate::pool::{Freed, Pool, place_in};

/// Objects freed together.
const AT_ONCE: usize = LEAF_CELLS;
const _: () = assert!(AT_ONCE <= BATCH, "as many as either way of freeing takes");

impl Pool {
    /// Frees the object of an entry that the caller owns, soon.
    #[inline(always)]
    pub(crate) fn free_lagging(&self, entry: CellNumber) {
        host::prefetch(self.handle_cell(entry));
        if let Some(out) = self.lag.pass(entry, |halfway| self.prefetch_zspage(halfway)) {
            self.free_entry(out);
        }
        self.stir();
    }

    /// Starts loading the header of an object's zspage, whose cell has come. The entry may be freed
    /// meanwhile and be anybody's: whatever its cell says, nothing but a load comes of it.
    #[inline(always)]
    fn prefetch_zspage(&self, entry: CellNumber) {
        let Some(cell) = self.memory.leaves.cell(entry) else { return };
        // relaxed: a hint.
        let place = Word(cell.load(Ordering::Relaxed)).place();
        if let Some(descriptor) = place.and_then(|place| self.memory.owner_at(place.pfn())) {
            self.memory.descriptors.header(descriptor).prefetch();
        }
    }

    /// Frees what lags. False if nothing ever did.
    pub(crate) fn flush_lagging(&self) -> bool {
        let flush = self.lag.flush();
        flush.map(|entries| entries.for_each(|entry| self.free_entry(entry))).is_some()
    }

    /// Frees everything that is pending, and waits for what another thread is freeing. Gives the
    /// number of objects that this thread freed, without those of [`Pool::free_handle`].
    pub fn flush_deferred(&self) -> u64 {
        self.flush_lagging();
        self.pending.get().map_or(0, Queue::flush)
    }

    /// What is pending, and how the queue fares. All of it is zero before the first use.
    pub fn deferred(&self) -> Meters {
        self.pending.get().map(Queue::meters).unwrap_or_default()
    }

    #[cold]
    fn build_queue(&self, config: QueueConfig) -> Option<Queue<Freed>> {
        let (drained, told) = (Weak::clone(&self.this), Weak::clone(&self.this));
        let drain = move |values: &mut Values<'_, Freed>| {
            // The thread that drains has a reference to the pool. To drop the pool drains in
            // another way.
            if let Some(pool) = drained.upgrade() {
                pool.free_pending(values);
            }
        };
        let full = move || {
            if let Some(pool) = told.upgrade() {
                pool.memory.worker.notice_full();
            }
        };
        Queue::new(config, drain, full).ok()
    }

    /// Queues an object that no cell names any more. False if there is no room.
    pub(crate) fn free_place_deferred(&self, place: Place) -> bool {
        self.defer_free(Freed::object(place))
    }

    /// Queues an object. False if there is no room.
    pub(crate) fn defer_free(&self, freed: Freed) -> bool {
        let build = |config| self.build_queue(config);
        let Some(queue) = self.pending.get_or_build(build) else { return false };
        let queued = queue.push(freed, self.weight(freed)).is_ok();
        if queued {
            // After the push: the compaction that this asks for finds it.
            self.stir();
        }
        queued
    }

    /// Bytes of an object that is pending.
    fn weight(&self, freed: Freed) -> u64 {
        let place = freed.place().unwrap_or_else(|entry| place_in(self.handle_cell(entry)));
        u64::from(self.geometry().shape(place.class()).size - place.slack())
    }

    /// Frees the objects of one buffer.
    fn free_pending(&self, values: &mut Values<'_, Freed>) {
        let (mut entries, mut places) = ([CellNumber::NONE; AT_ONCE], [Place::default(); AT_ONCE]);
        while values.len() > 0 {
            let (mut handles, mut objects) = (0, 0);
            for freed in values.by_ref().take(AT_ONCE) {
                match freed.place() {
                    Ok(place) => {
                        places[objects] = place;
                        objects += 1;
                    }
                    Err(entry) => {
                        entries[handles] = entry;
                        handles += 1;
                    }
                }
            }
            self.free_entries(&entries[..handles]);
            // The objects of a pool that is about to be dropped end with their zspages.
            if !self.is_retired() {
                self.free_places(&places[..objects]);
            }
        }
    }

    /// Frees what fills buffers now: for the worker, which has other work too. What fills one
    /// meanwhile asks for it again, see `build_queue`.
    pub(crate) fn drain_deferred(&self) {
        if let Some(queue) = self.pending.get() {
            queue.drain_some(usize::MAX);
        }
    }

    /// Frees what is pending: for a pool that is being dropped.
    pub(crate) fn close_deferred(&mut self) {
        let Some(mut queue) = self.pending.take() else { return };
        // As for a retired pool: only what names the handles' entries is to be put right.
        self.retire(std::iter::empty());
        queue.flush_with(|values| self.free_pending(values));
    }

    /// Tries to store once more, when what is pending, or was when the first try failed, has made
    /// room.
    #[cold]
    pub(crate) fn reserve_again<'p>(
        &'p self,
        error: AllocError,
        class: &'p Class,
        len: usize,
        handle: Option<LeafUse>,
    ) -> Result<Reserved<'p>, AllocError> {
        let (lagged, queue) = (self.flush_lagging(), self.pending.get());
        if let Some(queue) = queue {
            queue.flush();
        }
        // Also where nothing is pending any more: another thread may have just freed it.
        if lagged || queue.is_some() { self.reserve(class, len, handle) } else { Err(error) }
    }

    /// Recounts what is pending, and returns the objects.
    pub(crate) fn check_pending(&self) -> Result<u64, String> {
        let Some(queue) = self.pending.get() else { return Ok(0) };
        let counted = queue.check(|&freed| self.weight(freed)).map_err(|defect| defect.0)?;
        Ok(counted.0)
    }

    /// How many pending objects came from cells; `None` if nothing was ever deferred.
    pub(crate) fn detached(&self) -> Option<u64> {
        self.pending.get().map(|queue| queue.count_if(|freed| freed.place().is_ok()))
    }
}
