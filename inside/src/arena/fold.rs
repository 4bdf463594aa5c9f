//! What a process folds with: its store, and the groups by age.
//!
//! ```text
//!   queue --rest--> resting --> store
//!     ^                |
//!     '---- touched ---'
//! ```
//!
//! A group that is pinned or shared waits on the shelf until it is queued again. The groups that
//! were touched last do not rest, however much has to leave. An instruction may touch several
//! pages, and must find all of them open at once.
//!
//! Invariant: a group is in `queue`, in `resting`, or in neither. `resting_pages` is the sum of the
//! pages of `resting`. Lock: that of the state.

use super::addresses;
use crate::board::Slot;
use crate::places::{Density, GROUP, PAGE, aligned, bits, is_watched, page_in_group};
use crate::ways::{Store, Trials, Worth};
use core::sync::atomic::{AtomicU32, Ordering};
use std::collections::{BTreeSet, VecDeque};

/// Pages that open together at least, because mappings become scarce, and because each takes memory
/// of the kernel that a container's limit counts: from so many eighths of the mappings
/// that there may be on, and the pages.
const SCARCE: [(usize, usize); 4] = [(4, 64), (3, 16), (2, 4), (1, 2)];
/// The time of one store in this many is taken, because taking it costs a system call.
const TIMED_ONE_IN: u32 = 16;
/// A page that opens beside another closes again later: in per cent of a fault.
const RESTING_PER_CENT: u32 = 15;
/// Groups touched last that do not rest, for each thread. An instruction touches at most four,
/// because no operand lies on more than two pages, and there are two operands; the others are for a
/// handler of a signal.
const TOUCHED_BY_ONE: usize = 6;
/// The same for all threads of a process.
const TOUCHED: usize = 16;
/// Pages that come after a thread looked in vain for what may leave, until it looks again.
const VAIN_PAGES: i64 = 16;
/// Walks that are known at the same time.
const WALKS: usize = 8;

/// A group that is closed and in place, and the pages that closed when it began to rest.
struct Resting {
    group: usize,
    pages: usize,
    /// Of the group, which pages are in memory, as bits. Of a page that was given up since then it
    /// is not true any more: it reads as zeros, and may be stored as such.
    there: Option<u64>,
}

/// 1 if nothing could leave when a thread looked last: the pager goes first then.
static STUCK: AtomicU32 = AtomicU32::new(0);

/// Whether threads bring pages in without making room.
pub(crate) fn is_stuck() -> bool {
    // relaxed: it is advice.
    STUCK.load(Ordering::Relaxed) != 0
}

/// What a process folds with.
pub(crate) struct Fold {
    pub(crate) store: Store,
    pub(crate) slot: &'static Slot,
    /// Groups that have open pages, the coldest first.
    pub(crate) queue: VecDeque<usize>,
    /// Groups that were touched last, in no order.
    touched: [usize; TOUCHED],
    /// How many of them count.
    touched_max: usize,
    next_touched: usize,
    /// Groups that are closed and in place, the coldest first.
    resting: VecDeque<Resting>,
    /// Pages that closed when these groups began to rest, and the most that there may be.
    resting_pages: usize,
    resting_max: usize,
    /// Groups that are pinned, or shared with other processes. They are tried again after a while.
    pub(crate) shelf: BTreeSet<usize>,
    /// The one that is tried next.
    next_shelved: usize,
    pub(crate) buffer: Box<[u8]>,
    /// How densely pages are touched that came from the store, and that rested.
    stored_density: Density,
    resting_density: Density,
    stored_trials: Trials,
    resting_trials: Trials,
    pub(crate) worth: Worth,
    timed: u32,
    /// Mappings that a process may have.
    maps_max: usize,
    /// Where the pages of late faults ended, and how many they were.
    walks: [(usize, usize); WALKS],
    next_walk: usize,
    /// Pages that may still come before the limit is reached.
    pub(crate) room: i64,
    /// Nothing more can leave, so faults are served above the limit too.
    stuck: bool,
    /// Threads looked for what may leave, and found nothing. They look again when there is less
    /// room than this.
    vain_until: i64,
    /// Bytes that the process may have.
    pub(crate) quota: u64,
    /// Much is shared with other processes, so what opens is likely to be copied.
    pub(crate) shares: bool,
    /// Pages that threads were let copy.
    pub(crate) copied: u64,
    /// There is a pager that writes to the disk. A child by `clone` has none.
    pub(crate) is_written: bool,
}

impl Fold {
    pub(crate) fn new(store: Store, slot: &'static Slot) -> Fold {
        let text = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
        Fold {
            store,
            slot,
            queue: VecDeque::new(),
            touched: [0; TOUCHED],
            touched_max: TOUCHED,
            next_touched: 0,
            resting: VecDeque::new(),
            resting_pages: 0,
            resting_max: 0,
            shelf: BTreeSet::new(),
            next_shelved: 0,
            buffer: vec![0; GROUP].into_boxed_slice(),
            stored_density: Density::default(),
            resting_density: Density::default(),
            stored_trials: Trials::default(),
            resting_trials: Trials::default(),
            worth: Worth::default(),
            timed: 0,
            maps_max: text.trim().parse().unwrap_or(65530),
            walks: [(0, 0); WALKS],
            next_walk: 0,
            room: 0,
            stuck: false,
            vain_until: i64::MAX,
            quota: u64::MAX,
            shares: false,
            copied: 0,
            is_written: false,
        }
    }

    /// So many pages may rest, and those of one group more.
    pub(crate) fn set_resting_max(&mut self, pages: usize) {
        self.resting_max = pages;
    }

    /// The process has so many threads besides ours; `None` if that is not known.
    pub(crate) fn set_threads(&mut self, threads: Option<usize>) {
        let max = threads.map_or(TOUCHED, |threads| (threads * TOUCHED_BY_ONE).min(TOUCHED));
        self.touched_max = max.max(TOUCHED_BY_ONE);
        self.touched[self.touched_max..].fill(0);
    }

    /// A forked child counts in a slot of its own.
    pub(crate) fn move_to(&mut self, slot: &'static Slot) {
        self.slot = slot;
    }

    /// A page of the store is touched, while `stored` pages of its group are there. The pages that
    /// are to open.
    pub(crate) fn window_stored(&mut self, address: usize, stored: u64, edges: usize) -> u64 {
        let group = address & !(GROUP - 1);
        let is_watched = is_watched(group);
        let count = match is_watched {
            true => 1,
            false => self.stored_density.pages_at_once(self.worth.stored_per_cent()),
        };
        let came = self.window(address, count, edges) & stored;
        if is_watched {
            self.stored_trials.touched(group, stored, page_in_group(address), came);
        }
        came
    }

    /// The same for a page that rests, with `resting` pages of its group.
    pub(crate) fn window_resting(&mut self, address: usize, resting: u64, edges: usize) -> u64 {
        let group = address & !(GROUP - 1);
        let is_watched = is_watched(group);
        let count = match is_watched {
            true => 1,
            false => self.resting_density.pages_at_once(RESTING_PER_CENT),
        };
        let came = self.window(address, count, edges) & resting;
        if is_watched {
            self.resting_trials.touched(group, resting, page_in_group(address), came);
        }
        came
    }

    /// Whether a thread has to make room before so many pages come.
    pub(crate) fn lacks(&self, pages: i64) -> bool {
        self.room < pages.min(self.vain_until) && !self.stuck
    }

    /// There is so much room, as far as the system counts memory.
    pub(crate) fn set_room(&mut self, pages: i64) {
        self.room = pages;
        self.vain_until = i64::MAX;
    }

    /// A thread looked at some groups in vain: it goes on, and looks again after some pages.
    pub(crate) fn looked_in_vain(&mut self) {
        self.vain_until = self.room - VAIN_PAGES;
    }

    /// Says whether nothing more can leave, so that faults are served above the limit too.
    pub(crate) fn set_stuck(&mut self, is_stuck: bool) {
        self.stuck = is_stuck;
        // relaxed: it is advice.
        STUCK.store(u32::from(is_stuck), Ordering::Relaxed);
    }

    /// Whether a group is on the shelf.
    pub(crate) fn is_shelved(&self, group: usize) -> bool {
        self.shelf.contains(&group)
    }

    /// The group of the shelf that is to be tried next: all have their turn. It stays there.
    pub(crate) fn next_shelved(&mut self) -> Option<usize> {
        let next = self.shelf.range(self.next_shelved..).next().or_else(|| self.shelf.first());
        let group = *next?;
        self.next_shelved = group + GROUP;
        Some(group)
    }

    /// Pages of other processes too are about to open, and may be copied.
    pub(crate) fn may_copy(&mut self, pages: u32) {
        self.room -= i64::from(pages);
        self.copied += u64::from(pages);
    }

    /// A page of a group was touched, and opens.
    pub(crate) fn was_touched(&mut self, group: usize) {
        if !self.touched.contains(&group) {
            self.next_touched %= self.touched_max;
            self.touched[self.next_touched] = group;
            self.next_touched = (self.next_touched + 1) % self.touched_max;
        }
    }

    /// The group that is to rest next, if there is room for its pages among those that rest.
    pub(crate) fn next_to_rest(&mut self) -> Option<usize> {
        if self.resting_pages >= self.resting_max {
            return None;
        }
        for _ in 0..self.queue.len().min(TOUCHED + 1) {
            let group = self.queue.pop_front()?;
            if !self.touched.contains(&group) {
                return Some(group);
            }
            self.queue.push_back(group);
        }
        None
    }

    /// The group that is to leave next, and those of its pages that were in memory when it was
    /// first asked for. If the process shares pages with others, these have to stay, and the few
    /// that could leave would do nothing but come and go. So none leaves then while few rest.
    pub(crate) fn next_to_leave(&mut self, shares: bool) -> Option<(usize, u64)> {
        if shares && self.resting_pages < self.resting_max / 8 {
            return None;
        }
        let it = self.resting.front_mut()?;
        Some((it.group, *it.there.get_or_insert_with(|| addresses::present(it.group))))
    }

    /// A group begins to rest, with so many pages: it is known which of them were wanted since they
    /// came.
    pub(crate) fn rests(&mut self, group: usize, pages: usize) {
        self.stored_trials.end(group, &mut self.stored_density);
        self.resting_pages += pages;
        self.resting.push_back(Resting { group, pages, there: None });
    }

    /// The first of the groups that rest has left.
    pub(crate) fn has_left(&mut self) {
        if let Some(Resting { group, pages, .. }) = self.resting.pop_front() {
            self.resting_pages -= pages;
            self.resting_trials.end(group, &mut self.resting_density);
        }
    }

    /// Whether the time of what is done next is to be taken.
    pub(crate) fn is_timed(&mut self) -> bool {
        self.timed = (self.timed + 1) % TIMED_ONE_IN;
        self.timed == 0
    }

    fn scarce(&self, edges: usize) -> usize {
        let row = SCARCE.iter().find(|(part, _)| edges >= self.maps_max / 8 * part);
        row.map_or(1, |(_, pages)| *pages)
    }

    /// The pages that open with a page: `count`, or more if a thread walks.
    fn window(&mut self, address: usize, count: usize, edges: usize) -> u64 {
        let least = count.max(self.scarce(edges));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board::Board;
    use zram::{Algorithm, Codec};

    const AT: usize = addresses::START;

    /// Room for 100 resting pages, and 800 mappings.
    fn fold(name: &str) -> Fold {
        let path = std::env::temp_dir().join(format!("board-fold-{name}-{}", std::process::id()));
        let board = Box::leak(Box::new(Board::create(&path, 1 << 30, "lz4").expect("a board")));
        std::fs::remove_file(&path).expect("it is there");
        let store = Store::new(Codec::new(Algorithm::Lz4), 1 << 26).expect("a store");
        let mut fold = Fold::new(store, board.claim(1).expect("free"));
        fold.maps_max = 800;
        fold.set_resting_max(100);
        fold
    }

    #[test]
    fn groups_rest_as_long_as_there_is_room_for_their_pages() {
        let mut fold = fold("rest");
        fold.queue.extend((0..9).map(|number| AT + number * GROUP));
        let mut rested = 0;
        while let Some(group) = fold.next_to_rest() {
            fold.rests(group, 30);
            rested += 1;
        }
        assert_eq!(rested, 4, "the fourth begins below 100 pages");
        fold.has_left();
        assert_eq!(fold.next_to_rest(), Some(AT + 4 * GROUP));
        assert_eq!(fold.resting_pages, 90);
    }

    #[test]
    fn groups_that_were_touched_last_do_not_rest() {
        let mut fold = fold("touched");
        let groups: Vec<usize> = (0..TOUCHED + 3).map(|number| AT + number * GROUP).collect();
        fold.queue.extend(&groups);
        groups[..TOUCHED].iter().for_each(|&group| fold.was_touched(group));
        fold.was_touched(groups[0]);
        let rested: Vec<usize> = std::iter::from_fn(|| fold.next_to_rest()).collect();
        assert_eq!(rested, groups[TOUCHED..]);
        assert_eq!(fold.queue.len(), TOUCHED, "they wait");
        fold.was_touched(AT - GROUP);
        assert_eq!(fold.next_to_rest(), Some(groups[0]), "the first of them is no longer one");
    }

    #[test]
    fn groups_of_the_shelf_have_their_turns() {
        let mut fold = fold("shelf");
        assert_eq!(fold.next_shelved(), None);
        fold.shelf.extend([AT, AT + 3 * GROUP, AT + GROUP, AT]);
        let turns = [0, 1, 3, 0].map(|number| Some(AT + number * GROUP));
        assert_eq!([(); 4].map(|()| fold.next_shelved()), turns);
        fold.shelf.remove(&(AT + GROUP));
        assert_eq!(fold.next_shelved(), Some(AT + 3 * GROUP));
    }

    #[test]
    fn fewer_groups_stay_for_fewer_threads() {
        for (threads, stay) in
            [(Some(0), 6), (Some(1), 6), (Some(2), 12), (Some(9), 16), (None, 16)]
        {
            let mut fold = fold("threads");
            let groups: Vec<usize> = (0..20).map(|number| AT + number * GROUP).collect();
            groups.iter().for_each(|&group| fold.was_touched(group));
            fold.set_threads(threads);
            groups.iter().for_each(|&group| fold.was_touched(group));
            fold.queue.extend(&groups);
            let rested: Vec<usize> = std::iter::from_fn(|| fold.next_to_rest()).collect();
            assert_eq!(rested, groups[..20 - stay], "{threads:?}");
        }
    }

    #[test]
    fn few_that_rest_stay_if_the_others_are_shared() {
        let mut fold = fold("share");
        fold.resting.push_back(Resting { group: AT, pages: 11, there: Some(7) });
        fold.resting_pages = 11;
        assert_eq!(fold.next_to_leave(true), None);
        assert_eq!(fold.next_to_leave(false), Some((AT, 7)));
        fold.rests(AT + GROUP, 10);
        assert_eq!(fold.next_to_leave(true), Some((AT, 7)), "an eighth of what may rest");
    }

    #[test]
    fn a_thread_that_looked_in_vain_looks_again_after_some_pages() {
        let mut fold = fold("vain");
        fold.set_room(7);
        assert!(fold.lacks(8) && !fold.lacks(7));
        fold.looked_in_vain();
        assert!(!fold.lacks(8), "it goes on");
        fold.room -= VAIN_PAGES;
        assert!(!fold.lacks(8));
        fold.room -= 1;
        assert!(fold.lacks(8));
        fold.looked_in_vain();
        fold.set_room(0);
        assert!(fold.lacks(8), "memory was counted");
        fold.set_stuck(true);
        assert!(!fold.lacks(8));
    }

    #[test]
    fn more_pages_open_together_as_mappings_become_scarce() {
        let fold = fold("scarce");
        let rows = [
            (0, 1),
            (99, 1),
            (100, 2),
            (199, 2),
            (200, 4),
            (299, 4),
            (300, 16),
            (400, 64),
            (9999, 64),
        ];
        for (edges, pages) in rows {
            assert_eq!(fold.scarce(edges), pages, "{edges} of 800");
        }
        let mut fold = fold;
        assert_eq!(fold.window(AT + 6 * PAGE, 1, 0), bits(6, 1));
        assert_eq!(fold.window(AT + 9 * PAGE, 1, 200), bits(8, 4), "aligned");
        assert_eq!(fold.window(AT + 17 * PAGE, 16, 200), bits(16, 16), "more by density");
    }

    #[test]
    fn a_walk_brings_twice_as_many_each_time() {
        let mut fold = fold("walk");
        let mut page = 0;
        for count in [1, 2, 4, 8, 16, 32] {
            assert_eq!(fold.window(AT + page * PAGE, 1, 0), bits(page, count.min(64 - page)));
            page += count;
        }
    }

    #[test]
    fn in_watched_groups_each_page_waits_for_its_own_touch_and_teaches() {
        let mut fold = fold("watch");
        let groups = || (0..3200).map(|number| AT + number * GROUP);
        let other = groups().find(|&group| !is_watched(group)).expect("most are not");
        let brought = |fold: &mut Fold| fold.window_stored(other + 40 * PAGE, u64::MAX, 0);
        assert_eq!(brought(&mut fold), bits(40, 1), "nothing is known");
        for group in groups().filter(|&group| is_watched(group)) {
            let mut stored = u64::MAX;
            // All are wanted, and none follows another.
            for page in (0..64).map(|step| step * 27 % 64) {
                let came = fold.window_stored(group + page * PAGE, stored, 0);
                assert_eq!(came, bits(page, 1));
                stored &= !came;
            }
            fold.rests(group, 1);
        }
        assert_eq!(brought(&mut fold), bits(32, 16));
        assert_eq!(fold.window_resting(other + 20 * PAGE, u64::MAX, 0), bits(16, 16), "by itself");
    }
}
