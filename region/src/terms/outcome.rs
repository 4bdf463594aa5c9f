//! The result of paging out. If the store refused a page, it says why, and what to do.
//!
//! ```text
//!   limit reached        StoreLimit, GroupLimit   room is made, and the page is tried again
//!   memory used up       NoMemory, NoMetadata     room is made once
//!   not for lack of room Incompressible           this page stays, its neighbours go
//!                        Failed                   all pages stay
//! ```
//!
//! Invariant: whatever the reason, the page goes back to memory and nothing is lost.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use zram::DiskError;
use zswap::StoreError;

/// The result of paging out, in pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PageOut {
    /// Pages that left memory for the store.
    pub stored: u64,
    /// Pages still in memory because they are pinned, used by the system, or shared with a forked
    /// child.
    pub busy: u64,
    /// Pages still in memory because the store refused them.
    pub refused: u64,
    /// Why the store refused the first of these.
    pub refusal: Option<Refusal>,
}

impl std::ops::AddAssign for PageOut {
    fn add_assign(&mut self, other: PageOut) {
        self.stored += other.stored;
        self.busy += other.busy;
        self.refused += other.refused;
        self.refusal = self.refusal.or(other.refusal);
    }
}

impl PageOut {
    /// The store refused `pages`, which are back in memory.
    pub(crate) fn refuse(&mut self, refusal: Refusal, pages: u64) {
        self.refused += pages;
        self.refusal = self.refusal.or((pages > 0).then_some(refusal));
    }
}

/// Why the store of a region refused a page. The page stays in memory.
///
/// Its text says what to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u8)]
pub enum Refusal {
    /// The store is at its limit: [`RegionConfig::store_limit`](crate::RegionConfig::store_limit),
    /// or the limit of the cache.
    StoreLimit = 1,
    /// The group is at its limit in the cache, and none of its pages could be written back.
    GroupLimit,
    /// The memory of the pager has no frame left:
    /// [`MemoryConfig::arena_frames`](crate::MemoryConfig::arena_frames).
    NoMemory,
    /// The tables that describe pages are full:
    /// [`MemoryConfig::entries_max`](crate::MemoryConfig::entries_max).
    NoMetadata,
    /// The page does not compress, and the cache refuses such pages.
    Incompressible,
    /// The store failed, which should never happen.
    Failed,
}

impl Refusal {
    const ALL: [Refusal; 6] = [
        Refusal::StoreLimit,
        Refusal::GroupLimit,
        Refusal::NoMemory,
        Refusal::NoMetadata,
        Refusal::Incompressible,
        Refusal::Failed,
    ];

    /// How often a refused page may be tried again after room was made for it, at most `tries`
    /// times. At a limit, other threads may take the room, so every further try may succeed. If the
    /// memory is used up, a second compaction will not find what the first did not.
    pub(crate) fn tries(self, tries: u32) -> u32 {
        match self {
            Refusal::StoreLimit | Refusal::GroupLimit => tries,
            Refusal::NoMemory | Refusal::NoMetadata => tries.min(1),
            Refusal::Incompressible | Refusal::Failed => 0,
        }
    }
}

impl From<DiskError> for Refusal {
    fn from(error: DiskError) -> Refusal {
        match error {
            DiskError::NoSpace => Refusal::StoreLimit,
            DiskError::NoMemory => Refusal::NoMemory,
            // The device has as many pages as the region and is never read-only, and a write does
            // not look at older content.
            _ => Refusal::Failed,
        }
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Refusal {
        match error {
            StoreError::OverLimit => Refusal::StoreLimit,
            StoreError::OverGroupLimit => Refusal::GroupLimit,
            StoreError::NoMemory => Refusal::NoMemory,
            StoreError::NoMetadata => Refusal::NoMetadata,
            StoreError::Incompressible => Refusal::Incompressible,
            // The area has as many pages as the region and belongs to it alone. The group was
            // checked when the region was mapped.
            _ => Refusal::Failed,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::StoreLimit => "the store has reached its limit: raise it, or discard pages",
            Refusal::GroupLimit => "the group has reached its limit in the cache: raise it",
            Refusal::NoMemory => "the memory has no frame left: give it a larger arena",
            Refusal::NoMetadata => "the memory has no entry left: give it more entries",
            Refusal::Incompressible => "the page does not compress, and the cache refuses such",
            Refusal::Failed => "the store failed",
        })
    }
}

impl std::error::Error for Refusal {}

/// The last refusal of a region, if there was one.
#[derive(Debug, Default)]
pub(crate) struct LastRefusal(AtomicU8);

impl LastRefusal {
    pub(crate) fn set(&self, refusal: Refusal) {
        // relaxed: one value that publishes nothing else.
        self.0.store(refusal as u8, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Option<Refusal> {
        // relaxed: as in `set`.
        let last = self.0.load(Ordering::Relaxed);
        Refusal::ALL.into_iter().find(|&refusal| refusal as u8 == last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every error of the device once counted as "full", and made a page-out compact and try in
    /// vain.
    #[test]
    fn each_error_of_a_store_is_its_own_refusal() {
        let of_device = [
            (DiskError::NoSpace, Refusal::StoreLimit),
            (DiskError::NoMemory, Refusal::NoMemory),
            (DiskError::ReadOnly, Refusal::Failed),
            (DiskError::Corrupt { offset: 0 }, Refusal::Failed),
            (DiskError::OutOfRange { offset: 0, len: 1, size: 0 }, Refusal::Failed),
            (DiskError::Backing(std::io::ErrorKind::Other.into()), Refusal::Failed),
        ];
        of_device.into_iter().for_each(|(error, why)| assert_eq!(Refusal::from(error), why));
        let of_cache = [
            (StoreError::OverLimit, Refusal::StoreLimit),
            (StoreError::OverGroupLimit, Refusal::GroupLimit),
            (StoreError::NoMemory, Refusal::NoMemory),
            (StoreError::NoMetadata, Refusal::NoMetadata),
            (StoreError::Incompressible, Refusal::Incompressible),
            (StoreError::AreaRemoved, Refusal::Failed),
        ];
        of_cache.into_iter().for_each(|(error, why)| assert_eq!(Refusal::from(error), why));
    }

    #[test]
    fn room_is_made_as_often_as_it_may_help() {
        let tries = Refusal::ALL.map(|refusal| refusal.tries(256));
        assert_eq!(tries, [256, 256, 1, 1, 0, 0]);
    }

    #[test]
    fn the_last_refusal_is_told() {
        let last = LastRefusal::default();
        assert_eq!(last.get(), None);
        for refusal in Refusal::ALL {
            last.set(refusal);
            assert_eq!(last.get(), Some(refusal));
        }
    }
}
