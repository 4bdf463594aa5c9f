//! For a client, such as a region, that reads pages where it can neither wait nor free: in a
//! signal handler, with locks of its own.
//!
//! ```text
//!   peek_in_memory --> the page, or: it is on the disk       nothing is waited for but its cell
//!   peek           --> the page                              the disk may be waited for
//!   drop_copies    --> later, elsewhere: as if it had been loaded
//!   store_if_room  --> refused --> make_room, without locks --> once more
//! ```
//!
//! A page that was peeked at stays. The copy here is of no more use once the client changes its
//! page. Until it is dropped, it keeps its place in the order and may be written back.
//!
//! In a signal handler both peeks allocate nothing, free nothing, do not panic and do not log. This
//! has two conditions. No context is built meanwhile ([`Zswap::prepare`]). The disk is a file
//! ([`Disk::file`]), which they read by one `pread`, because the code of any other disk must not
//! run in the middle of code that may be using what it uses. [`Zswap::reads_a_file`] tells this
//! beforehand. They lock a cell, a stream, and the list of windows that were read ahead. By the
//! rule of buffers, no fault of this cache's client interrupts a thread that holds one of them.
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

/// What an area has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct AreaStat {
    /// Entries in memory.
    pub stored_pages: u64,
    /// Of these, same-filled pages.
    pub same_filled_pages: u64,
    /// Entries on the backing disk.
    pub disk_pages: u64,
    /// Bytes of the objects of those in memory.
    pub compr_data_size: u64,
}

impl Area {
    /// Reads page `page` into `data`, which is 4096 bytes long, if it is in memory. The page stays
    /// there. For [`Loaded::Disk`] the buffer is as it was. The head of this module says what holds
    /// in signal handlers.
    ///
    /// # Errors
    ///
    /// As [`Area::load`].
    pub fn peek_in_memory(&self, page: u64, data: &mut [u8]) -> Result<Loaded, LoadError> {
        if data.len() != PAGE_SIZE {
            return Err(LoadError::BadLength { len: data.len() });
        }
        if page >= self.pages() {
            return Err(LoadError::OutOfRange { page, pages: self.pages() });
        }
        self.inner.peek_in_memory(page, data)
    }

    /// Drops entries whose pages the client has read by peeking. The order takes them for loaded,
    /// and remembers them as used.
    pub fn drop_copies(&self, pages: Range<u64>) {
        for page in pages.start..pages.end.min(self.pages()) {
            let Some(mut slot) = self.inner.slots.lock(page) else { continue };
            match Stored::in_cell(&slot) {
                Stored::Nothing => {}
                stored => self.inner.core.take_out(&mut slot, stored),
            }
        }
    }

    /// What the area has now. It looks at every 2 MiB of it.
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
