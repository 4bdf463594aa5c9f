//! The algorithms whose entries are stored: the current one, and older ones until their last entry
//! is gone.
//!
//! ```text
//!   index     0      1      2      3          a cell's two bits name the index
//!           | lz4  | zstd | -    | -    |     entries are counted by index
//!                    ^ current: new entries
//! ```
//!
//! The kernel has a pool per algorithm; here all share one pool, as an object does not care who
//! made it.
//!
//! Invariants
//! - I1 the codec of an index changes only while no entry has the index, and it is not current.
//! - I2 who stores reads the current index with a stream in hand, and enters its entry before it
//!   gives the stream up. Whoever makes another index the current one waits for every stream once:
//!   then nobody is about to store under the old one, and its count only falls.
//!
//! Locks: the switch's, then streams, one after the other.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use codec::{Algorithm, Codec, Streams};

use crate::counters::Counters;
use crate::error::AlgorithmError;

/// Algorithms that can have entries at once: two bits of a cell.
pub(crate) const LIVE_MAX: usize = 4;
/// Bits of a level in a word: zstd's go down to -2^17.
const LEVEL_BITS: u32 = 24;
const _: () = assert!(Algorithm::ALL.len() <= 1 << (u32::BITS - LEVEL_BITS), "a word has both");

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Algorithms {
    codecs: [AtomicU32; LIVE_MAX],
    current: AtomicUsize,
    switching: Mutex<()>,
}

impl Algorithms {
    pub(crate) fn new(codec: Codec) -> Algorithms {
        let codecs = std::array::from_fn(|_| AtomicU32::new(pack(codec)));
        Algorithms { codecs, current: AtomicUsize::new(0), switching: Mutex::new(()) }
    }

    /// What new entries are made with. To store by it, the caller has a stream (I2).
    #[inline]
    pub(crate) fn current(&self) -> (usize, Codec) {
        // Acquire pairs with the Release in `switch`, so that the codec of the index is seen.
        let index = self.current.load(Ordering::Acquire);
        (index, self.codec(index))
    }

    /// The codec of entries with an index.
    #[inline]
    pub(crate) fn codec(&self, index: usize) -> Codec {
        // relaxed: an entry was made after its codec was set, and is seen through its cell's lock.
        unpack(self.codecs[index].load(Ordering::Relaxed))
    }

    /// Makes `codec` that of new entries.
    pub(crate) fn switch(
        &self,
        codec: Codec,
        streams: &Streams,
        counters: &Counters,
    ) -> Result<(), AlgorithmError> {
        let _turn = self.switching.lock().unwrap_or_else(PoisonError::into_inner);
        let (current, now) = self.current();
        if now == codec {
            return Ok(());
        }
        let index = self.index_for(codec, current, counters).ok_or(AlgorithmError::TooMany)?;
        // Builds the contexts, or says that they cannot be had, before anything is changed. A model
        // has no time to: it would wait for a lock that loom does not know.
        if !cfg!(loom) {
            streams.prepare(codec).map_err(AlgorithmError::Failed)?;
        }
        // relaxed: published by `current`.
        self.codecs[index].store(pack(codec), Ordering::Relaxed);
        // Release pairs with the Acquire in `current`.
        self.current.store(index, Ordering::Release);
        streams.wait_for_each(zsmalloc::sync::thread::yield_now); // I2
        Ok(())
    }

    /// The index that has the codec's entries, or one that has none.
    fn index_for(&self, codec: Codec, current: usize, counters: &Counters) -> Option<usize> {
        let in_use = |index: &usize| counters.of_algorithm(*index) > 0;
        let others = || (0..LIVE_MAX).filter(|&index| index != current);
        let same = others().find(|index| in_use(index) && self.codec(*index) == codec);
        same.or_else(|| others().find(|index| !in_use(index)))
    }

    /// The algorithms that have entries, with their number; and the current one first.
    pub(crate) fn live(&self, counters: &Counters) -> Vec<(Codec, u64)> {
        let current = self.current().0;
        let row = |index: usize| (self.codec(index), counters.of_algorithm(index));
        let others = (0..LIVE_MAX).filter(|&index| index != current).map(row);
        std::iter::once(row(current)).chain(others.filter(|&(_, entries)| entries > 0)).collect()
    }
}

fn pack(codec: Codec) -> u32 {
    let position = Algorithm::ALL.iter().position(|&it| it == codec.algorithm()).unwrap_or(0);
    (position as u32) << LEVEL_BITS | codec.level() as u32 & ((1 << LEVEL_BITS) - 1)
}

fn unpack(word: u32) -> Codec {
    let algorithm = Algorithm::ALL[(word >> LEVEL_BITS) as usize];
    let level = (word << (u32::BITS - LEVEL_BITS)).cast_signed() >> (u32::BITS - LEVEL_BITS);
    Codec::with_level(algorithm, level).unwrap_or(Codec::new(algorithm))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_codec_is_found_again() {
        for &algorithm in Algorithm::ALL {
            let levels = algorithm.levels();
            for level in levels.clone().filter(|level| level.abs() < 100).chain([*levels.end()]) {
                let codec = Codec::with_level(algorithm, level).expect("one of its levels");
                assert_eq!(unpack(pack(codec)), codec);
            }
            let lowest = Codec::with_level(algorithm, *levels.start()).expect("a level");
            assert_eq!(unpack(pack(lowest)), lowest);
        }
    }
}
