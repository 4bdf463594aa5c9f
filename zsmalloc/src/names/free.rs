//! Freeing the objects of handles: soon, together, or later.
//!
//! ```text
//!   free_handle      a line of this thread      freed up to 8 frees later
//!   free_batch       512 entries together       one lock hold for all of a class
//!   free_deferred    the pool's queue           freed by the memory's worker
//! ```
//!
//! Invariant: a handle is consumed. It is checked to be the pool's, and from then on its entry
//! stands for the object. An iterator that panics loses no handle that it gave before.
//!
//! Locks: a shard's of a class for each object, or once for all of a batch that are in it. A free
//! that waits in a line takes none.

use crate::numbers::{CellNumber, ForeignHandle};
use crate::objects::BATCH;
use crate::pool::{Freed, Pool, Tables};

use super::handle::Handle;

/// Entries to be freed together: when there are so many, and at the latest when dropped, so that a
/// caller's iterator that panics loses nothing it has given.
struct Batch<'p> {
    pool: &'p Pool,
    tables: Tables<'p>,
    entries: [CellNumber; BATCH],
    len: usize,
}

impl Batch<'_> {
    #[inline(always)]
    fn add(&mut self, entry: CellNumber) {
        host::prefetch(self.tables.handle_cell(entry));
        self.entries[self.len] = entry;
        self.len += 1;
        if self.len == BATCH {
            self.free();
        }
    }

    #[inline(never)]
    fn free(&mut self) {
        let len = std::mem::take(&mut self.len);
        if len > 0 {
            self.pool.free_entries(&self.entries[..len]);
        }
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.free();
    }
}

impl Pool {
    /// Frees the object of a handle, up to [`PoolConfig::lag`] frees of this thread later. No
    /// figure of the pool shows the delay, and no store is refused because of it. The rest of a lag
    /// is freed by a thread that asks the pool for figures, compacts it, or calls
    /// [`Pool::flush_deferred`]. When the pool is at rest, the memory's worker does it.
    ///
    /// # Errors
    ///
    /// [`ForeignHandle`] with the handle when it is another pool's.
    ///
    /// [`PoolConfig::lag`]: crate::PoolConfig::lag
    pub fn free_handle(&self, handle: Handle) -> Result<(), ForeignHandle<Handle>> {
        if !self.owns(&handle) {
            return Err(ForeignHandle(handle));
        }
        self.free_lagging(handle.entry());
        Ok(())
    }

    /// Frees the objects of many handles, 512 at a time: sorted by class, with one lock hold for
    /// all of a class. Where the iterator panics, those it gave before are freed.
    ///
    /// # Errors
    ///
    /// [`ForeignHandle`] with those that are another pool's; the others are freed.
    pub fn free_batch(
        &self,
        handles: impl IntoIterator<Item = Handle>,
    ) -> Result<(), ForeignHandle<Vec<Handle>>> {
        let (mut foreign, owned) = (Vec::new(), self.owned_handles());
        let mut batch =
            Batch { pool: self, tables: self.tables(), entries: [CellNumber::NONE; BATCH], len: 0 };
        handles.into_iter().for_each(|handle| {
            if owned.has(&handle) {
                batch.add(handle.entry());
            } else {
                foreign.push(handle);
            }
        });
        drop(batch);
        if foreign.is_empty() { Ok(()) } else { Err(ForeignHandle(foreign)) }
    }

    /// Frees the object of a handle later. The memory's worker does it within half a second, or
    /// earlier if something needs the room or [`Pool::flush_deferred`] is called. If the queue has
    /// no room, the object is freed at once. Until it is freed it counts as stored.
    ///
    /// The first call builds the queue, see [`PoolConfig::deferred`].
    ///
    /// ```
    /// # use ramfold_zsmalloc::{Memory, MemoryConfig, Pool, PoolConfig};
    /// # let config = MemoryConfig {
    /// #     arena_frames: 1 << 16,
    /// #     entries_max: 1 << 20,
    /// #     expected_bytes: 64 << 20,
    /// #     worker: false,
    /// # };
    /// # let pool = Pool::new(Memory::new(config)?, PoolConfig::default())?;
    /// let handle = pool.alloc(b"some bytes")?;
    /// pool.free_deferred(handle)?;
    /// pool.flush_deferred();
    /// assert_eq!(pool.deferred().pending_values, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ForeignHandle`] with the handle when it is another pool's.
    ///
    /// [`PoolConfig::deferred`]: crate::PoolConfig::deferred
    pub fn free_deferred(&self, handle: Handle) -> Result<(), ForeignHandle<Handle>> {
        if !self.owns(&handle) {
            return Err(ForeignHandle(handle));
        }
        let entry = handle.entry();
        if !self.defer_free(Freed::entry(entry)) {
            self.free_entry(entry);
            self.stir();
        }
        Ok(())
    }
}
