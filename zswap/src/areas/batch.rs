//! Several consecutive pages, stored or loaded in one call.
//!
//! ```text
//!   store_pages(7, | a | b | c |)   -> 7: a, 8: b, 9: c      ends at the first that is refused
//!   load_pages(7, | . | . | . |)    -> 7, 8, 9               each by itself: what failed is told
//! ```
//!
//! Invariant: each page is stored, or loaded, as if it were the only one. A batch is not atomic.
//!
//! Locks: those of `store` and `load`, for one page after the other.

use host::PAGE_SIZE;

use super::area::Area;
use super::load::Loaded;
use crate::terms::{GroupId, LoadError, StoreError};

impl Area {
    /// Stores the pages of `data`, 4096 bytes each, from page `first` on. Returns how many were
    /// stored. It stops at the first page that is refused, and the pages before it stay stored. The
    /// kernel instead gives up a whole folio when one page of it is refused.
    ///
    /// # Errors
    ///
    /// The error of the page that ended the call, together with the number of pages stored before
    /// it. It is [`StoreError::BadLength`] if the last page is too short.
    ///
    /// ```
    /// # use ramfold_zswap::{GroupId, Loaded, Memory, MemoryConfig, Zswap, ZswapConfig};
    /// # let memory = Memory::new(MemoryConfig::for_disk(16 << 20))?;
    /// # let cache = Zswap::new(memory, ZswapConfig::new("cache"))?;
    /// let area = cache.add_area(512)?;
    /// let mut data = [5; 2 * 4096];
    /// let (stored, ended) = area.store_pages(7, &data, GroupId::ROOT);
    /// assert!(stored == 2 && ended.is_ok());
    /// let mut found = Vec::new();
    /// area.load_pages(8, &mut data, |page, loaded| found.push((page, loaded)));
    /// let found: Result<Vec<_>, _> = found.into_iter().map(|(_, loaded)| loaded).collect();
    /// assert_eq!(found?, [Loaded::Memory, Loaded::Absent], "pages 8 and 9");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn store_pages(
        &self,
        first: u64,
        data: &[u8],
        group: GroupId,
    ) -> (u64, Result<(), StoreError>) {
        let mut stored = 0;
        for page in data.chunks(PAGE_SIZE) {
            if let Err(error) = self.store(first.saturating_add(stored), page, group) {
                return (stored, Err(error));
            }
            stored += 1;
        }
        (stored, Ok(()))
    }

    /// Takes pages out into `data`, 4096 bytes each, from page `first` on. It calls `each` with the
    /// outcome of every page, and goes on after a page that failed.
    pub fn load_pages(
        &self,
        first: u64,
        data: &mut [u8],
        mut each: impl FnMut(u64, Result<Loaded, LoadError>),
    ) {
        for (index, bytes) in (0..).zip(data.chunks_mut(PAGE_SIZE)) {
            let page = first.saturating_add(index);
            each(page, self.load(page, bytes));
        }
    }
}
