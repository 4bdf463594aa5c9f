//! When each page was accessed last.
//!
//! ```text
//!   page        0     1     2     3
//!   seconds  | 712 | 712 |  0  | 815 | ...     since the system started; 0: never
//! ```
//!
//! Beside the slot table, and touched only where something is accessed: a device that is not asked
//! to note ages has none of it.
//!
//! Invariant: a page that is stored was stamped when it was written.

use std::ops::Range;
use std::time::Duration;

use zsmalloc::sync::atomic::{AtomicU32, Ordering};
use zsmalloc::{MemoryError, Pool, Table, clock};

/// A stamp for each page of a device.
pub(crate) struct Ages {
    seconds: Table<AtomicU32>,
}

impl Ages {
    /// None stamped.
    pub(crate) fn new(pool: &Pool, pages: u64) -> Result<Ages, MemoryError> {
        Ok(Ages { seconds: pool.table(pages as usize)? })
    }

    /// The page is accessed now.
    pub(crate) fn stamp(&self, page: u64) {
        self.put(page, clock::boot_seconds());
    }

    /// When it was; 0 where it never was.
    pub(crate) fn of(&self, page: u64) -> u32 {
        // relaxed: an independent number.
        self.seconds.get(page as usize).map_or(0, |seconds| seconds.load(Ordering::Relaxed))
    }

    /// The last second at which a page must have been accessed to be so old; `None` where the
    /// system has not been up for so long.
    pub(crate) fn cutoff(&self, age: Duration) -> Option<u32> {
        u64::from(clock::boot_seconds()).checked_sub(age.as_secs()).map(|seconds| seconds as u32)
    }

    pub(crate) fn put(&self, page: u64, seconds: u32) {
        let index = page as usize;
        self.seconds.touch(index..index + 1);
        // relaxed: an independent number; of two that race, either.
        self.seconds[index].store(seconds, Ordering::Relaxed);
    }

    /// Bytes held: mapped, and on the heap.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.seconds.held_bytes(), self.seconds.heap_bytes())
    }

    /// The table's addresses.
    pub(crate) fn range(&self) -> Range<usize> {
        self.seconds.range()
    }
}
