//! Loading a page: the caller gets it, and its entry is removed.
//!
//! ```text
//!   lock cell -> nothing: absent | word: fill | raw: copy | blob: decompress in place
//!             -> exclusive: cell emptied, object freed, token gone
//!             -> on disk: unlock, read (or find it read ahead), lock again: the same entry, and
//!                the same version of its window? -> decode, empty the cell, give the sectors back
//!                                                   else from the beginning
//! ```
//!
//! A load is exclusive, as the kernel's is: afterwards the caller has the page and the cache does
//! not. [`Area::peek`] leaves the page stored.
//!
//! Invariant: an entry is emptied under the same hold of the lock under which its page was decoded.
//! So if two threads load a page, one gets it and the other finds nothing. A load that fails leaves
//! the entry.
//!
//! Locks: stream, then cell, then class, as in `store`. No lock is held while the disk is called.

use std::time::Instant;

use codec::same;
use codec::{CodecError, Stream};
use disk::DiskError;
use host::PAGE_SIZE;
use zsmalloc::CellGuard;

use super::area::{Area, AreaInner};
use crate::backing::{OnDisk, Source};
use crate::cells::{Event, Stored, stored};
use crate::shared::Core;
use crate::terms::{GroupId, LoadError};

/// Where a page was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loaded {
    /// In memory.
    Memory,
    /// On the backing disk.
    Disk,
    /// Nowhere: the buffer is unchanged.
    Absent,
}

/// Whether a page stays.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Take {
    Exclusive,
    Peek,
    /// The page stays, and the order does not learn that it was read.
    Nothing,
}

/// The outcome of a look at a cell.
enum Look {
    Done(Loaded),
    /// The page is on the disk: its entry, and the version of its window.
    OnDisk(OnDisk, u32),
}

/// Why a look at a cell failed.
enum LookError {
    /// Look again with a stream in hand.
    NeedsStream,
    Failed(LoadError),
}

impl Area {
    /// Takes page `page` out into `data`, which is 4096 bytes long. It waits for the disk if the
    /// page is there.
    ///
    /// A signal handler may call this on two conditions. The algorithms need no stream to
    /// decompress (lz4). There is no disk, or the disk is a file ([`Zswap::reads_a_file`]). The
    /// handler may interrupt any code except the cache's own and its memory's. The call allocates
    /// nothing. By the rule of buffers, a thread that a fault interrupts holds none of the locks
    /// that this call takes.
    ///
    /// [`Zswap::reads_a_file`]: crate::Zswap::reads_a_file
    ///
    /// # Errors
    ///
    /// [`LoadError`]: the page stays where it was, and the content of `data` is undefined.
    pub fn load(&self, page: u64, data: &mut [u8]) -> Result<Loaded, LoadError> {
        self.inner.load_as(page, data, Take::Exclusive)
    }

    /// Reads page `page` into `data`. The page stays where it is.
    ///
    /// # Errors
    ///
    /// Those of [`Area::load`].
    pub fn peek(&self, page: u64, data: &mut [u8]) -> Result<Loaded, LoadError> {
        self.inner.load_as(page, data, Take::Peek)
    }
}

impl AreaInner {
    /// A page of the area that is in memory.
    pub(crate) fn peek_in_memory(&self, page: u64, data: &mut [u8]) -> Result<Loaded, LoadError> {
        let take = Take::Nothing;
        match self.with_stream_if_needed(|stream| self.look(page, stream, data, take))? {
            Look::Done(loaded) => Ok(loaded),
            Look::OnDisk(..) => Ok(Loaded::Disk),
        }
    }

    fn load_as(&self, page: u64, data: &mut [u8], take: Take) -> Result<Loaded, LoadError> {
        if data.len() != PAGE_SIZE {
            return Err(LoadError::BadLength { len: data.len() });
        }
        if !self.has(page) {
            return Err(LoadError::OutOfRange { page, pages: self.pages() });
        }
        loop {
            let look = self.with_stream_if_needed(|stream| self.look(page, stream, data, take))?;
            let loaded = match look {
                Look::Done(loaded) => return Ok(loaded),
                Look::OnDisk(at, version) => self.load_from_disk(page, at, version, data, take)?,
            };
            if loaded {
                return Ok(Loaded::Disk);
            }
        }
    }

    /// Tries without a stream first, because that way it waits for no stream.
    fn with_stream_if_needed<R>(
        &self,
        mut attempt: impl FnMut(Option<&mut Stream>) -> Result<R, LookError>,
    ) -> Result<R, LoadError> {
        let done = match attempt(None) {
            Err(LookError::NeedsStream) => self.core.with_stream(|stream| attempt(Some(stream))),
            done => done,
        };
        done.map_err(|error| match error {
            LookError::NeedsStream => LoadError::Corrupt,
            LookError::Failed(error) => error,
        })
    }

    fn look(
        &self,
        page: u64,
        stream: Option<&mut Stream>,
        data: &mut [u8],
        take: Take,
    ) -> Result<Look, LookError> {
        let core = &*self.core;
        let Some(mut slot) = self.slots.lock(page) else { return Ok(Look::Done(Loaded::Absent)) };
        let stored = Stored::in_cell(&slot);
        match stored {
            Stored::Nothing => return Ok(Look::Done(Loaded::Absent)),
            Stored::Unknown => return Err(LookError::Failed(LoadError::Corrupt)),
            Stored::Same(same) => same::fill(data, core.words.word(same)),
            Stored::Blob { algorithm, .. } => {
                if take == Take::Exclusive {
                    // The object is freed as soon as the page is decoded, and what that needs is
                    // most likely in no CPU cache.
                    slot.prefetch_free();
                    core.orders.prefetch(slot.number());
                }
                core.decode_to(algorithm, slot.bytes().unwrap_or(&[]), stream, data)?;
            }
            Stored::Disk { at, .. } => {
                let version = core.backing.as_ref().map_or(0, |backing| backing.version(at));
                return Ok(Look::OnDisk(at, version));
            }
        }
        match take {
            Take::Exclusive => core.take_out(&mut slot, stored),
            Take::Peek => core.orders.touch(slot.number()),
            Take::Nothing => {}
        }
        Ok(Look::Done(Loaded::Memory))
    }

    /// False when the entry changed meanwhile.
    fn load_from_disk(
        &self,
        page: u64,
        at: OnDisk,
        version: u32,
        data: &mut [u8],
        take: Take,
    ) -> Result<bool, LoadError> {
        let (core, begun) = (&*self.core, Instant::now());
        let mut blob = [0; PAGE_SIZE];
        let blob = &mut blob[..usize::from(at.len)];
        let Some(backing) = &core.backing else { return Err(LoadError::Corrupt) };
        let source = match backing.read(at, version, blob) {
            Ok(source) => source,
            // The sectors may belong to another page by now.
            Err(error) => return self.disk_failed(page, at, version, error),
        };
        let loaded = self.with_stream_if_needed(|stream| {
            let Some((mut slot, stored)) = self.lock_as(page, at, version) else {
                return Ok(false);
            };
            if !backing.is_noted(at, blob) {
                core.counters.happened(Event::DiskLoadFail, 1);
                return Err(LookError::Failed(LoadError::Corrupt));
            }
            core.decode_to(stored.algorithm().unwrap_or(0), blob, stream, data)?;
            if take == Take::Exclusive {
                core.take_out(&mut slot, stored);
            }
            Ok(true)
        })?;
        if loaded {
            core.refaults.came_back(begun.elapsed());
            core.counters.happened(Event::DiskLoad, u64::from(take == Take::Peek));
            core.counters.happened(Event::ReadAheadHit, u64::from(source == Source::ReadAhead));
        }
        Ok(loaded)
    }

    /// Locks the cell of a page. Gives it if the entry still names the same place, and the content
    /// of that place has not changed.
    fn lock_as(&self, page: u64, at: OnDisk, version: u32) -> Option<(CellGuard<'_>, Stored)> {
        let slot = self.slots.lock(page)?;
        let stored = Stored::in_cell(&slot);
        let same = matches!(stored, Stored::Disk { at: now, .. } if now == at);
        let backing = self.core.backing.as_ref()?;
        (same && backing.version(at) == version).then_some((slot, stored))
    }

    /// The disk gave no blob. That is the page's error, unless its entry changed meanwhile.
    fn disk_failed(
        &self,
        page: u64,
        at: OnDisk,
        version: u32,
        error: DiskError,
    ) -> Result<bool, LoadError> {
        if self.lock_as(page, at, version).is_none() {
            return Ok(false);
        }
        self.core.counters.happened(Event::DiskLoadFail, 1);
        Err(LoadError::Backing(error))
    }
}

impl Core {
    /// Empties a cell whose page was loaded.
    pub(crate) fn take_out(&self, slot: &mut CellGuard<'_>, stored: Stored) {
        if let Stored::Blob { .. } = stored {
            self.orders.load(slot.number());
        }
        stored::clear(slot);
        let on_disk = matches!(stored, Stored::Disk { .. });
        let why = if on_disk { Event::DiskLoad } else { Event::In };
        self.settle(slot, stored, GroupId::ROOT, why);
    }

    /// As `Core::decode`, and counts failures.
    fn decode_to(
        &self,
        algorithm: usize,
        blob: &[u8],
        stream: Option<&mut Stream>,
        data: &mut [u8],
    ) -> Result<(), LookError> {
        let decoded = self.decode(algorithm, blob, stream, data);
        decoded.map_err(|error| match error {
            CodecError::NeedsStream => LookError::NeedsStream,
            CodecError::NoMemory => LookError::Failed(LoadError::NoMemory),
            _ => {
                self.counters.happened(Event::DecompressFail, 1);
                LookError::Failed(LoadError::Corrupt)
            }
        })
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::{Zswap, ZswapConfig};
    use zsmalloc::{Memory, MemoryConfig};

    /// It was once reported as absent. The client would have gone on with the page's older content.
    #[test]
    fn a_cell_that_means_nothing_is_an_error_and_no_absence() {
        let memory = Memory::new(MemoryConfig::for_disk(1 << 20)).expect("a memory");
        let cache = Zswap::new(memory, ZswapConfig::new("lost")).expect("a cache");
        let area = cache.add_area(16).expect("an area");
        area.store(3, &[5; PAGE_SIZE], GroupId::ROOT).expect("room");
        area.inner.slots.lock(3).expect("it is there").put_value(7, 9);
        let found = area.load(3, &mut [0; PAGE_SIZE]);
        assert!(matches!(found, Err(LoadError::Corrupt)), "{found:?}");
        assert!(cache.check().is_err(), "a recount finds it");
        area.invalidate(3);
        let found = area.load(3, &mut [0; PAGE_SIZE]).expect("nothing is there");
        assert_eq!(found, Loaded::Absent);
    }
}
