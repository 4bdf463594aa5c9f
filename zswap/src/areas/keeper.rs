//! The calls for a client, such as a region, that reads pages where it can neither wait nor free:
//! in a signal handler, while it holds locks of its own.
//!
//! ```text
//!   peek_in_memory --> the page, or: it is on the disk       waits only for the page's cell
//!   peek           --> the page                              may wait for the disk
//!   drop_copies    --> later, elsewhere: as if it had been loaded
//!   store_if_room  --> refused --> make_room, without locks --> once more
//! ```
//!
//! A page stays stored after a peek. The copy here becomes useless once the client changes its
//! page. Until it is dropped, it keeps its place in the order and may be written back.
//!
//! In a signal handler both peeks allocate nothing, free nothing, do not panic and do not log. This
//! has two conditions. First, no context is built meanwhile ([`Zswap::prepare`]). Second, the disk
//! is a file ([`Disk::file`]), which they read by one `pread`. The code of any other disk must not
//! run there, because it may use what the interrupted code is using. [`Zswap::reads_a_file`] tells
//! this beforehand.
//!
//! The peeks lock a cell, a stream, and the list of windows that were read ahead. By the rule of
//! buffers, no fault of this cache's client interrupts a thread that holds one of them.
//!
//! [`Disk::file`]: disk::Disk::file
//! [`Zswap::prepare`]: crate::Zswap::prepare
//! [`Zswap::reads_a_file`]: crate::Zswap::reads_a_file
//!
//! Locks: those of `load` and `detached`.

use std::ops::Range;

use host::PAGE_SIZE;
use zsmalloc::LeafSums;

use super::area::Area;
use super::load::Loaded;
use crate::cells::{Stored, kind};
use crate::terms::LoadError;

/// What an area holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct AreaStat {
    /// Entries in memory.
    pub stored_pages: u64,
    /// Entries in memory that are same-filled pages.
    pub same_filled_pages: u64,
    /// Entries on the backing disk.
    pub disk_pages: u64,
    /// Bytes of the objects of the entries in memory.
    pub compr_data_size: u64,
}

impl Area {
    /// Reads page `page` into `data`, which is 4096 bytes long, if the page is in memory. The page
    /// stays stored. If the result is [`Loaded::Disk`], the buffer is unchanged. The head of this
    /// module says what holds in signal handlers.
    ///
    /// # Errors
    ///
    /// Those of [`Area::load`].
    pub fn peek_in_memory(&self, page: u64, data: &mut [u8]) -> Result<Loaded, LoadError> {
        if data.len() != PAGE_SIZE {
            return Err(LoadError::BadLength { len: data.len() });
        }
        if page >= self.pages() {
            return Err(LoadError::OutOfRange { page, pages: self.pages() });
        }
        self.inner.peek_in_memory(page, data)
    }

    /// Drops entries whose pages the client has read by peeking. The order treats them as loaded,
    /// so it remembers that they were used.
    pub fn drop_copies(&self, pages: Range<u64>) {
        for page in pages.start..pages.end.min(self.pages()) {
            let Some(mut slot) = self.inner.slots.lock(page) else { continue };
            match Stored::in_cell(&slot) {
                Stored::Nothing => {}
                stored => self.inner.core.take_out(&mut slot, stored),
            }
        }
    }

    /// The area's figures now. The call looks at every leaf, 2 MiB of the area each.
    pub fn stat(&self) -> AreaStat {
        let (slots, mut stat) = (&self.inner.slots, AreaStat::default());
        for leaf in (0..slots.root_len()).filter_map(|index| slots.leaf(index)) {
            let Some(word) = slots.pool.leaf_word(leaf) else { continue };
            let sums = LeafSums(word).tally();
            stat.stored_pages += sums.counts[kind::BLOB] + sums.counts[kind::SAME];
            stat.same_filled_pages += sums.counts[kind::SAME];
            stat.disk_pages += sums.counts[kind::DISK];
            stat.compr_data_size += sums.bytes;
        }
        stat
    }
}
