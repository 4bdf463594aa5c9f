//! The counters of a cache, by CPU: a store on one CPU changes no cache line that another's does.
//!
//! ```text
//!   shard 0   | blobs, same | huge, on disk | bytes | algorithms 0, 1 | 2, 3 | events ... |
//!   shard 1   | ...                                                      sums mean something,
//!   shard n   | ...                                                      a shard alone does not
//! ```
//!
//! Two counts of 32 bits share a word: each change is the difference of two packed words, added
//! wrapping, so that the sum over all shards is the packed sum, though a shard's own may be less
//! than nothing.
//!
//! Invariant: the sums are those over the cells of all areas, as [`Held::tally`] counts them; a
//! cell's change is entered under its lock. What is in detached leaves is pending instead; the
//! entries of an algorithm and of a group count until they are drained.
//!
//! [`Held::tally`]: crate::entry::Held::tally

use std::sync::atomic::{AtomicU64, Ordering};

use zsmalloc::{LeafTally, cpu, sync};

use crate::algorithms::LIVE_MAX;
use crate::entry::kind;

/// Things that happened, counted since the cache was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    PoolLimitHit,
    RejectReclaimFail,
    RejectAllocFail,
    RejectMetadataFail,
    RejectCompressFail,
    RejectCompressPoor,
    DecompressFail,
    WrittenBackPages,
    Invalidated,
    WriteBackFail,
    DiskFull,
    DiskLoad,
    DiskLoadFail,
    ReadAheadHit,
    In,
    Out,
}

const EVENTS: usize = Event::Out as usize + 1;
const HALF: u32 = u32::BITS;
const _: () = assert!(2 * HALF == u64::BITS, "two counts to a word: cells have numbers of 32 bits");

/// The part of one CPU. On cache lines of its own, two, as neighbouring lines are fetched in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Shard {
    memory: AtomicU64,
    rare: AtomicU64,
    bytes: AtomicU64,
    /// Modelled, unlike the others: what they say decides.
    algorithms: [sync::atomic::AtomicU64; LIVE_MAX / 2],
    events: [AtomicU64; EVENTS],
    /// Changes outside of cells, begun and ended: perhaps on another CPU.
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Shard {
    /// A cell's content changed.
    #[inline]
    pub(crate) fn replace(&self, old: LeafTally, new: LeafTally) {
        let [o, n] = [old.counts, new.counts];
        change(&self.memory, pair(o[0], o[1]), pair(n[0], n[1]));
        change(&self.rare, pair(o[2], o[3]), pair(n[2], n[3]));
        change(&self.bytes, old.bytes, new.bytes);
    }

    /// An entry of an algorithm came, or went.
    #[inline]
    pub(crate) fn algorithm(&self, index: usize, came: bool) {
        let one = 1 << (index % 2 * HALF as usize);
        let by = if came { one } else { 0u64.wrapping_sub(one) };
        // relaxed: a total; who acts on it has waited for the streams of those who add.
        self.algorithms[index / 2].fetch_add(by, Ordering::Relaxed);
    }

    /// Something happened so often.
    #[inline]
    pub(crate) fn happened(&self, event: Event, times: u64) {
        bump(&self.events[event as usize], times);
    }
}

/// What is pending in detached leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Pending {
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
}

impl Pending {
    pub(crate) fn of(tally: LeafTally) -> Pending {
        Pending { objects: tally.counts[kind::BLOB], bytes: tally.bytes }
    }
}

/// The counters of a cache.
#[derive(Debug)]
pub(crate) struct Counters {
    shards: Box<[Shard]>,
    pending_objects: AtomicU64,
    pending_bytes: AtomicU64,
    /// Areas made, less those that are gone and empty.
    areas: AtomicU64,
}

impl Counters {
    pub(crate) fn for_cpus(cpus: usize) -> Counters {
        Counters {
            shards: (0..cpus.max(1)).map(|_| Shard::default()).collect(),
            pending_objects: AtomicU64::new(0),
            pending_bytes: AtomicU64::new(0),
            areas: AtomicU64::new(0),
        }
    }

    /// The shard of the CPU this runs on: asked for once for all that an operation changes.
    #[inline]
    pub(crate) fn here(&self) -> &Shard {
        &self.shards[cpu::current_hint() % self.shards.len()]
    }

    /// The content of a cell in a detached leaf changed: somebody was late.
    pub(crate) fn replace_pending(&self, old: Pending, new: Pending) {
        change(&self.pending_objects, old.objects, new.objects);
        change(&self.pending_bytes, old.bytes, new.bytes);
    }

    /// Cells were emptied together, by detaching their leaf, which is to be drained.
    pub(crate) fn detach(&self, gone: LeafTally) {
        self.replace_pending(Pending::default(), Pending::of(gone));
        self.here().replace(gone, LeafTally::default());
    }

    /// What is to be freed of detached leaves.
    pub(crate) fn pending(&self) -> Pending {
        let (objects, bytes) = (total(&self.pending_objects), total(&self.pending_bytes));
        Pending { objects, bytes }
    }

    /// Something begins that changes the cache outside of its cells: what is in no cell for a
    /// while, or leaves that are taken out and drained. [`Counters::end`] ends it.
    pub(crate) fn begin(&self) {
        bump(&self.here().begun, 1);
    }

    /// See [`Counters::begin`].
    pub(crate) fn end(&self) {
        bump(&self.here().ended, 1);
    }

    /// Entries of an algorithm, those in detached leaves included.
    pub(crate) fn of_algorithm(&self, index: usize) -> u64 {
        let words = self.shards.iter().map(|shard| latest(&shard.algorithms[index / 2]));
        let packed = words.fold(0, u64::wrapping_add);
        unpair(packed)[index % 2]
    }

    /// Something happened so often.
    pub(crate) fn happened(&self, event: Event, times: u64) {
        self.here().happened(event, times);
    }

    /// How often it happened.
    pub(crate) fn times(&self, event: Event) -> u64 {
        self.sum(|shard| &shard.events[event as usize])
    }

    /// An area was made.
    pub(crate) fn area_came(&self) {
        bump(&self.areas, 1);
    }

    /// An area is gone.
    pub(crate) fn area_went(&self) {
        bump(&self.areas, 1u64.wrapping_neg());
    }

    /// Areas there are.
    pub(crate) fn areas(&self) -> u64 {
        read(&self.areas)
    }

    /// The sums over all cells.
    pub(crate) fn tally(&self) -> LeafTally {
        let [blobs, same] = unpair(self.sum(|shard| &shard.memory));
        let [huge, disk] = unpair(self.sum(|shard| &shard.rare));
        LeafTally { counts: [blobs, same, huge, disk], bytes: self.sum(|shard| &shard.bytes) }
    }

    /// Changes with every change; `None` while one outside of cells is under way. A change
    /// of a cell under way holds its cell's lock, so whoever looks at all cells between two calls
    /// waits for it. What ended is read first: if all that has begun by then had ended before,
    /// nothing was under way between, though a sum takes a while.
    pub(crate) fn motion(&self) -> Option<[u64; 4]> {
        let (ended, begun) = (self.sum(|shard| &shard.ended), self.sum(|shard| &shard.begun));
        let events: u64 = (0..EVENTS).map(|event| self.sum(|shard| &shard.events[event])).sum();
        let words = self.sum(|shard| &shard.memory).wrapping_add(self.sum(|shard| &shard.rare));
        (begun == ended).then(|| [begun, events, words, self.sum(|shard| &shard.bytes)])
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> u64 {
        size_of_val(&*self.shards) as u64
    }

    fn sum(&self, word: impl Fn(&Shard) -> &AtomicU64) -> u64 {
        self.shards.iter().fold(0, |sum, shard| sum.wrapping_add(read(word(shard))))
    }
}

fn pair(low: u64, high: u64) -> u64 {
    high << HALF | low
}

fn unpair(word: u64) -> [u64; 2] {
    [word & u64::from(u32::MAX), word >> HALF]
}

fn bump(counter: &AtomicU64, by: u64) {
    // relaxed: an independent total.
    counter.fetch_add(by, Ordering::Relaxed);
}

fn read(counter: &AtomicU64) -> u64 {
    // relaxed: an independent total.
    counter.load(Ordering::Relaxed)
}

/// What the locks of the streams make the latest value; loom does not know them.
fn latest(counter: &sync::atomic::AtomicU64) -> u64 {
    match cfg!(loom) {
        // relaxed: as below.
        true => counter.fetch_add(0, Ordering::Relaxed),
        // relaxed: a total, see `Algorithms`.
        false => counter.load(Ordering::Relaxed),
    }
}

/// A counter that others may bring below 0 for a moment.
fn total(counter: &AtomicU64) -> u64 {
    let value = read(counter);
    if value.cast_signed() < 0 { 0 } else { value }
}

fn change(counter: &AtomicU64, old: u64, new: u64) {
    if old != new {
        bump(counter, new.wrapping_sub(old));
    }
}
