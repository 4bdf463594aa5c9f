//! Frees one by one that lag behind, so that they do not wait for memory.
//!
//! ```text
//!   free_handle --> entry, its cell asked for       a line: | e | f | g | h | a | b | c | d |
//!                   halfway: header asked for                 ^               ^
//!                   8 frees later: freed                   out, in         halfway
//! ```
//!
//! A free in random order waits for the object's cell, then for its frame's word, then for its
//! header. The next one is not known, so no line can be asked for in advance. A free has more
//! instructions than a core looks ahead, so no two of them wait at once. If the object is freed
//! eight frees later, all three lines have come.
//!
//! What a pool says about itself is exact all the same, because a thread that asks flushes the
//! lines. So does a thread that compacts or is refused a slot, and the worker when the pool is at
//! rest.
//!
//! Source: software pipelining, as Chen, Ailamaki, Gibbons and Mowry use it for hash joins
//! ("Improving hash join performance through prefetching", 2004).
//!
//! Invariants
//! - I1 an entry in a line is a handle's whose owner gave it away. The thread that takes it out
//!   frees it, and to all others the object is in use (I1 and I2 of `objects::later`).
//! - I2 entries are put in and taken out by exchanges, so each is taken out once.
//! - I3 a thread that flushes has the turn until what it took is freed. So the thread that has it
//!   next finds those objects freed.
//!
//! A thread has a line of its own while there are no more threads than lines. If there are more, an
//! object that one thread freed may be taken out, and be freed, by another one.
//!
//! Locks: the turn to flush, and classes below it.

use host::sync::atomic::{AtomicU32, Ordering};
use host::sync::unmodelled::OnceLock;
use host::{Rank, RankedMutex, RankedMutexGuard};

use crate::numbers::{CellNumber, MemoryError};

/// Frees that a line lags at most.
pub(crate) const LAG_MAX: usize = 8;
/// Lines of a pool.
const LINES: usize = if cfg!(loom) { 1 } else { 32 };

/// Entries on their way, of one thread as a rule.
#[derive(Default)]
#[repr(align(64))]
struct Line {
    /// Frees so far.
    next: AtomicU32,
    /// 0: nothing.
    entries: [AtomicU32; LAG_MAX],
}

/// The lines of a pool.
pub(crate) struct Lag {
    /// A power of two, or 0.
    frees: usize,
    /// Built by the first free. `None` inside if there was no memory for them.
    lines: OnceLock<Option<Box<[Line]>>>,
    turn: RankedMutex<()>,
}

impl Lag {
    /// A lag of so many frees: 0, which is none, or a power of two up to [`LAG_MAX`].
    pub(crate) fn new(frees: usize) -> Result<Lag, MemoryError> {
        if frees > LAG_MAX || frees != 0 && !frees.is_power_of_two() {
            return Err(MemoryError::BadConfig { what: "a lag is 0, 1, 2, 4 or 8 frees" });
        }
        Ok(Lag { frees, lines: OnceLock::new(), turn: RankedMutex::new(Rank::Draining, ()) })
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.built().map_or(0, size_of_val)
    }

    /// The lines, if there are any yet.
    fn built(&self) -> Option<&[Line]> {
        self.lines.get()?.as_deref()
    }

    #[inline(always)]
    fn lines(&self) -> Option<&[Line]> {
        if self.frees == 0 {
            return None;
        }
        self.lines.get_or_init(build).as_deref()
    }

    /// Puts an entry in the line of this thread. Returns the entry that is to be freed now, if
    /// there is one. `halfway` is told which entry is half through the line (or `NONE`).
    #[inline(always)]
    pub(crate) fn pass(
        &self,
        entry: CellNumber,
        halfway: impl FnOnce(CellNumber),
    ) -> Option<CellNumber> {
        let Some(lines) = self.lines() else { return Some(entry) };
        let line = &lines[host::cpu::thread_hint() % LINES];
        let (frees, mask) = (self.frees, (self.frees - 1) % LAG_MAX);
        // relaxed: the next place is a hint. If two threads take one place, it is exchanged twice.
        let next = line.next.load(Ordering::Relaxed) as usize;
        // relaxed: as above.
        line.next.store(next.wrapping_add(1) as u32, Ordering::Relaxed);
        // relaxed: a hint.
        let between = line.entries[(next + frees / 2) & mask].load(Ordering::Relaxed);
        halfway(CellNumber::new(between));
        // AcqRel pairs with itself, here and in `Flush`, so that a thread that takes an entry out
        // sees what the one that put it in saw of the object.
        let out = line.entries[next & mask].swap(entry.get(), Ordering::AcqRel);
        CellNumber::new(out).some()
    }

    /// What is in the lines, to be freed by the caller, which has the turn meanwhile (I3). `None`
    /// if there never were lines.
    pub(crate) fn flush(&self) -> Option<Flush<'_>> {
        let lines = self.built()?;
        Some(Flush { lines, at: 0, _turn: self.turn.lock() })
    }
}

/// Takes the entries out of the lines, one by one.
pub(crate) struct Flush<'l> {
    lines: &'l [Line],
    at: usize,
    _turn: RankedMutexGuard<'l, ()>,
}

impl Iterator for Flush<'_> {
    type Item = CellNumber;

    fn next(&mut self) -> Option<CellNumber> {
        loop {
            let place = self.lines.get(self.at / LAG_MAX)?.entries.get(self.at % LAG_MAX)?;
            self.at += 1;
            // relaxed: a look first, that leaves the line with its thread. What was put in before
            // the flush began, by anybody whom the caller knows of, is seen.
            if place.load(Ordering::Relaxed) == 0 {
                continue;
            }
            // AcqRel: as in `pass`.
            let entry = CellNumber::new(place.swap(0, Ordering::AcqRel)).some();
            if entry.is_some() {
                return entry;
            }
        }
    }
}

#[cold]
fn build() -> Option<Box<[Line]>> {
    let mut lines = Vec::new();
    lines.try_reserve_exact(LINES).ok()?;
    lines.resize_with(LINES, Line::default);
    Some(lines.into_boxed_slice())
}
