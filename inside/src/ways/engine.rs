//! The engine of one process: its book, its trays, its store, and the two ways of a page.
//!
//! ```text
//!   program     | page |  <----------- COPY ---------+--------- COPY
//!                  |                                 |           |
//!                 MOVE, a group at a time            |         decode
//!                  v                                 |           |
//!   tray        | page | --- compress ---> slot of the store ----'
//! ```
//!
//! Invariants
//! - E1: a page's word changes under the lock under which the page moved.
//! - E2: a page leaves only from memory that the book says is registered (B2), so that its next
//!   touch is a fault.
//! - E3: a tray is emptied only when no word names a place of it.
//! - E4: no page leaves whose content the kernel is about to take away.
//!
//! Lock: that of the state. The store's locks are taken under it. No request is made under it that
//! raises an event of our own, because the thread that reads events takes it.

use super::leaving::Leaving;
use super::store::Store;
use super::trays::Trays;
use super::trials::Trials;
use super::worth::Worth;
use crate::floor::call;
use crate::kernel::{Resident, Uffd};
use crate::places::{Book, Density, GROUP, GROUP_PAGES, News, PAGE, Place, Step, Word};
use host::{Rank, RankedMutex, RankedMutexGuard};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Groups that threads are let write to at once, at most.
const FREED_MAX: i64 = 8;
/// Pages of room for each of them. All of their pages may be copied before the pager looks again.
const ROOM_FOR_ONE: i64 = 4 * GROUP_PAGES as i64;

/// How many groups threads are let write to at once if there is room for so many pages: a power of
/// two.
fn freed_at_once(room: i64) -> usize {
    1 << (room / ROOM_FOR_ONE).clamp(1, FREED_MAX).ilog2()
}

/// What is shared by the thread that serves faults and the one that pages out.
pub(crate) struct Engine {
    pub(crate) uffd: Uffd,
    pub(crate) store: Store,
    pub(crate) resident: Resident,
    pub(super) state: RankedMutex<State>,
    /// Pages that may still come before the limit is reached; negative above it.
    pub(crate) room: AtomicI64,
    /// The server waits for the state: the pager lets it go first.
    pub(super) awaited: AtomicU32,
    /// Changed to wake the pager.
    pub(crate) bell: AtomicU32,
    /// CPUs that are likely to have nothing to do, except that the pager may use one.
    pub(crate) spare_cpus: AtomicUsize,
    /// Pages put in place by the server, so that the pager knows what else has grown.
    pub(crate) put: AtomicU64,
    /// Pages that threads were let copy, because forks share them.
    pub(crate) copied: AtomicU64,
    /// Forks after which other processes had pages of this one, that by which it began among them.
    pub(crate) forks: AtomicU32,
}

/// What the lock guards.
pub(crate) struct State {
    pub(crate) book: Book,
    pub(crate) trays: Trays,
    /// What the kernel is about to take away.
    pub(crate) leaving: Leaving,
    /// What the kernel has told and the book has not taken yet. While it is unsettled, no page
    /// leaves and none comes.
    pub(crate) news: News,
    /// Groups that have pages in memory, the coldest first.
    pub(super) queue: VecDeque<usize>,
    /// Trays that are full, the oldest first.
    pub(super) staged: VecDeque<u32>,
    /// Groups with pages that the system holds. They are tried again after a while.
    pub(super) shelf: Vec<usize>,
    /// The tray that the pager reads.
    pub(super) compressing: Option<u32>,
    /// How densely groups are touched that are new, in trays, and in the store.
    pub(super) fresh_density: Density,
    pub(super) staged_density: Density,
    pub(super) stored_density: Density,
    pub(super) fresh_trials: Trials,
    pub(super) trials: Trials,
    pub(super) worth: Worth,
}

impl Engine {
    pub(crate) fn new(uffd: Uffd, store: Store, resident: Resident, trays: Trays) -> Engine {
        Engine {
            uffd,
            store,
            resident,
            state: RankedMutex::new(Rank::Group, State::new(trays)),
            room: AtomicI64::new(0),
            awaited: AtomicU32::new(0),
            bell: AtomicU32::new(0),
            spare_cpus: AtomicUsize::new(0),
            put: AtomicU64::new(0),
            copied: AtomicU64::new(0),
            forks: AtomicU32::new(0),
        }
    }

    /// The state, for the thread that serves faults. The pager lets it go first.
    pub(crate) fn urgent(&self) -> RankedMutexGuard<'_, State> {
        // relaxed: it is advice.
        self.awaited.fetch_add(1, Ordering::Relaxed);
        let state = self.state.lock();
        self.awaited.fetch_sub(1, Ordering::Relaxed);
        state
    }

    /// The state, for the pager.
    pub(crate) fn patient(&self) -> RankedMutexGuard<'_, State> {
        // relaxed: it is advice.
        while self.awaited.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
        self.state.lock()
    }

    /// Registers mappings, and queues those of their groups that have pages in memory. `mappings`
    /// lists what there is, now and again.
    ///
    /// A list is old when it is used: a range may have become another mapping with a hole in it.
    /// The system registers what it finds, and memory that comes to the hole later is not
    /// registered. So a range counts as registered only if it still is a part of one mapping after
    /// that, and if no event is unread then. Otherwise it waits for the next time.
    pub(crate) fn adopt(&self, mappings: impl Fn() -> Vec<Range<usize>>) {
        let listed = mappings();
        let mut new = Vec::new();
        {
            // Under the lock, so that an event about a range is read before or after all of it.
            let mut state = self.patient();
            if state.news.waits() {
                // It may be about these mappings.
                return;
            }
            for range in listed {
                // An error means that the program has a userfaultfd of its own there, or that the
                // mapping is gone.
                if !state.book.is_registered(&range) && self.uffd.register(&range).is_ok() {
                    new.push(range);
                }
            }
            if new.is_empty() {
                return;
            }
            let now = mappings();
            let whole = |range: &Range<usize>| {
                now.iter().any(|one| one.start <= range.start && range.end <= one.end)
            };
            new.retain(whole);
            if !self.uffd.is_quiet() {
                return;
            }
            new.iter().for_each(|range| state.book.registered(range));
        }
        new.iter().for_each(|range| self.queue_present(range));
    }

    fn queue_present(&self, range: &Range<usize>) {
        self.resident.present(range, |run| {
            let mut state = self.patient();
            let first = run.start & !(GROUP - 1);
            (first..run.end).step_by(GROUP).for_each(|group| state.list(group));
            true
        });
    }

    /// What moves pages between the program and trays.
    pub(super) fn mover(&self) -> (&Uffd, &Resident) {
        (&self.uffd, &self.resident)
    }

    /// Guards all memory that is registered and there. What forks share is copied by writes to it,
    /// and each group of copies waits for room then.
    pub(crate) fn guard(&self) {
        let ranges: Vec<Range<usize>> = self.patient().book.all_registered().collect();
        // What changes meanwhile is not guarded, which costs some memory and nothing else.
        ranges.iter().for_each(|range| drop(self.uffd.guard(range)));
    }

    /// Lets threads write to the group of a guarded page, and to others around it if there is room
    /// for more. Returns how many of their pages may be copied by that.
    pub(crate) fn unguard(&self, state: &mut State, address: usize, room: i64) -> u32 {
        let len = freed_at_once(room) * GROUP;
        let start = address & !(len - 1);
        let parts = state.book.registered_parts_of(&(start..start + len));
        let is_met = |group: usize| {
            let meets = |part: &Range<usize>| part.start < group + GROUP && group < part.end;
            group == address & !(GROUP - 1) || parts.iter().any(meets)
        };
        let groups: Vec<usize> =
            (start..start + len).step_by(GROUP).filter(|&group| is_met(group)).collect();
        let copies = groups.iter().map(|&group| self.resident.shared_pages(group).count_ones());
        let copies = copies.sum();
        if !parts.iter().any(|part| part.contains(&address)) {
            self.uffd.unguard(&(address..address + PAGE));
        }
        parts.iter().for_each(|part| self.uffd.unguard(part));
        // What is copied may leave.
        groups.into_iter().for_each(|group| state.list(group));
        copies
    }

    /// Groups that could not leave are tried again.
    pub(crate) fn clear_shelf(&self) {
        let mut state = self.patient();
        let groups = std::mem::take(&mut state.shelf);
        groups.into_iter().for_each(|group| state.list(group));
    }

    /// The book takes what the kernel told, as far as it can.
    pub(crate) fn take_news(&self, state: &mut State) {
        while let Some(step) = state.news.next(&state.book) {
            self.take(state, step);
        }
    }

    /// The book takes the rest, if no news is on its way.
    pub(crate) fn take_last_news(&self, state: &mut State) {
        if !self.uffd.is_quiet() {
            return;
        }
        // This is read before it is asked whether all news was: what changes meanwhile is news.
        let served = if state.news.doubts() { self.resident.served() } else { Vec::new() };
        if self.uffd.is_quiet() {
            let steps = state.news.all_was_told(&served);
            steps.into_iter().for_each(|step| self.take(state, step));
        }
    }

    fn take(&self, state: &mut State, step: Step) {
        match step {
            Step::Move { from, to, len } => state.moved(from, to, len),
            Step::Forget { range, unmapped } => self.forget(&mut state.book, &range, unmapped),
        }
    }

    /// The content of a range is gone.
    pub(crate) fn forget(&self, book: &mut Book, range: &Range<usize>, unmapped: bool) {
        for word in book.forget(range) {
            if let Place::Slot(slot) = word.place() {
                self.store.give_back(slot);
            }
        }
        if unmapped {
            book.unregistered(range);
        }
    }

    /// Wakes the pager.
    pub(crate) fn ring(&self) {
        // relaxed: the value only has to change.
        self.bell.fetch_add(1, Ordering::Relaxed);
        call::wake(&self.bell);
    }
}

impl State {
    fn new(trays: Trays) -> State {
        State {
            book: Book::default(),
            trays,
            leaving: Leaving::default(),
            news: News::default(),
            queue: VecDeque::new(),
            staged: VecDeque::new(),
            shelf: Vec::new(),
            compressing: None,
            fresh_density: Density::default(),
            staged_density: Density::default(),
            stored_density: Density::default(),
            fresh_trials: Trials::default(),
            trials: Trials::default(),
            worth: Worth::default(),
        }
    }

    /// As if a watched group had taught this when it was new, in trays and in the store.
    #[cfg(test)]
    pub(crate) fn learn(&mut self, out: u64, touched: u64) {
        self.fresh_density.learn(out, touched);
        self.staged_density.learn(out, touched);
        self.stored_density.learn(out, touched);
    }

    /// Queues a group that has pages in memory.
    pub(crate) fn list(&mut self, group: usize) {
        if self.book.queue(group) {
            self.queue.push_back(group);
        }
    }

    /// Where the page at a place of a tray belongs, if it is still wanted.
    pub(super) fn home(&mut self, tray: u32, place: usize, word: Word) -> Option<usize> {
        let home = self.trays.tray(tray)?.homes[place];
        (home != 0 && self.book.word(home) == word).then_some(home)
    }

    /// Memory moved within the process.
    fn moved(&mut self, from: usize, to: usize, len: usize) {
        self.book.moved(from, to, len);
        let State { book, trays, .. } = self;
        trays.moved(book.out(&(to..to + len)));
        let groups: Vec<usize> = (to & !(GROUP - 1)..to + len).step_by(GROUP).collect();
        groups.into_iter().for_each(|group| self.list(group));
    }
}
