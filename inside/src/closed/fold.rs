//! What a process folds with: its store, and the groups by age.
//!
//! ```text
//!   queue --rest--> resting --> store
//!     ^                |
//!     '---- touched ---'
//! ```
//!
//! Invariant: a group is in `queue`, in `resting`, or in neither. Lock: that of the state.

use crate::board::Slot;
use crate::places::{GROUP, PAGE, aligned, bits, page_in_group};
use crate::ways::Store;
use std::collections::VecDeque;

/// Pages that come together: few, more from a quarter of the mappings on, a group from half on.
const NEIGHBOURS: [usize; 3] = [4, 16, 64];
/// Walks that are known at the same time.
const WALKS: usize = 8;

/// What a process folds with.
pub(crate) struct Fold {
    pub(crate) store: Store,
    pub(super) slot: &'static Slot,
    /// Groups that have open pages, the coldest first.
    pub(super) queue: VecDeque<usize>,
    /// Groups that are closed and in place, the coldest first.
    pub(super) resting: VecDeque<usize>,
    pub(super) resting_max: usize,
    /// Groups that are pinned. They are tried again after a while.
    pub(super) shelf: Vec<usize>,
    pub(super) buffer: Box<[u8]>,
    /// Mappings that a process may have.
    maps_max: usize,
    /// Where the pages of late faults ended, and how many they were.
    walks: [(usize, usize); WALKS],
    next_walk: usize,
    /// Pages that may still come before the limit is reached.
    pub(crate) room: i64,
    /// Nothing more can leave, so faults are served above the limit too.
    pub(crate) stuck: bool,
}

impl Fold {
    /// Resting groups are at most `resting_max`.
    pub(crate) fn new(store: Store, slot: &'static Slot, resting_max: usize) -> Fold {
        let text = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
        Fold {
            store,
            slot,
            queue: VecDeque::new(),
            resting: VecDeque::new(),
            resting_max,
            shelf: Vec::new(),
            buffer: vec![0; GROUP].into_boxed_slice(),
            maps_max: text.trim().parse().unwrap_or(65530),
            walks: [(0, 0); WALKS],
            next_walk: 0,
            room: 0,
            stuck: false,
        }
    }

    /// A forked child counts in a slot of its own.
    pub(crate) fn move_to(&mut self, slot: &'static Slot) {
        self.slot = slot;
    }

    fn neighbours(&self, edges: usize) -> usize {
        match edges {
            few if few < self.maps_max / 4 => NEIGHBOURS[0],
            more if more < self.maps_max / 2 => NEIGHBOURS[1],
            _ => NEIGHBOURS[2],
        }
    }

    /// The pages that come with a page of the store.
    pub(super) fn window(&mut self, address: usize, edges: usize) -> u64 {
        let least = self.neighbours(edges);
        let known = self.walks.iter().position(|walk| walk.0 == address);
        let window = known.map_or(least, |walk| (self.walks[walk].1 * 2).min(64));
        let page = page_in_group(address);
        let ahead = bits(page, window.min(64 - page));
        let wanted = if known.is_some() { ahead } else { aligned(page, least) };
        let end = (64 - wanted.leading_zeros()) as usize;
        let walk = known.unwrap_or(self.next_walk);
        self.walks[walk] = (address - page * PAGE + end * PAGE, window);
        self.next_walk = if known.is_some() { self.next_walk } else { (walk + 1) % WALKS };
        wanted
    }
}
