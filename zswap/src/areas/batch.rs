//! Pages in a row, in and out.
//!
//! ```text
//!   store_pages(7, | a | b | c |)   -> 7: a, 8: b, 9: c      ends at the first that is refused
//!   load_pages(7, | . | . | . |)    -> 7, 8, 9               each by itself: what failed is told
//! ```
//!
//! Invariant: each page is stored, or loaded, as if alone: a batch is not atomic.
//!
//! Locks: those of `store` and `load`, one page after the other.

use host::PAGE_SIZE;

use super::area::Area;
use super::load::Loaded;
use crate::terms::{GroupId, LoadError, StoreError};

impl Area {
    /// Stores the pages of `data`, 4096 bytes each, from page `first` on; gives how many were
    /// stored. The kernel gives a whole folio up when one page of it is refused; here those before
    /// it stay.
    ///
    /// # Errors
    ///
    /// With them, that of the page that ended it; [`StoreError::BadLength`] for a last page that is
    /// too short.
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

    /// Takes pages out into `data`, 4096 bytes each, from page `first` on; tells `each` what
    /// became of every one, also of those after one that failed.
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
