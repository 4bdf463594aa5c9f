//! Storing a page.
//!
//! ```text
//!   same-filled? -> word ................................................. \
//!   limits: the group's, the cache's -> refused                             |
//!   compress -> longer than the watermark: raw, to disk, or refused         > lock cell, put,
//!               else the blob -> object ................................... /  token into order
//!   refused, because there is no room: compact, write back a batch, once more
//! ```
//!
//! A store that fails changes nothing: the cache still has the page's older content, if it had one.
//! The kernel forgets that content, because the page then goes to the swap device. Here the caller
//! keeps the page. It invalidates the page in the cache if no load may find the older content.
//!
//! Invariant: when a cell is unlocked, its contents, its token and the counters agree. A blob has
//! one token (O1), a same-filled page and a page on the disk have none, and `settle` has counted
//! the change.
//!
//! Locks: stream, then cell, then class. The order's lock is taken with the cell locked. A stream
//! is taken first where one may be needed. A thread that holds a stream waits for cells, so a
//! thread that holds a cell must not wait for a stream.

use codec::Stream;
use codec::same::{self, Same};
use host::PAGE_SIZE;
use zsmalloc::{AllocError, CellNumber, Object};

use super::area::{Area, AreaInner};
use crate::backing::OnDisk;
use crate::cells::{Event, Stored, stored};
use crate::shared::Core;
use crate::terms::{GroupId, Incompressible, StoreError};

/// Pages of an area in which the same kind of data is likely, for an algorithm that samples: 2 MiB.
const PLACE_PAGES: u64 = 512;

/// A page ready to be put in a cell.
enum Encoded<'p> {
    Same(Same),
    Blob { algorithm: usize, object: Object<'p> },
    OnDisk(OnDisk),
}

/// Why an attempt to store failed.
enum Refusal {
    /// There is no room. The store fails for good unless room is made.
    Error(StoreError),
    /// The page does not compress, and is to go to the disk.
    ToDisk,
}

/// Whether a store may wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Patience {
    /// It takes only room that there is, below the accept threshold.
    None,
    /// It may write the page to the disk itself.
    Disk,
    /// It has made room itself, and now takes that room.
    MadeRoom,
}

impl Area {
    /// Stores the 4096 bytes of `data` as page `page`, for a group. At a limit it compacts and
    /// writes back, so it may wait for the disk. The caller therefore must not hold a lock that a
    /// deferred job might want.
    ///
    /// # Errors
    ///
    /// [`StoreError`]: the caller keeps the page, and the cache holds the older content as before.
    pub fn store(&self, page: u64, data: &[u8], group: GroupId) -> Result<(), StoreError> {
        let area = &self.inner;
        area.check_store(page, data.len(), group)?;
        area.store_or_make_room(page, data, group).inspect_err(|error| area.core.refused(error))
    }

    /// As [`Area::store`], for a caller that holds locks. It neither compacts nor writes back,
    /// because the cache's worker does that. A cache that was full takes nothing until it is down
    /// to its accept threshold.
    ///
    /// # Errors
    ///
    /// Those of [`Area::store`].
    pub fn store_if_room(&self, page: u64, data: &[u8], group: GroupId) -> Result<(), StoreError> {
        let area = &self.inner;
        area.check_store(page, data.len(), group)?;
        let stored = area.try_store(page, data, group, Patience::None);
        let error = match stored {
            Ok(()) => return Ok(()),
            Err(Refusal::ToDisk) => StoreError::Incompressible,
            Err(Refusal::Error(error)) => error,
        };
        area.core.refused(&error);
        if let StoreError::OverLimit = error {
            area.core.ask_worker();
        }
        Err(error)
    }
}

impl AreaInner {
    fn check_store(&self, page: u64, len: usize, group: GroupId) -> Result<(), StoreError> {
        if len != PAGE_SIZE {
            return Err(StoreError::BadLength { len });
        }
        if !self.has(page) {
            return Err(StoreError::OutOfRange { page, pages: self.pages() });
        }
        if !self.core.groups.has(group) {
            return Err(StoreError::UnknownGroup);
        }
        if self.is_removed() { Err(StoreError::AreaRemoved) } else { Ok(()) }
    }

    /// Tries to store. If there is no room, it makes room with no lock held, and tries once more.
    fn store_or_make_room(&self, page: u64, data: &[u8], group: GroupId) -> Result<(), StoreError> {
        let core = &*self.core;
        let refused = match self.try_store(page, data, group, Patience::Disk) {
            Ok(()) => return Ok(()),
            Err(refused) => refused,
        };
        match refused {
            Refusal::ToDisk => {
                if self.store_on_disk(page, data, group)? {
                    return Ok(());
                }
            }
            Refusal::Error(StoreError::OverLimit) if core.limit() > 0 => core.make_room(),
            Refusal::Error(StoreError::OverGroupLimit) => {
                if !core.make_group_room(group) {
                    return Err(StoreError::OverGroupLimit);
                }
            }
            Refusal::Error(StoreError::NoMemory | StoreError::NoMetadata) => {
                core.pool.memory().flush_deferred()
            }
            Refusal::Error(error) => return Err(error),
        }
        self.try_store(page, data, group, Patience::MadeRoom).map_err(|refused| match refused {
            Refusal::Error(error) => error,
            Refusal::ToDisk => StoreError::Incompressible,
        })
    }

    fn try_store(
        &self,
        page: u64,
        data: &[u8],
        group: GroupId,
        patience: Patience,
    ) -> Result<(), Refusal> {
        let core = &*self.core;
        if let Some(word) = same::repeated_word(data)
            && let Some(stored) = self.store_same(page, word)
        {
            return stored.map_err(Refusal::Error);
        }
        core.admit(group, patience).map_err(Refusal::Error)?;
        core.with_stream(|stream| {
            // The caller has the stream: `algorithms` says why.
            let (algorithm, codec) = core.algorithms.current();
            stream.set_place(page / PLACE_PAGES);
            let object = core.compress(codec, stream, data, (group, patience))?;
            self.put(page, Encoded::Blob { algorithm, object }, group).map_err(Refusal::Error)
        })
    }

    /// Stores a same-filled page, unless the table of words is full.
    fn store_same(&self, page: u64, word: u64) -> Option<Result<(), StoreError>> {
        self.core.counters.begin();
        let same = self.core.words.intern(word);
        let stored = same.map(|same| self.put_same(page, same));
        self.core.counters.end();
        stored
    }

    fn put_same(&self, page: u64, same: Same) -> Result<(), StoreError> {
        let put = match self.core.limit() {
            0 => Err(StoreError::OverLimit),
            _ => self.put(page, Encoded::Same(same), GroupId::ROOT),
        };
        put.inspect_err(|_| self.core.words.release(same))
    }

    /// Stores a page that does not compress on the disk. False if that is not possible.
    fn store_on_disk(&self, page: u64, data: &[u8], group: GroupId) -> Result<bool, StoreError> {
        let core = &*self.core;
        core.counters.begin();
        let stored = core.write_through(data).map(|at| {
            let put = self.put(page, Encoded::OnDisk(at), group);
            if put.is_err() {
                core.backing.iter().for_each(|backing| backing.free(at));
            }
            put
        });
        core.counters.end();
        stored.transpose().map(|stored| stored.is_some())
    }

    fn put<'p>(
        &'p self,
        page: u64,
        encoded: Encoded<'p>,
        group: GroupId,
    ) -> Result<(), StoreError> {
        let core = &*self.core;
        let mut slot = self.slots.lock_or_add(page).map_err(|_| StoreError::NoMetadata)?;
        let (cell, before) = (slot.number(), Stored::in_cell(&slot));
        match encoded {
            Encoded::Blob { algorithm, object } => {
                core.orders.push(cell, group).map_err(|_| StoreError::NoMetadata)?;
                stored::put_blob(&mut slot, algorithm, object);
            }
            Encoded::Same(same) => {
                core.take_token(cell, before);
                stored::put_same(&mut slot, same);
            }
            Encoded::OnDisk(at) => {
                core.take_token(cell, before);
                stored::put_disk(&mut slot, 0, at);
            }
        }
        core.settle(&slot, before, group, Event::Out);
        Ok(())
    }
}

impl Core {
    /// Whether one more page may be stored.
    #[inline]
    fn admit(&self, group: GroupId, patience: Patience) -> Result<(), StoreError> {
        if self.groups.is_full(group) {
            return Err(StoreError::OverGroupLimit);
        }
        let full = match patience {
            // The pool itself refuses an object that would exceed the limit.
            Patience::MadeRoom => self.limit() == 0,
            Patience::None | Patience::Disk => self.is_full(),
        };
        if full { Err(StoreError::OverLimit) } else { Ok(()) }
    }

    fn compress(
        &self,
        codec: &codec::Codec,
        stream: &mut Stream,
        data: &[u8],
        (group, patience): (GroupId, Patience),
    ) -> Result<Object<'_>, Refusal> {
        let blob = match codec.compress(stream, data) {
            Ok(blob) if blob.len() <= self.watermark => blob,
            refused => {
                let poor = refused.is_ok();
                self.incompressible(group, patience, poor)?;
                data
            }
        };
        self.pool.store(blob).map_err(|error| {
            if let AllocError::OverLimit { .. } = error {
                self.met_limit();
            }
            Refusal::Error(error.into())
        })
    }

    /// Whether a page that does not compress is stored raw.
    #[cold]
    fn incompressible(
        &self,
        group: GroupId,
        patience: Patience,
        poor: bool,
    ) -> Result<(), Refusal> {
        match self.config.incompressible {
            Incompressible::Reject => {
                let event =
                    if poor { Event::RejectCompressPoor } else { Event::RejectCompressFail };
                self.counters.happened(event, 1);
                Err(Refusal::Error(StoreError::Incompressible))
            }
            Incompressible::Disk if patience == Patience::Disk && self.may_go_to_disk(group) => {
                Err(Refusal::ToDisk)
            }
            Incompressible::Disk | Incompressible::Raw => Ok(()),
        }
    }

    fn may_go_to_disk(&self, group: GroupId) -> bool {
        self.backing.is_some() && self.groups.may_write_back(group)
    }

    /// Counts a refusal by its reason.
    fn refused(&self, error: &StoreError) {
        match error {
            StoreError::NoMemory => self.counters.happened(Event::RejectAllocFail, 1),
            StoreError::NoMetadata => self.counters.happened(Event::RejectMetadataFail, 1),
            StoreError::OverLimit | StoreError::OverGroupLimit => {
                self.counters.happened(Event::RejectReclaimFail, 1);
            }
            _ => {}
        }
    }

    /// Drops the token of a locked cell's entry, if it has one.
    fn take_token(&self, cell: CellNumber, stored: Stored) {
        if let Stored::Blob { .. } = stored {
            self.orders.remove(cell);
        }
    }
}
