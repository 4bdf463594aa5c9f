//! The rules of the two orders: where a page goes, and what is remembered of it.
//!
//! ```text
//!   S3-FIFO   small, used twice or more   -> main, unused
//!             small                       -> victim, then a ghost
//!             main, used n > 0 times      -> main, used n - 1 times
//!             main                        -> victim
//!   kernel    referenced                  -> main, not referenced
//!             not referenced              -> victim
//!   both      stale                       -> dropped
//! ```
//!
//! The small ring gives up pages while it has a tenth of the group's pages or more. The evictions
//! from the small ring are counted. A ghost is known while those since its own are at most nine
//! tenths of the pages that there are. These are the sizes of S3-FIFO.
//!
//! Nothing here changes a word or a ring. Lock: the order's, held by the caller.

use zsmalloc::CellNumber;

use super::orders::{Orders, Rings};
use super::word::{STAMPS, State, Which, Word};
use crate::terms::{EvictionOrder, GroupId};

/// S3-FIFO's small ring is one part in this many of the cache.
const SMALL_PARTS: u64 = 10;
/// S3-FIFO: a page that was used more often than this leaves the small ring for the main one.
const USED_ONCE: u32 = 1;

impl Orders {
    /// Where a page without a place goes, and how often it counts as used there.
    pub(super) fn place_of_new(&self, word: Word, group: GroupId) -> (Which, u32) {
        if self.kind == EvictionOrder::Kernel {
            return (Which::Main, 1);
        }
        match word.stamp() {
            Some(stamp) if self.is_recent(stamp, group) => (Which::Main, word.frequency()),
            _ => (Which::Small, 0),
        }
    }

    /// The ring that has to give up a page.
    pub(super) fn turn(&self, rings: &Rings, group: GroupId) -> Which {
        let [small, main] = rings.of_group[group.index()].map(|ring| ring.tokens);
        let pages = self.counts.pages(group);
        let full = pages[0] * SMALL_PARTS >= pages[0] + pages[1];
        match (small, main) {
            (0, _) => Which::Main,
            (_, 0) => Which::Small,
            _ if full => Which::Small,
            _ => Which::Main,
        }
    }

    /// Where a page goes instead of leaving, and how often it counts as used there.
    pub(super) fn second_chance(&self, word: Word) -> Option<(Which, u32)> {
        let used = word.frequency();
        match (self.kind, word.which()) {
            (EvictionOrder::S3Fifo, Which::Small) => (used > USED_ONCE).then_some((Which::Main, 0)),
            (EvictionOrder::S3Fifo, Which::Main) => Some((Which::Main, used.checked_sub(1)?)),
            (EvictionOrder::Kernel, _) => (used > 0).then_some((Which::Main, 0)),
        }
    }

    /// The new word of a cell whose page is not in memory when its token is dropped. If the page
    /// had not been loaded, it would have stayed. So it is remembered like a page that left just
    /// now. In the main ring it would have been used once less, and that is remembered too.
    pub(super) fn dropped(&self, cell: CellNumber, word: Word, group: GroupId) -> Word {
        let known = word.generation() == self.leaf(cell).generation;
        let used = match word.which() {
            Which::Small => 0,
            Which::Main => word.frequency().saturating_sub(1),
        };
        match word.state() {
            State::Loaded if known => Word::evicted(self.counts.evictions(group), used),
            _ => Word::default(),
        }
    }

    /// Whether a page that left after `stamp` evictions is still among the ghosts.
    pub(super) fn is_recent(&self, stamp: u32, group: GroupId) -> bool {
        let since = self.counts.evictions(group).wrapping_sub(stamp) % STAMPS;
        let pages: u64 = self.counts.pages(group).iter().sum();
        u64::from(since) <= pages - pages / SMALL_PARTS
    }
}
