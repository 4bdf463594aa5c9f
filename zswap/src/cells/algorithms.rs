//! The algorithms that stored entries use: the current one, and older ones until their last entry
//! is gone.
//!
//! ```text
//!   index     0      1      2      3          a cell's two bits name the index
//!           | lz4  | zstd | -    | -    |     entries are counted by index
//!                    ^ current: new entries
//! ```
//!
//! The kernel has a pool per algorithm. Here all algorithms share one pool, because an object need
//! not know what made it. A raw page has no algorithm: it is not counted, and may be stored without
//! a stream.
//!
//! Invariants
//! - I1 the codec of an index changes only while no entry has the index, and it is not current.
//! - I2 a thread that stores reads the current index with a stream in hand, and enters its entry
//!   before it gives the stream up. A thread that makes another index the current one waits for
//!   every stream once. Then no thread is about to store under the old index, and its count only
//!   falls.
//! - I3 so under the switch's lock the count of an index that is not current is never read too
//!   small, although shards are read one by one. All entries under that index were entered with
//!   streams that were waited for since, so their arrival is seen. If the departure of an entry is
//!   not seen, the sum is too large. 0 therefore means that no entry has the index, and none will
//!   before it is current again.
//!
//! Locks: the switch's, then streams, one after the other.

use codec::{Codec, Streams};
use host::sync::atomic::{AtomicUsize, Ordering};
use host::sync::unmodelled::OnceLock;
use host::unmodelled::RankedMutex;
use host::{HeldRank, Rank};

use super::counters::Counters;
use super::stored::LIVE_MAX;
use crate::terms::{AlgorithmError, KNOWN_MAX};

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Algorithms {
    known: Box<[OnceLock<Codec>]>,
    /// For each index, the number of its codec among those that are known.
    numbers: [AtomicUsize; LIVE_MAX],
    current: AtomicUsize,
    switching: RankedMutex<()>,
}

impl Algorithms {
    pub(crate) fn new(codec: Codec) -> Algorithms {
        let known: Box<[_]> = (0..KNOWN_MAX).map(|_| OnceLock::new()).collect();
        known[0].get_or_init(|| codec);
        let numbers = std::array::from_fn(|_| AtomicUsize::new(0));
        let switching = RankedMutex::new(Rank::Switching, ());
        Algorithms { known, numbers, current: AtomicUsize::new(0), switching }
    }

    /// What new entries are made with. A caller that stores by it has a stream (I2).
    #[inline]
    pub(crate) fn current(&self) -> (usize, &Codec) {
        // Acquire pairs with the Release in `switch`, so that the codec of the index is seen. The
        // lock of the stream orders which index that is. loom does not know that lock, so a model
        // reads the latest.
        let index = match cfg!(loom) {
            true => self.current.fetch_add(0, Ordering::AcqRel),
            false => self.current.load(Ordering::Acquire),
        };
        (index, self.codec(index))
    }

    /// The codec of entries with an index.
    ///
    /// # Panics
    ///
    /// Never: the number of an index is a known codec's.
    #[inline]
    pub(crate) fn codec(&self, index: usize) -> &Codec {
        // relaxed: an entry was made after its codec was set, and is seen through its cell's lock.
        let number = self.numbers[index].load(Ordering::Relaxed);
        self.known[number].get().expect("a number is given out once its codec is there")
    }

    /// Bytes of the dictionaries of all codecs that are known.
    pub(crate) fn dictionary_bytes(&self) -> usize {
        self.known.iter().filter_map(OnceLock::get).map(Codec::dictionary_bytes).sum()
    }

    /// Makes `codec` that of new entries.
    pub(crate) fn switch(
        &self,
        codec: Codec,
        streams: &Streams,
        counters: &Counters,
    ) -> Result<(), AlgorithmError> {
        let _turn = self.switching.lock();
        let (current, now) = self.current();
        if *now == codec {
            return Ok(());
        }
        let index = self.index_for(&codec, current, counters).ok_or(AlgorithmError::TooMany)?;
        let _held = HeldRank::enter(Rank::Stream);
        // Builds the contexts, or says that they cannot be built, before anything is changed. A
        // model must not do this: it would wait for a lock that loom does not know.
        if !cfg!(loom) {
            streams.prepare(&codec).map_err(AlgorithmError::Failed)?;
        }
        let number = self.number_for(codec).ok_or(AlgorithmError::TooManyKnown)?;
        // relaxed: published by `current`.
        self.numbers[index].store(number, Ordering::Relaxed);
        // Release pairs with the Acquire in `current`, so that a thread that sees the index sees
        // its codec.
        self.current.store(index, Ordering::Release);
        streams.wait_for_each(host::sync::thread::yield_now); // I2
        Ok(())
    }

    /// The index that has the codec's entries, or one that has no entries (I3). The caller has the
    /// switch's lock.
    fn index_for(&self, codec: &Codec, current: usize, counters: &Counters) -> Option<usize> {
        let in_use = |index: &usize| counters.of_algorithm(*index) > 0;
        let others = || (0..LIVE_MAX).filter(|&index| index != current);
        let same = others().find(|index| in_use(index) && self.codec(*index) == codec);
        same.or_else(|| others().find(|index| !in_use(index)))
    }

    /// The number of a codec, which is known from now on. The caller has the switch's lock.
    fn number_for(&self, codec: Codec) -> Option<usize> {
        let known = |slot: &OnceLock<Codec>| slot.get().is_none_or(|known| *known == codec);
        let number = self.known.iter().position(known)?;
        self.known[number].get_or_init(|| codec);
        Some(number)
    }

    /// The algorithms that have entries, with the number of those. The current one comes first,
    /// even if it has none.
    pub(crate) fn live(&self, counters: &Counters) -> Vec<(Codec, u64)> {
        let current = self.current().0;
        let row = |index: usize| (self.codec(index).clone(), counters.shown_of_algorithm(index));
        let others = (0..LIVE_MAX).filter(|&index| index != current).map(row);
        std::iter::once(row(current)).chain(others.filter(|&(_, entries)| entries > 0)).collect()
    }
}
