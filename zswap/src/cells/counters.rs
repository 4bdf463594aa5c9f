//! The counters of a cache, by CPU. Stores on different CPUs change different cache lines.
//!
//! ```text
//!   shard 0   | blobs | same | huge | on disk | bytes | algorithms 0 .. 3 | events ... |
//!   shard 1   | ...                                                      sums mean something,
//!   shard n   | ...                                                      a shard alone does not
//! ```
//!
//! An entry may be counted in on one CPU and out on another, so the count of one shard may be
//! negative. A sum may be negative too for a moment: shards are read one after the other, and may
//! show that an entry went and not that it came. Each count has a word of its own, so this disturbs
//! no other count. A negative sum is shown as 0.
//!
//! Invariants
//! - I1 the sums are those over the cells of all areas, as [`Stored::tally`] counts them. A cell's
//!   change is entered under its lock. Detached leaves are counted as pending instead, except that
//!   the entries of an algorithm and of a group count until they are drained.
//! - I2 consider a sum that is read while its count only falls, after all entries that came were
//!   counted. It is no less than the number of entries that are left. It is too large by the
//!   entries whose departure was not seen, in whichever shard they were counted.
//!
//! Locks: none.
//!
//! [`Stored::tally`]: super::stored::Stored::tally

use std::sync::atomic::{AtomicU64, Ordering};

use host::{cpu, sync};
use zsmalloc::LeafTally;

use super::stored::{LIVE_MAX, kind};

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
/// Kinds of entries that are counted: the constants of [`kind`].
const KINDS: usize = kind::DISK + 1;

/// The part of one CPU. It begins on a pair of cache lines of its own, because neighbouring lines
/// are fetched in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Shard {
    counts: [AtomicU64; KINDS],
    bytes: AtomicU64,
    /// Under loom these are modelled, unlike the others, because decisions depend on them.
    algorithms: [sync::atomic::AtomicU64; LIVE_MAX],
    events: [AtomicU64; EVENTS],
    /// Changes outside of cells that were begun, and that were ended. Both may be on different
    /// CPUs.
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Shard {
    /// A cell's content changed.
    #[inline]
    pub(crate) fn replace(&self, old: LeafTally, new: LeafTally) {
        for (kind, count) in self.counts.iter().enumerate() {
            change(count, old.counts[kind], new.counts[kind]);
        }
        change(&self.bytes, old.bytes, new.bytes);
    }

    /// An entry of an algorithm came, or went.
    #[inline]
    pub(crate) fn algorithm(&self, index: usize, came: bool) {
        let by = if came { 1 } else { 1u64.wrapping_neg() };
        // Release pairs with the Acquire in `latest`, so that an index gets another codec after the
        // last use of the old one.
        self.algorithms[index].fetch_add(by, Ordering::Release);
    }

    /// Counts an event that happened `times` times.
    #[inline]
    pub(crate) fn happened(&self, event: Event, times: u64) {
        bump(&self.events[event as usize], times);
    }
}

/// Entries and bytes of detached leaves that are yet to be freed.
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

    /// The shard of the CPU that this thread runs on. An operation asks once, for all that it
    /// changes.
    #[inline]
    pub(crate) fn here(&self) -> &Shard {
        &self.shards[cpu::current_hint() % self.shards.len()]
    }

    /// The content of a cell in a detached leaf changed, because a thread was late.
    pub(crate) fn replace_pending(&self, old: Pending, new: Pending) {
        change(&self.pending_objects, old.objects, new.objects);
        change(&self.pending_bytes, old.bytes, new.bytes);
    }

    /// Cells were emptied together because their leaf was detached. The leaf is yet to be drained.
    pub(crate) fn detach(&self, gone: LeafTally) {
        self.replace_pending(Pending::default(), Pending::of(gone));
        self.here().replace(gone, LeafTally::default());
    }

    /// What is yet to be freed of detached leaves.
    pub(crate) fn pending(&self) -> Pending {
        let (objects, bytes) = (total(&self.pending_objects), total(&self.pending_bytes));
        Pending { objects, bytes }
    }

    /// Begins a change of the cache outside of its cells. A page is in no cell for a while, or
    /// leaves are taken out and drained. [`Counters::end`] ends the change.
    pub(crate) fn begin(&self) {
        bump(&self.here().begun, 1);
    }

    /// See [`Counters::begin`].
    pub(crate) fn end(&self) {
        bump(&self.here().ended, 1);
    }

    /// Entries of an algorithm, those in detached leaves included. If no entry can come, 0 says
    /// that there is none (I2). If entries come and go, the sum may be anything for a moment.
    pub(crate) fn of_algorithm(&self, index: usize) -> u64 {
        let words = self.shards.iter().map(|shard| latest(&shard.algorithms[index]));
        words.fold(0, u64::wrapping_add)
    }

    /// As [`Counters::of_algorithm`], to be shown.
    pub(crate) fn shown_of_algorithm(&self, index: usize) -> u64 {
        not_negative(self.of_algorithm(index))
    }

    /// Counts an event that happened `times` times.
    pub(crate) fn happened(&self, event: Event, times: u64) {
        self.here().happened(event, times);
    }

    /// How often an event happened.
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

    /// The sums over all cells, to be shown.
    pub(crate) fn tally(&self) -> LeafTally {
        let LeafTally { counts, bytes } = self.sums();
        LeafTally { counts: counts.map(not_negative), bytes: not_negative(bytes) }
    }

    /// The sums over all cells, for a caller that knows that nothing moves.
    pub(crate) fn sums(&self) -> LeafTally {
        let count = |kind: usize| self.sum(|shard| &shard.counts[kind]);
        LeafTally { counts: std::array::from_fn(count), bytes: self.sum(|shard| &shard.bytes) }
    }

    /// Numbers that are others after every change. `None` while a change outside of cells is under
    /// way. A change of a cell holds the cell's lock, so a thread that looks at all cells between
    /// two calls waits for it. The count of ended changes is read first. If it equals the count of
    /// begun ones, no change was under way between the two reads, although a sum takes a while.
    pub(crate) fn motion(&self) -> Option<[u64; 4]> {
        let (ended, begun) = (self.sum(|shard| &shard.ended), self.sum(|shard| &shard.begun));
        let events: u64 = (0..EVENTS).map(|event| self.sum(|shard| &shard.events[event])).sum();
        let LeafTally { counts, bytes } = self.sums();
        let entries = counts.into_iter().fold(0, u64::wrapping_add);
        (begun == ended).then_some([begun, events, entries, bytes])
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> u64 {
        size_of_val(&*self.shards) as u64
    }

    fn sum(&self, word: impl Fn(&Shard) -> &AtomicU64) -> u64 {
        self.shards.iter().fold(0, |sum, shard| sum.wrapping_add(read(word(shard))))
    }
}

fn bump(counter: &AtomicU64, by: u64) {
    // relaxed: an independent total.
    counter.fetch_add(by, Ordering::Relaxed);
}

fn read(counter: &AtomicU64) -> u64 {
    // relaxed: an independent total.
    counter.load(Ordering::Relaxed)
}

/// The latest value. The locks of the streams order an entry's arrival before it, but loom does not
/// know those locks.
fn latest(counter: &sync::atomic::AtomicU64) -> u64 {
    // Acquire pairs with the Release in `Shard::algorithm`, so that a thread that saw an entry go
    // comes after all that was done with it.
    match cfg!(loom) {
        true => counter.fetch_add(0, Ordering::Acquire),
        false => counter.load(Ordering::Acquire),
    }
}

/// The sum of a counter, which may be below 0 for a moment.
fn total(counter: &AtomicU64) -> u64 {
    not_negative(read(counter))
}

/// A sum as it is shown: 0 if it is below 0 for a moment.
fn not_negative(sum: u64) -> u64 {
    if sum.cast_signed() < 0 { 0 } else { sum }
}

fn change(counter: &AtomicU64, old: u64, new: u64) {
    if old != new {
        bump(counter, new.wrapping_sub(old));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::algorithms::Algorithms;
    use super::*;
    use codec::{Codec, Streams};

    const ONE: LeafTally = LeafTally { counts: [1, 1, 1, 1], bytes: 100 };
    const NONE: LeafTally = LeafTally { counts: [0; KINDS], bytes: 0 };

    fn codec(name: &str) -> Codec {
        name.parse().expect("it exists")
    }

    /// A page of the current algorithm is stored on one CPU and loaded on the other. Meanwhile the
    /// thread that switches has read the shard of the first CPU and not yet that of the second.
    /// Because shards are read one by one, it may see the load without the store.
    #[test]
    fn an_index_with_an_entry_is_not_anothers_whatever_is_seen_of_others() {
        let (counters, streams) = (Counters::for_cpus(2), Streams::for_cpus(1));
        let algorithms = Algorithms::new(codec("lz4"));
        let switch = |name: &str| algorithms.switch(codec(name), &streams, &counters);
        switch("zstd").expect("a free index");
        let (zstd, _) = algorithms.current();
        counters.shards[1].algorithm(zstd, true);
        switch("lz4:9").expect("a free index");
        for name in ["zstd:5", "zstd:7", "zstd:9", "lz4:7"] {
            let (current, _) = algorithms.current();
            counters.shards[1].algorithm(current, false);
            assert_eq!(counters.of_algorithm(zstd), 1, "its own entry is seen");
            switch(name).expect("a free index");
            assert_eq!(*algorithms.codec(zstd), codec("zstd"), "the entry's codec");
            counters.shards[0].algorithm(current, true);
        }
    }

    /// A leaf is detached after a store was entered in the leaf's word and before it was counted.
    #[test]
    fn sums_that_are_shown_are_no_less_than_0() {
        let counters = Counters::for_cpus(2);
        counters.shards[0].algorithm(0, false);
        counters.detach(ONE);
        assert_eq!((counters.tally(), counters.shown_of_algorithm(0)), (NONE, 0));
        assert_ne!(counters.sums(), NONE, "a check sees what they are");
        counters.shards[1].replace(NONE, ONE);
        assert_eq!((counters.tally(), counters.sums()), (NONE, NONE));
        counters.shards[1].replace(NONE, ONE);
        assert_eq!((counters.tally(), counters.sums()), (ONE, ONE));
    }
}

/// Under every interleaving that two preemptions allow: `--lib model` with `--cfg loom`.
#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::thread;
    use std::sync::Arc;

    /// Claim: an entry is seen, although entries of other algorithms come and go on all CPUs while
    /// the shards are read.
    #[test]
    fn entries_come_and_go_beside_one_that_stays() {
        loom::model(|| {
            let counters = Arc::new(Counters::for_cpus(2));
            counters.shards[0].algorithm(1, true);
            let others = Arc::clone(&counters);
            let user = thread::spawn(move || {
                others.shards[0].algorithm(0, true);
                others.shards[1].algorithm(0, false);
            });
            assert_eq!(counters.of_algorithm(1), 1);
            user.join().expect("no panic");
        });
    }

    /// Claims: if the entries of an algorithm only go, a count of none is seen only when all are
    /// gone. A thread that sees it comes after what was done with them.
    #[test]
    fn entries_go_where_they_did_not_come() {
        loom::model(|| {
            let counters = Arc::new(Counters::for_cpus(2));
            let went = Arc::new(sync::atomic::AtomicU64::new(0));
            (0..2).for_each(|_| counters.shards[0].algorithm(1, true));
            let (others, done) = (Arc::clone(&counters), Arc::clone(&went));
            let user = thread::spawn(move || {
                for shard in [1, 0] {
                    // relaxed: the shard's word has to publish it.
                    done.fetch_add(1, Ordering::Relaxed);
                    others.shards[shard].algorithm(1, false);
                }
            });
            if counters.of_algorithm(1) == 0 {
                // relaxed: as above.
                assert_eq!(went.load(Ordering::Relaxed), 2, "both are done with");
            }
            user.join().expect("no panic");
        });
    }
}
