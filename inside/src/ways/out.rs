//! The way out: groups go to trays, trays to the store.
//!
//! ```text
//!   queue of groups --> pages in memory? --MOVE--> tray --> queue of trays
//!                         `-- held by the system: the group goes to the shelf
//!   oldest tray --> page by page: still wanted? --> store --> the word changes
//!                                   `-- no room: back to the program
//! ```
//!
//! Invariants: E1 to E4 of `engine`. Only the pager's thread is here.
//!
//! Lock: the engine's state, for one group's move, and for each page's word.

use super::engine::{Engine, State};
use super::trays::empty;
use crate::board::Slot;
use crate::floor::call;
use crate::kernel::{lost, move_pages};
use crate::places::{GROUP, GROUP_PAGES, PAGE, Place, Word, is_watched, page_in_group};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Instant;

impl State {
    /// Takes the oldest tray that is full, for the pager alone. What was touched in it is learned
    /// if it is of a watched group.
    fn oldest(&mut self) -> Option<u32> {
        let number = self.staged.pop_front()?;
        self.compressing = Some(number);
        let tray = self.trays.tray(number)?;
        if is_watched(tray.group) {
            self.staged_density.learn(tray.filled() & !(tray.beside & !tray.touched), tray.touched);
        }
        Some(number)
    }
}

/// What became of a try to stage a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Staged {
    /// So many pages are in a tray.
    Pages(usize),
    /// The group had nothing that could move.
    Nothing,
    /// All trays are full.
    NoTray,
    /// No group is left.
    NoGroup,
}

/// What became of pages that were to go to a tray.
#[derive(Debug, Default, Clone, Copy)]
struct Run {
    moved: usize,
    /// Pages that stay because the system holds them.
    held: usize,
    /// The tray has a page already at a place that should be free.
    met: bool,
}

/// What became of a page in a tray.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    Yes,
    /// It was touched or given up meanwhile.
    Gone,
    NoRoom,
}

impl Engine {
    /// Moves the coldest group to a tray.
    pub(crate) fn stage(&self, slot: &Slot) -> Staged {
        let mut state = self.patient();
        if state.news.is_unsettled() {
            return Staged::Nothing;
        }
        let Some(&group) = state.queue.front() else { return Staged::NoGroup };
        let Some(tray) = state.trays.take(group) else { return Staged::NoTray };
        state.queue.pop_front();
        state.book.unqueue(group);
        let mut sum = Run::default();
        if state.leaving.touches(&(group..group + GROUP), |range| self.is_missing(range)) {
            state.shelf.push(group);
            state.trays.give_back(tray);
            return Staged::Nothing;
        }
        let shared = self.shared_pages(group);
        sum.held += shared.count_ones() as usize;
        for part in state.book.registered_parts(group) {
            self.resident.present(&part, |run| {
                let run = self.stage_run(&mut state, &run, tray, shared);
                sum = Run {
                    moved: sum.moved + run.moved,
                    held: sum.held + run.held,
                    met: sum.met || run.met,
                };
                !sum.met
            });
        }
        // relaxed: a figure.
        slot.busy.fetch_add(sum.held as u64, Ordering::Relaxed);
        if sum.held > 0 || sum.met {
            state.shelf.push(group);
        }
        if sum.moved == 0 && sum.met {
            drop(state);
            self.empty_tray(tray);
            return Staged::Nothing;
        }
        if sum.moved == 0 {
            state.trays.give_back(tray);
            return Staged::Nothing;
        }
        state.staged.push_back(tray);
        let State { trials, stored_density, fresh_trials, fresh_density, .. } = &mut *state;
        trials.end(group, stored_density);
        fresh_trials.end(group, fresh_density);
        Staged::Pages(sum.moved)
    }

    /// The pages of a group that a child or the parent has too. The system does not move them, and
    /// it is not asked again and again.
    fn shared_pages(&self, group: usize) -> u64 {
        // relaxed: a fork that comes now is asked for by page.
        if self.forks.load(Ordering::Relaxed) == 0 { 0 } else { self.resident.shared_pages(group) }
    }

    /// Forgets ranges that the kernel has taken away.
    pub(crate) fn prune(&self) {
        self.patient().leaving.prune(|range| self.is_missing(range));
    }

    /// Whether no page of a range is in memory.
    fn is_missing(&self, range: &Range<usize>) -> bool {
        let mut missing = true;
        self.resident.present(range, |_| {
            missing = false;
            false
        });
        missing
    }

    /// Moves a run of pages that are in memory to their places in a tray, except those that are
    /// shared.
    fn stage_run(&self, state: &mut State, run: &Range<usize>, tray: u32, shared: u64) -> Run {
        let (mut address, mut sum) = (run.start, Run::default());
        let mut touched = 0;
        while address < run.end {
            let place = page_in_group(address);
            let to = state.trays.range(tray).start + place * PAGE;
            let alone = (shared >> place).trailing_zeros() as usize;
            let pages = ((run.end - address) / PAGE).min(alone);
            if pages == 0 {
                address += PAGE;
                continue;
            }
            // SAFETY: by E2 the range is registered: it is a part of what the book says, and the
            // kernel answers EAGAIN while an event is unread. The tray is ours, and its place
            // empty.
            let progress = unsafe { move_pages(self.mover(), to, address, pages) };
            for page in 0..progress.pages {
                let home = address + page * PAGE;
                state.book.set(home, Word::tray(tray, place + page));
                if let Some(tray) = state.trays.tray(tray) {
                    tray.homes[place + page] = home;
                }
            }
            sum.moved += progress.pages;
            address += progress.pages * PAGE;
            match progress.errno {
                0 => {}
                // An event waits, or the system stopped after some pages.
                libc::EAGAIN if progress.pages > 0 => {}
                libc::EAGAIN => return Run { held: sum.held + 1, ..sum },
                // A program that locked its memory has brought zeros into our trays.
                libc::EEXIST => return Run { met: true, ..sum },
                libc::EBUSY if touched != address && self.unshare(address) => touched = address,
                // The page is shared with a child, or in use by the system (EBUSY), or locked or
                // closed for writing (EINVAL), or has just gone.
                errno => {
                    sum.held += usize::from([libc::EBUSY, libc::EINVAL].contains(&errno));
                    address += PAGE;
                }
            }
        }
        sum
    }

    /// Makes a page movable that was shared with a child which has ended: the system moves only
    /// what was written since. False if others share it still, or if the page has just gone. The
    /// kernel does not wait for a missing page here, so the state may be held.
    fn unshare(&self, address: usize) -> bool {
        // futex(2): the word at the second address is changed by an OR with 0, and nobody is woken.
        // The kernel does this for a page of the program as one step, and refuses if it is gone.
        const OR_NOTHING: usize = 2 << 28;
        let operation = (libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG) as usize;
        self.resident.is_exclusive(address) && {
            self.uffd.unguard(&(address..address + PAGE));
            let arguments = [address, operation, 0, 0, address, OR_NOTHING];
            // SAFETY: no bit of the program's memory changes.
            unsafe { call::call(libc::SYS_futex, arguments) >= 0 }
        }
    }

    /// Sends the oldest tray to the store. Returns how many pages left memory by that; `None` if
    /// there is no tray.
    pub(crate) fn compress_oldest(&self, slot: &Slot) -> Option<usize> {
        let tray = self.patient().oldest()?;
        let began = Instant::now();
        let mut kept = 0;
        let mut full = false;
        for place in 0..GROUP_PAGES {
            match self.compress(tray, place) {
                Kept::Yes => kept += 1,
                Kept::Gone => {}
                Kept::NoRoom => full = true,
            }
        }
        // relaxed: a figure.
        slot.pages_out.fetch_add(kept as u64, Ordering::Relaxed);
        {
            let mut state = self.patient();
            state.compressing = None;
            if kept > 0 {
                state.worth.out_took(began.elapsed() / kept as u32);
            }
        }
        self.empty_tray(tray);
        if full { None } else { Some(kept) }
    }

    /// Makes a tray free that is in no queue, and of which no word names a place. One that cannot
    /// be emptied is not used any more.
    fn empty_tray(&self, tray: u32) {
        let range = self.patient().trays.range(tray);
        // SAFETY: by E3 no word names a place of the tray, and it is in no queue.
        match unsafe { empty(&range, &self.uffd) } {
            Ok(()) => self.patient().trays.give_back(tray),
            Err(_) => self.patient().trays.retire(tray),
        }
    }

    fn compress(&self, tray: u32, place: usize) -> Kept {
        let word = Word::tray(tray, place);
        let (home, page) = {
            let mut state = self.patient();
            let Some(home) = state.home(tray, place, word) else { return Kept::Gone };
            // SAFETY: the page is there, and only this thread empties trays.
            (home, unsafe { state.trays.pages(tray, place, 1) })
        };
        let kept = self.store.keep(home, page);
        if let Some(slot) = kept {
            let mut state = self.patient();
            if let Some(home) = state.home(tray, place, word) {
                state.book.set(home, Word::slot(slot));
                return Kept::Yes;
            }
            drop(state);
            self.store.came(home, slot);
            return Kept::Gone;
        }
        self.put_back(tray, place, page);
        Kept::NoRoom
    }

    /// A page that the store has no room for is memory of the program again.
    fn put_back(&self, tray: u32, place: usize, page: &[u8]) {
        loop {
            let mut state = self.patient();
            let Some(home) = state.home(tray, place, Word::tray(tray, place)) else { return };
            let is_behind = state.news.is_unsettled();
            if is_behind {
                drop(state);
                std::thread::yield_now();
                continue;
            }
            // SAFETY: the bytes are the page's own, by its word.
            let progress = unsafe { self.uffd.copy(home, page) };
            if progress.pages == 0 && [libc::EAGAIN, libc::ENOMEM].contains(&progress.errno) {
                // An event waits; its reader wants the state.
                drop(state);
                std::thread::yield_now();
                continue;
            }
            state.book.set(home, Word::PROGRAM);
            state.list(home & !(GROUP - 1));
            return;
        }
    }

    /// Sends everything in trays that is still wanted to the store, so that books can be copied.
    pub(crate) fn settle(&self, state: &mut State) {
        let staged: Vec<(usize, Word)> = state
            .book
            .out(&(0..usize::MAX))
            .filter(|(_, word)| matches!(word.place(), Place::Tray(..)))
            .collect();
        for (home, word) in staged {
            let Place::Tray(tray, place) = word.place() else { continue };
            // SAFETY: the word says that the page is there; trays are emptied under no word (E3).
            let page = unsafe { state.trays.pages(tray, place, 1) };
            match self.store.keep(home, page) {
                Some(slot) => state.book.set(home, Word::slot(slot)),
                None => lost("a forked child's memory has no room"),
            }
        }
    }
}
