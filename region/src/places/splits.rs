//! How many mappings a region is split into where pages that are out are closed.
//!
//! ```text
//!   pages       | o o o | c c c c | o | c c | o o |      o: open, c: closed
//!   mappings    |   1   |    2    | 3 |  4  |  5  |      1 and the number of changes
//!
//!   within a group    the changes in the word of its open pages; its lock protects the word
//!   at its edges      a byte for each edge: 1 the page before it is open, 2 the page after it is
//! ```
//!
//! The pages at an edge belong to groups with locks of their own. Each side changes its bit of the
//! edge's byte by one atomic operation. It learns from the old byte whether the edge was a change
//! before, so no change is counted twice or forgotten.
//!
//! Invariant: the region's part of the pager's [`Mappings`] is the number of changes, once no
//! thread is in the middle of one. Lock: none.

use super::bits::bits;
use super::runs::Mappings;
use crate::terms::GROUP_PAGES;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};

const BEFORE: u8 = 1;
const AFTER: u8 = 2;

/// The mappings that closed pages of a region make.
#[derive(Debug)]
pub(crate) struct Splits {
    /// The edge before each group, and the one after the last. Beyond the first and the last there
    /// are guards, which never join the pages.
    edges: Box<[AtomicU8]>,
    pages: usize,
    /// This region's part of `mappings`.
    made: AtomicI64,
    mappings: Arc<Mappings>,
}

impl Splits {
    /// A region of `pages` pages, all of which are open.
    pub(crate) fn new(pages: usize, mappings: &Arc<Mappings>) -> Splits {
        let groups = pages.div_ceil(GROUP_PAGES);
        let edges = (0..=groups).map(|_| AtomicU8::new(BEFORE | AFTER)).collect();
        Splits { edges, pages, made: AtomicI64::new(0), mappings: Arc::clone(mappings) }
    }

    /// Notes that the open pages of a group, one bit each, are `after` and were `before`. The
    /// caller has the group's lock, or is the only one that knows the group.
    pub(crate) fn changed(&self, group: usize, before: u64, after: u64) {
        let (len, last) = (self.len_of(group), self.edges.len() - 1);
        let mut more = changes(after, len) - changes(before, len);
        let flipped = before ^ after;
        if flipped & 1 != 0 && group > 0 {
            more += self.flip(group, AFTER);
        }
        if flipped >> (len - 1) & 1 != 0 && group + 1 < last {
            more += self.flip(group + 1, BEFORE);
        }
        // relaxed: a sum that publishes nothing else.
        self.made.fetch_add(more, Ordering::Relaxed);
        self.mappings.add(more);
    }

    /// How many mappings more the region has than with all of its pages open.
    pub(crate) fn made(&self) -> u64 {
        // relaxed: as above. While threads are in the middle of changes it may be off by a few.
        self.made.load(Ordering::Relaxed).max(0).cast_unsigned()
    }

    /// One side of an edge is open that was closed, or the other way round. Returns 1 if the edge
    /// has become a change, and -1 if it no longer is one.
    fn flip(&self, edge: usize, side: u8) -> i64 {
        // relaxed: the two sides of the byte change in one order, and nothing else depends on it.
        let before = self.edges[edge].fetch_xor(side, Ordering::Relaxed);
        if before.count_ones() == 1 { -1 } else { 1 }
    }

    fn len_of(&self, group: usize) -> usize {
        (self.pages - group * GROUP_PAGES).min(GROUP_PAGES)
    }

    /// Bytes of heap.
    pub(crate) fn heap_bytes(&self) -> u64 {
        self.edges.len() as u64
    }
}

impl Drop for Splits {
    fn drop(&mut self) {
        self.mappings.add(-*self.made.get_mut());
    }
}

/// Changes between neighbours within the first `len` bits.
fn changes(word: u64, len: usize) -> i64 {
    i64::from(((word ^ word >> 1) & bits(0, len - 1)).count_ones())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Any groups change in any order. The naive twin looks at each page.
        #[test]
        fn the_sum_is_the_number_of_changes(
            pages in 1usize..400,
            changes in proptest::collection::vec((0usize..7, any::<u64>(), any::<u64>()), 1..60),
        ) {
            let mappings = Mappings::at_most(Some(1000), 1);
            let splits = Splits::new(pages, &mappings);
            let groups = pages.div_ceil(GROUP_PAGES);
            let mut open = vec![true; pages];
            for (group, one, other) in changes {
                let group = group % groups;
                let mine = group * GROUP_PAGES..((group + 1) * GROUP_PAGES).min(pages);
                let mask = bits(0, mine.len());
                let word = mine.clone().rev().fold(0, |w, page| w << 1 | u64::from(open[page]));
                let after = one & other & mask;
                splits.changed(group, word, after);
                mine.enumerate().for_each(|(at, page)| open[page] = after >> at & 1 == 1);
                let naive = open.windows(2).filter(|two| two[0] != two[1]).count() as u64;
                prop_assert_eq!(splits.made(), naive);
            }
            drop(splits);
            prop_assert_eq!(mappings.made(), 0);
        }
    }

    /// Both sides of an edge flip at once, many times. The sum is right in the end.
    #[test]
    fn neighbours_that_change_at_once_are_counted_once() {
        let mappings = Mappings::at_most(Some(1000), 1);
        let splits = Splits::new(2 * GROUP_PAGES, &mappings);
        std::thread::scope(|scope| {
            for group in 0..2 {
                let splits = &splits;
                scope.spawn(move || {
                    for _ in 0..20_000 {
                        splits.changed(group, !0, 0);
                        splits.changed(group, 0, !0);
                    }
                    splits.changed(group, !0, if group == 0 { 0 } else { !0 });
                });
            }
        });
        assert_eq!((splits.made(), mappings.made()), (1, 1));
    }
}
