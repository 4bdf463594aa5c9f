//! Which pages are shuffled, and by which size of element: learned from samples.
//!
//! ```text
//!   the first page of a place, and one page in 64 (one in 1024 while samples say nothing new)
//!                       compressed as it is, and shuffled by 2, 4 and 8 bytes ---> lesson of its
//!                                                                                   place
//!   any other page      as the lesson of its place says
//! ```
//!
//! A place is a number that the caller chooses, such as that of a stretch of addresses. Pages of a
//! place are likely to hold the same kind of data. The lesson of a place has the lengths of the
//! four blobs, as means in which each sample counts as much as all before it. Two places may share
//! a lesson, which then suits them both less.
//!
//! Invariant: no blob depends on what was learned later, because each says how it was made. The
//! words are advice: a race loses a sample.

use super::shuffle::Element;
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Ways to compress a page: as it is, and shuffled by each size of element.
pub(super) const WAYS: [Option<Element>; 4] =
    [None, Some(Element::Two), Some(Element::Four), Some(Element::Eight)];

/// Lessons. Places are spread over them.
const LESSONS: usize = 1024;
/// One page in so many is a sample,
const OFTEN: u32 = 64;
/// and one in so many if the samples before said what was known.
const SELDOM: u32 = 1024;
/// A lesson says to shuffle if that makes blobs shorter by one part in so many: 5 %.
const GAIN: u64 = 20;
/// No blob counts as longer, because it is not kept then.
const LEN_MAX: usize = 4096;

/// What was learned. All clones of a codec share it.
pub(super) struct Guide {
    lessons: Box<[AtomicU64]>,
    /// Pages between two samples.
    every: AtomicU32,
}

impl Guide {
    pub(super) fn new() -> Guide {
        let lessons = (0..LESSONS).map(|_| AtomicU64::new(0)).collect();
        Guide { lessons, every: AtomicU32::new(OFTEN) }
    }

    /// Bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.lessons)
    }

    /// How a page of a place is compressed, as an index of [`WAYS`].
    pub(super) fn way(&self, place: u64) -> usize {
        // relaxed: advice.
        best(unpacked(self.lesson(place).load(Ordering::Relaxed)))
    }

    /// Whether nothing is known of a place.
    pub(super) fn is_new(&self, place: u64) -> bool {
        // relaxed: advice.
        self.lesson(place).load(Ordering::Relaxed) == 0
    }

    /// Pages until the next sample.
    pub(super) fn every(&self) -> u32 {
        // relaxed: advice.
        self.every.load(Ordering::Relaxed)
    }

    /// The blobs of a sample had these lengths. Returns the way that is now the best for its place.
    pub(super) fn learn(&self, place: u64, lens: [usize; WAYS.len()]) -> usize {
        let lens = lens.map(|len| len.min(LEN_MAX) as u64);
        let lesson = self.lesson(place);
        // relaxed: advice, as are the words below.
        let known = unpacked(lesson.load(Ordering::Relaxed));
        let mean = |at: usize| if known[at] == 0 { lens[at] } else { known[at].midpoint(lens[at]) };
        let learned: [u64; WAYS.len()] = std::array::from_fn(mean);
        // relaxed: as above.
        lesson.store(packed(learned), Ordering::Relaxed);
        let is_news = best(learned) != best(known);
        let seldom = self.every().saturating_mul(2).min(SELDOM);
        // relaxed: as above.
        self.every.store(if is_news { OFTEN } else { seldom }, Ordering::Relaxed);
        best(learned)
    }

    fn lesson(&self, place: u64) -> &AtomicU64 {
        // 2^64 divided by the golden ratio spreads neighbours (Knuth, 6.4).
        let hash = place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
        &self.lessons[hash as usize % LESSONS]
    }
}

impl fmt::Debug for Guide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guide").field("every", &self.every()).finish_non_exhaustive()
    }
}

/// The shortest way, if it gains enough. Nothing known is zeros, which gain nothing.
fn best(lens: [u64; WAYS.len()]) -> usize {
    let (way, &len) = lens.iter().enumerate().min_by_key(|&(_, len)| len).unwrap_or((0, &0));
    let gains = len * GAIN <= lens[0] * (GAIN - 1);
    if gains { way } else { 0 }
}

fn packed(lens: [u64; WAYS.len()]) -> u64 {
    lens.iter().rev().fold(0, |word, len| word << 16 | len)
}

fn unpacked(word: u64) -> [u64; WAYS.len()] {
    std::array::from_fn(|at| word >> (16 * at) & 0xffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_shuffled_if_that_gained_there() {
        let guide = Guide::new();
        assert_eq!((guide.way(7), guide.is_new(7)), (0, true), "nothing is known");
        assert_eq!(guide.learn(7, [2000, 1990, 1000, 1500]), 2);
        assert_eq!((guide.way(7), guide.way(8)), (2, 0), "of this place alone");
        assert_eq!((guide.is_new(7), guide.is_new(8)), (false, true));
        assert_eq!(guide.learn(8, [2000, 1990, 1901, 1950]), 0, "less than a twentieth");
        assert_eq!(guide.learn(9, [5000, 5000, 5000, 4000]), 0, "what is not kept gains nothing");
    }

    #[test]
    fn what_was_learned_is_forgotten_by_halves() {
        let guide = Guide::new();
        guide.learn(1, [2000, 2000, 1000, 2000]);
        let other = [1000, 1200, 1200, 1200];
        let ways: Vec<usize> = (0..4).map(|_| guide.learn(1, other)).collect();
        assert_eq!(ways, [2, 2, 0, 0], "1500 and 1100, 1250 and 1150, then nothing is gained");
    }

    #[test]
    fn samples_are_seldom_while_they_say_nothing_new() {
        let guide = Guide::new();
        let learn = |place, lens| {
            guide.learn(place, lens);
            guide.every()
        };
        let every: Vec<u32> = (0..6).map(|_| learn(1, [1000; 4])).collect();
        assert_eq!(every, [128, 256, 512, 1024, 1024, 1024]);
        assert_eq!(learn(2, [1000, 1000, 1000, 500]), 64, "it gains somewhere");
        assert_eq!(learn(2, [1000, 1000, 1000, 500]), 128, "that was known");
        assert_eq!(learn(2, [500, 1000, 1000, 1000]), 64, "it gains no more");
    }

    #[test]
    fn lengths_are_packed_without_loss() {
        let lens = [4096, 0, 1, 4095];
        assert_eq!(unpacked(packed(lens)), lens);
    }
}
