//! Objects that several cells name: equal pages are stored once.
//!
//! ```text
//!   page's cell   | shared, number 3 |   | shared, number 3 |      locked first, one of them
//!                          `--------.         .--------'
//!   number             0       1     2    3
//!   shared cell    | object | none | .. | object |                 locked second
//!   uses           |   5    |  0   | .. |   2    |
//! ```
//!
//! Shared cells are cells of the device's pool, so their objects are compacted, limited and freed
//! as any other.
//!
//! Invariants
//! - I1 the use count of an object is the number of cells that name it, and of writes that are
//!   about to have one name it. The thread that ends the last use frees the object, and then gives
//!   the number back.
//! - I2 a use is added by a thread that has a cell locked that names the object. So the object has
//!   a use already, and is not freed meanwhile.
//! - I3 uses and totals of an object change under the lock of its cell.
//!
//! Locks: turns of the sums of pages; a shared cell, of rank `SharedCell`. One page's cell may be
//! locked then. Numbers are taken under a leaf.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use host::sync::atomic::{AtomicU32, Ordering};
use host::{Lock, LockGuard, PAGE_SIZE, Rank, Table};
use zsmalloc::{CellGuard, Content, MemoryError, Pool, Slots};

use super::hints::{Hints, PageSum};
use super::totals::{AtomicU64, change, total};
use crate::backing::Blocks;

/// Turns to write pages that may be equal. Other pages seldom have the same one.
const TURNS: usize = 64;

/// How many cells name each number.
pub(crate) type Uses = BTreeMap<u32, u32>;

/// What a device shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SharedStat {
    /// Pages that are stored as shared objects.
    pub pages: u64,
    /// These objects.
    pub objects: u64,
    /// Bytes of these objects.
    pub bytes: u64,
    /// Bytes that the pages would take besides, if each had an object of its own.
    pub saved_bytes: u64,
}

/// The shared objects of a device.
pub(crate) struct Sharing {
    slots: Slots,
    uses: Table<AtomicU32>,
    numbers: Blocks,
    /// One thread at a time takes numbers.
    taking: Lock<()>,
    pub(crate) hints: Hints,
    /// One thread at a time writes a page with one of the sums that belong to a turn. Equal pages
    /// that are written at once would else not find each other.
    turns: Box<[Lock<()>]>,
    totals: Totals,
}

#[derive(Default)]
struct Totals {
    pages: AtomicU64,
    objects: AtomicU64,
    bytes: AtomicU64,
    saved_bytes: AtomicU64,
}

impl Totals {
    fn stat(&self) -> SharedStat {
        SharedStat {
            pages: total(&self.pages),
            objects: total(&self.objects),
            bytes: total(&self.bytes),
            saved_bytes: total(&self.saved_bytes),
        }
    }

    /// An object of some bytes had `before` uses and has `after`.
    fn enter(&self, len: usize, before: u32, after: u32) {
        let (old, new) = (shared(len, before), shared(len, after));
        change(&self.pages, old.pages, new.pages);
        change(&self.objects, old.objects, new.objects);
        change(&self.bytes, old.bytes, new.bytes);
        change(&self.saved_bytes, old.saved_bytes, new.saved_bytes);
    }
}

/// What an object of some bytes adds to the totals.
fn shared(len: usize, uses: u32) -> SharedStat {
    let (pages, objects, len) = (u64::from(uses), u64::from(uses > 0), len as u64);
    let bytes = objects * len;
    SharedStat { pages, objects, bytes, saved_bytes: pages * len - bytes }
}

/// A number that no object has yet. It is given back when this is dropped.
pub(crate) struct Reserved<'s> {
    sharing: &'s Sharing,
    number: u32,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.sharing.numbers.give(self.number);
    }
}

impl Sharing {
    /// No objects yet, for a device of so many pages.
    pub(crate) fn new(pool: &Arc<Pool>, pages: u64) -> Result<Sharing, MemoryError> {
        Ok(Sharing {
            slots: Slots::new(Arc::clone(pool), pages)?,
            uses: pool.table(pages as usize)?,
            numbers: Blocks::new(pool, pages * PAGE_SIZE as u64)?,
            taking: Lock::new(Rank::Leaf, ()),
            hints: Hints::new(pool, pages)?,
            turns: (0..TURNS).map(|_| Lock::new(Rank::Twins, ())).collect(),
            totals: Totals::default(),
        })
    }

    /// The turn to write a page with this sum: from looking for an equal page until the hint of the
    /// written one is noted.
    pub(crate) fn turn(&self, sum: PageSum) -> LockGuard<'_, ()> {
        self.turns[sum.turn(self.turns.len())].lock()
    }

    /// Locks the cell of an object. `None` if there is no such object.
    pub(crate) fn lock(&self, number: u32) -> Option<CellGuard<'_>> {
        self.uses.get(number as usize)?;
        self.slots.lock_shared(number.into())
    }

    /// Takes a number whose cell is there. `None` if there is no room. No cell is locked.
    pub(crate) fn reserve(&self) -> Option<Reserved<'_>> {
        let number = {
            let _taking = self.taking.lock();
            self.numbers.take()?
        };
        let reserved = Reserved { sharing: self, number };
        self.slots.lock_or_add(number.into()).ok().map(|_| reserved)
    }

    /// Stores a blob under a number, with two uses: the cell that had the blob, which the caller
    /// has locked, and the page that is written. `None` if there is no room.
    pub(crate) fn begin(&self, reserved: Reserved<'_>, blob: &[u8]) -> Option<u32> {
        // An object of the same length is freed in return, so the limit does not apply.
        let object = self.slots.pool.store_past_limit(blob).ok()?;
        let mut cell = self.lock(reserved.number)?;
        cell.put(object);
        self.set_uses(reserved.number, blob.len(), 2);
        let number = reserved.number;
        std::mem::forget(reserved);
        Some(number)
    }

    /// Adds a use of an object that a locked cell names (I2).
    pub(crate) fn add_use(&self, number: u32) -> Option<u32> {
        let cell = self.lock(number)?;
        let len = cell.bytes()?.len();
        self.set_uses(number, len, self.uses_of(number) + 1);
        Some(number)
    }

    /// Ends a use. A number that means nothing is passed over: its page is lost, and reading it is
    /// an error.
    pub(crate) fn retire(&self, number: u32) {
        let Some(mut cell) = self.lock(number) else { return };
        let Some(len) = cell.bytes().map(<[u8]>::len) else { return };
        let left = self.uses_of(number).saturating_sub(1);
        self.set_uses(number, len, left);
        if left == 0 {
            cell.clear();
            drop(cell);
            self.numbers.give(number);
        }
    }

    /// The totals. They are exact while no request runs.
    pub(crate) fn stat(&self) -> SharedStat {
        self.totals.stat()
    }

    fn uses_of(&self, number: u32) -> u32 {
        // relaxed: the lock of the cell orders it (I3).
        self.uses.get(number as usize).map_or(0, |uses| uses.load(Ordering::Relaxed))
    }

    fn set_uses(&self, number: u32, len: usize, uses: u32) {
        self.totals.enter(len, self.uses_of(number), uses);
        let at = number as usize;
        self.uses.touch(at..at + 1);
        // relaxed: the lock of the cell orders it (I3).
        self.uses[at].store(uses, Ordering::Relaxed);
    }

    /// Recounts the objects, and compares them with the cells that name them. If leaves are yet to
    /// be drained, their cells may name some too.
    pub(crate) fn check(&self, named: &Uses, all_drained: bool) -> Result<(), String> {
        let mut found = SharedStat::default();
        let mut number = 0;
        while number < self.uses.len() as u64 {
            let absent = self.slots.absent(number);
            if absent == 0 {
                self.check_object(number as u32, named, all_drained, &mut found)?;
            }
            number += absent.max(1);
        }
        let (kept, taken) = (self.stat(), self.numbers.recount());
        if found != kept || taken != found.objects {
            return Err(format!("shared are {found:?}, {taken} numbers, counted {kept:?}"));
        }
        Ok(())
    }

    fn check_object(
        &self,
        number: u32,
        named: &Uses,
        all_drained: bool,
        found: &mut SharedStat,
    ) -> Result<(), String> {
        let cell = self.lock(number);
        let len = match cell.as_ref().map(CellGuard::content) {
            Some(Content::Object { len }) => len,
            _ => 0,
        };
        let (uses, cells) = (self.uses_of(number), named.get(&number).copied().unwrap_or(0));
        if cells > uses || cells < uses && all_drained || (uses > 0) != (len > 0) {
            let what = format!("shared object {number} of {len} bytes");
            return Err(format!("{what} is named by {cells} slots, counted {uses}"));
        }
        let here = shared(len, uses);
        found.pages += here.pages;
        found.objects += here.objects;
        found.bytes += here.bytes;
        found.saved_bytes += here.saved_bytes;
        Ok(())
    }

    /// Counts a use too many, for a test of a recount.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn miscount(&self, number: u32) {
        // relaxed: one thread.
        self.uses[number as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Bytes of the tables, without cells: mapped, and on the heap.
    pub(crate) fn table_bytes(&self) -> (u64, u64) {
        let uses = (self.uses.held_bytes(), self.uses.heap_bytes());
        let parts = [self.slots.root_bytes(), uses, self.numbers.bytes(), self.hints.bytes()];
        parts.iter().fold((0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1))
    }

    /// The addresses of these tables.
    pub(crate) fn table_ranges(&self) -> Vec<Range<usize>> {
        let mut ranges = vec![self.slots.root_range(), self.uses.range(), self.hints.range()];
        ranges.extend(self.numbers.ranges());
        ranges
    }
}
