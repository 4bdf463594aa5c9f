//! The units of a device: neighbouring pages that were cold together, stored as one frame.
//!
//! ```text
//!   page's cell    | unit, page 35 |                locked first
//!                          `--> unit 2
//!   unit               0    1    2    3             its word, under a lock: locked second
//!   word             | 0  | .. | .. | 0  |
//!                                `--> pieces 24 to 35
//!   piece           | object | object | none | ..   of the frame, 4096 bytes each: locked third
//! ```
//!
//! Pieces are objects of the device's pool, in cells of a table of their own. So they are
//! compacted, limited and freed as any other. `unit` has what a word says.
//!
//! Invariants
//! - I1 a live bit of a unit is a cell that names it, or a page of which the maker is about to say
//!   so. The thread that ends the last one frees the frame.
//! - I2 live bits are set by the one post-processing that runs. All other threads only clear them.
//! - I3 word, pieces and totals of a unit change under its lock.
//! - I4 a cell of a detached leaf names its unit until it is drained. Meanwhile its page cannot
//!   join a unit again, because its bit is live.
//!
//! Locks: those of units, each for some units, of rank `Unit`. One page's cell may be locked then.
//! A piece's cell, of rank `SharedCell`, is taken under it.

use std::ops::Range;
use std::sync::Arc;

use codec::{CodecError, Stream};
use host::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use host::{Lock, LockGuard, PAGE_SIZE, Rank, Table};
use zsmalloc::{AllocError, MemoryError, Object, Pool, Slots};

use super::totals::{self, change, total};
use super::unit::{PIECES, UnitState, bit_of, unit_of};

/// Locks of units. Two threads seldom want the same one.
const LOCKS: usize = 64;

/// What a device has in units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct UnitStat {
    /// Units.
    pub units: u64,
    /// Pages that are stored in them.
    pub pages: u64,
    /// Pages that their frames have for nothing, because they were used since. Tiers keep them at
    /// an eighth of all pages in frames, or less.
    pub dead_pages: u64,
    /// Bytes of their frames.
    pub bytes: u64,
}

/// The units of one device.
pub(crate) struct Units {
    pieces: Slots,
    words: Table<AtomicU64>,
    /// The last use of the pages that were tried as a unit in vain.
    tried: Table<AtomicU32>,
    locks: Box<[Lock<()>]>,
    totals: Totals,
}

#[derive(Default)]
struct Totals {
    units: totals::AtomicU64,
    pages: totals::AtomicU64,
    dead_pages: totals::AtomicU64,
    bytes: totals::AtomicU64,
    pieces: totals::AtomicU64,
}

/// What a unit adds to the totals.
fn of(unit: UnitState) -> UnitStat {
    UnitStat {
        units: unit.exists().into(),
        pages: unit.live.count_ones().into(),
        dead_pages: unit.dead_pages().into(),
        bytes: unit.len as u64,
    }
}

/// The cells of a unit's pieces.
fn cells_of(number: u64) -> Range<u64> {
    number * PIECES as u64..(number + 1) * PIECES as u64
}

impl Units {
    /// Bytes of the longest frame.
    pub(crate) const FRAME_MAX: usize = PIECES * PAGE_SIZE;

    /// No unit yet, for a device of so many pages. Tables are touched where units come.
    pub(crate) fn new(pool: &Arc<Pool>, pages: u64) -> Result<Units, MemoryError> {
        let units = unit_of(pages - 1) + 1;
        Ok(Units {
            pieces: Slots::new(Arc::clone(pool), cells_of(units).start)?,
            words: pool.table(units as usize)?,
            tried: pool.table(units as usize)?,
            locks: (0..LOCKS).map(|_| Lock::new(Rank::Unit, ())).collect(),
            totals: Totals::default(),
        })
    }

    /// A unit at a glance. Only the maker may rely on it: until it says more, no bit is set (I2).
    pub(crate) fn unit(&self, number: u64) -> UnitState {
        // relaxed: the lock of the unit orders it (I3), or it is a glance.
        let word = self.words.get(number as usize).map(|word| word.load(Ordering::Relaxed));
        word.map_or_else(UnitState::default, UnitState::unpack)
    }

    /// The bytes of a page that a locked cell says to be in a unit.
    pub(crate) fn page<'s>(
        &self,
        page: u64,
        stream: &'s mut Stream,
    ) -> Result<&'s [u8], CodecError> {
        let (unit, pages) = self.unpack(unit_of(page), stream)?;
        let at = unit.place_of(page).ok_or(CodecError::Corrupt)?;
        pages.get(at..at + PAGE_SIZE).ok_or(CodecError::Corrupt)
    }

    /// A unit, and the bytes of its members one after the other. They are none if it does not
    /// exist.
    pub(crate) fn unpack<'s>(
        &self,
        number: u64,
        stream: &'s mut Stream,
    ) -> Result<(UnitState, &'s [u8]), CodecError> {
        let locked = self.lock(number);
        let unit = self.unit(number);
        if !unit.exists() {
            return Ok((unit, &[]));
        }
        let pages = stream.unpack_unit(unit.len, unit.unpacked_len(), |frame| {
            // It is given up before the frame is decompressed.
            let _locked = locked;
            self.copy_frame(number, frame)
        })?;
        Ok((unit, pages))
    }

    /// Copies the pieces of a locked unit. False if they are not there.
    fn copy_frame(&self, number: u64, frame: &mut [u8]) -> bool {
        let mut pieces = frame.chunks_mut(PAGE_SIZE).zip(cells_of(number));
        pieces.all(|(to, cell)| {
            let cell = self.pieces.lock_shared(cell);
            let piece = cell.as_ref().and_then(|cell| cell.bytes());
            let piece = piece.filter(|piece| piece.len() == to.len());
            piece.inspect(|piece| to.copy_from_slice(piece)).is_some()
        })
    }

    /// Stores a frame of some `members` as a unit, in place of the one that is there. `joining` are
    /// those of them that the caller is about to have name it, and the others lived when it looked.
    /// No cell is locked.
    ///
    /// # Errors
    ///
    /// If there is no memory. The unit is as it was then.
    pub(crate) fn put(
        &self,
        number: u64,
        frame: &[u8],
        (members, joining): (u16, u16),
    ) -> Result<(), AllocError> {
        debug_assert!(frame.len() <= Units::FRAME_MAX, "a frame has at most {PIECES} pieces");
        let mut objects: [Option<Object<'_>>; PIECES] = [const { None }; PIECES];
        for (object, piece) in objects.iter_mut().zip(frame.chunks(PAGE_SIZE)) {
            // Longer objects are freed in return, so the limit does not apply.
            *object = Some(self.pieces.pool.store_past_limit(piece)?);
        }
        for cell in cells_of(number).take(frame.len().div_ceil(PAGE_SIZE)) {
            // A leaf is taken now, because under the lock of the unit it may not be.
            drop(self.pieces.lock_or_add(cell)?);
        }
        let _locked = self.lock(number);
        let before = self.unit(number);
        debug_assert!(before.live & joining == 0, "I4: a page that joins is not in it");
        let live = before.live & members | joining;
        let after = UnitState { members, live, len: frame.len() };
        self.replace(number, before, if live == 0 { UnitState::default() } else { after }, objects);
        Ok(())
    }

    /// A page's cell does not name its unit any more, or will not. A page that is in none is passed
    /// over: it is lost, and reading it is an error.
    pub(crate) fn retire(&self, page: u64) {
        let number = unit_of(page);
        let _locked = self.lock(number);
        let before = self.unit(number);
        let left = UnitState { live: before.live & !bit_of(page), ..before };
        if left.exists() && left != before {
            self.set(number, before, left);
        } else if left != before {
            self.replace(number, before, UnitState::default(), [const { None }; PIECES]);
        }
    }

    /// Gives a locked unit other pieces. Those that it had are freed.
    fn replace<'p>(
        &'p self,
        number: u64,
        before: UnitState,
        after: UnitState,
        objects: [Option<Object<'p>>; PIECES],
    ) {
        let count = before.pieces().max(after.pieces()) as usize;
        for (cell, object) in cells_of(number).zip(objects).take(count) {
            let Some(mut cell) = self.pieces.lock_shared(cell) else { continue };
            match object.filter(|_| after.exists()) {
                Some(object) => cell.put(object),
                None => cell.clear(),
            }
        }
        self.set(number, before, after);
    }

    fn set(&self, number: u64, before: UnitState, after: UnitState) {
        let (old, new) = (of(before), of(after));
        change(&self.totals.units, old.units, new.units);
        change(&self.totals.pages, old.pages, new.pages);
        change(&self.totals.dead_pages, old.dead_pages, new.dead_pages);
        change(&self.totals.bytes, old.bytes, new.bytes);
        change(&self.totals.pieces, before.pieces(), after.pieces());
        let at = number as usize;
        self.words.touch(at..at + 1);
        // relaxed: the lock of the unit orders it (I3).
        self.words[at].store(after.pack(), Ordering::Relaxed);
    }

    /// The last use of the pages of a run that were tried in vain, as noted.
    pub(crate) fn tried(&self, number: u64) -> u32 {
        // relaxed: only the one post-processing that runs reads and writes it.
        self.tried.get(number as usize).map_or(0, |tried| tried.load(Ordering::Relaxed))
    }

    /// Notes that pages were tried in vain, of which the last use was at this second.
    pub(crate) fn note_tried(&self, number: u64, newest: u32) {
        let at = number as usize;
        self.tried.touch(at..at + 1);
        // relaxed: as in `tried`.
        self.tried[at].store(newest, Ordering::Relaxed);
    }

    /// The totals. They are exact while no request runs.
    pub(crate) fn stat(&self) -> UnitStat {
        UnitStat {
            units: total(&self.totals.units),
            pages: total(&self.totals.pages),
            dead_pages: total(&self.totals.dead_pages),
            bytes: total(&self.totals.bytes),
        }
    }

    /// Objects of all frames.
    pub(crate) fn pieces(&self) -> u64 {
        total(&self.totals.pieces)
    }

    fn lock(&self, number: u64) -> LockGuard<'_, ()> {
        self.locks[number as usize % self.locks.len()].lock()
    }

    /// Recounts the units by their words. A caller that decodes the pages which cells say to be in
    /// units finds out whether pieces and live bits are right.
    pub(crate) fn check(&self) -> Result<(), String> {
        let (mut found, mut pieces) = (UnitStat::default(), 0);
        for (number, _) in self.words.held() {
            let unit = self.unit(number as u64);
            let here = of(unit);
            found.units += here.units;
            found.pages += here.pages;
            found.dead_pages += here.dead_pages;
            found.bytes += here.bytes;
            pieces += unit.pieces();
        }
        let kept = (self.stat(), self.pieces());
        if (found, pieces) != kept {
            return Err(format!("units are {found:?} of {pieces} pieces, counted {kept:?}"));
        }
        Ok(())
    }

    /// Bytes of the tables, without cells: mapped, and on the heap.
    pub(crate) fn table_bytes(&self) -> (u64, u64) {
        let words = (self.words.held_bytes(), self.words.heap_bytes());
        let tried = (self.tried.held_bytes(), self.tried.heap_bytes());
        let locks = (0, size_of_val(&*self.locks) as u64);
        let parts = [self.pieces.root_bytes(), words, tried, locks];
        parts.iter().fold((0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1))
    }

    /// The addresses of these tables.
    pub(crate) fn table_ranges(&self) -> [Range<usize>; 3] {
        [self.pieces.root_range(), self.words.range(), self.tried.range()]
    }

    /// Counts a dead page too many, for a test of a recount.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn miscount(&self) {
        super::bump(&self.totals.dead_pages, 1);
    }
}
