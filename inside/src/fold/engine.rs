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
//!
//! Lock: that of the state. The store's locks are taken under it. No request is made under it that
//! raises an event of our own, because the thread that reads events takes it.

use super::book::Book;
use super::resident::Resident;
use super::store::Store;
use super::terms::{GROUP, GROUP_PAGES, PAGE, Place, Word};
use super::trays::{Trays, empty};
use super::uffd::{Progress, Uffd};
use crate::board::Slot;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Pages that one fault brings in at most.
pub(crate) const WINDOW_MAX: usize = 16;

static ZEROS: [u8; WINDOW_MAX * PAGE] = [0; WINDOW_MAX * PAGE];

/// What is shared by the thread that serves faults and the one that pages out.
pub(crate) struct Engine {
    pub(crate) uffd: Uffd,
    pub(crate) store: Store,
    pub(crate) resident: Resident,
    state: Mutex<State>,
    /// Pages that may still come before the limit is reached; negative above it.
    pub(crate) room: AtomicI64,
    /// Nothing more can leave, so faults are served above the limit too.
    pub(crate) stuck: AtomicBool,
    /// The server waits for the state: the pager lets it go first.
    awaited: AtomicU32,
    /// Changed to wake the pager.
    pub(crate) bell: AtomicU32,
    /// Pages put in place by the server, so that the pager knows what else has grown.
    pub(crate) put: AtomicU64,
}

/// What the lock guards.
pub(crate) struct State {
    pub(crate) book: Book,
    pub(crate) trays: Trays,
    /// Groups that have pages in memory, the coldest first.
    queue: VecDeque<usize>,
    /// Trays that are full, the oldest first.
    staged: VecDeque<u32>,
    /// Groups with pages that the system holds. They are tried again after a while.
    shelf: Vec<usize>,
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

impl Engine {
    pub(crate) fn new(uffd: Uffd, store: Store, resident: Resident, trays: Trays) -> Engine {
        let (queue, staged) = (VecDeque::new(), VecDeque::new());
        Engine {
            uffd,
            store,
            resident,
            state: Mutex::new(State {
                book: Book::default(),
                trays,
                queue,
                staged,
                shelf: Vec::new(),
            }),
            room: AtomicI64::new(0),
            stuck: AtomicBool::new(false),
            awaited: AtomicU32::new(0),
            bell: AtomicU32::new(0),
            put: AtomicU64::new(0),
        }
    }

    /// The state, for the thread that serves faults. The pager lets it go first.
    pub(crate) fn urgent(&self) -> MutexGuard<'_, State> {
        // relaxed: it is advice.
        self.awaited.fetch_add(1, Ordering::Relaxed);
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.awaited.fetch_sub(1, Ordering::Relaxed);
        state
    }

    /// The state, for the pager.
    pub(crate) fn patient(&self) -> MutexGuard<'_, State> {
        // relaxed: it is advice.
        while self.awaited.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a mapping, and queues those of its groups that have pages in memory.
    pub(crate) fn adopt(&self, range: &Range<usize>) {
        {
            // Under the lock, so that an event about the range is read before or after both.
            let mut state = self.patient();
            if state.book.is_registered(range) || self.uffd.register(range).is_err() {
                // The program has a userfaultfd of its own there, or the mapping is gone.
                return;
            }
            state.book.registered(range);
        }
        self.resident.present(range, |run| {
            let mut state = self.patient();
            let first = run.start & !(GROUP - 1);
            (first..run.end).step_by(GROUP).for_each(|group| state.list(group));
            true
        });
    }

    /// Moves the coldest group to a tray.
    pub(crate) fn stage(&self, slot: &Slot) -> Staged {
        let mut state = self.patient();
        let Some(&group) = state.queue.front() else { return Staged::NoGroup };
        let Some(tray) = state.trays.take() else { return Staged::NoTray };
        state.queue.pop_front();
        state.book.unqueue(group);
        let mut moved = 0;
        let mut busy = 0;
        for part in state.book.registered_parts(group) {
            self.resident.present(&part, |run| {
                let (pages, held) = self.stage_run(&mut state, &run, tray);
                moved += pages;
                busy += held;
                true
            });
        }
        // relaxed: a figure.
        slot.busy.fetch_add(busy as u64, Ordering::Relaxed);
        if busy > 0 {
            state.shelf.push(group);
        }
        if moved == 0 {
            state.trays.give_back(tray);
            return Staged::Nothing;
        }
        state.staged.push_back(tray);
        Staged::Pages(moved)
    }

    /// Moves a run of pages that are in memory to their places in a tray. Returns how many moved,
    /// and how many the system holds.
    fn stage_run(&self, state: &mut State, run: &Range<usize>, tray: u32) -> (usize, usize) {
        let (mut address, mut moved, mut busy) = (run.start, 0, 0);
        let mut touched = 0;
        while address < run.end {
            let place = address % GROUP / PAGE;
            let to = state.trays.range(tray).start + place * PAGE;
            let pages = (run.end - address) / PAGE;
            // SAFETY: by E2 the range is registered: it is a part of what the book says, and the
            // kernel answers EAGAIN while an event is unread. The tray is ours, and its place
            // empty.
            let progress = unsafe { self.uffd.move_pages(to, address, pages) };
            for page in 0..progress.pages {
                let home = address + page * PAGE;
                state.book.set(home, Word::tray(tray, place + page));
                if let Some(tray) = state.trays.tray(tray) {
                    tray.homes[place + page] = home;
                }
            }
            moved += progress.pages;
            address += progress.pages * PAGE;
            match progress.errno {
                0 => {}
                // An event waits, or the system stopped after some pages.
                libc::EAGAIN if progress.pages > 0 => {}
                libc::EAGAIN => return (moved, busy + 1),
                libc::EBUSY if touched != address && self.unshare(address) => touched = address,
                // The page is shared with a child, locked, or in use by the system.
                _ => {
                    busy += usize::from(progress.errno == libc::EBUSY);
                    address += PAGE;
                }
            }
        }
        (moved, busy)
    }

    /// Makes a page movable that was shared with a child which has ended: the system moves only
    /// what was written since. False if others share it still.
    fn unshare(&self, address: usize) -> bool {
        // futex(2): the word at the second address is changed by an OR with 0, and nobody is woken.
        // The kernel does this for a page of the program as one step, and refuses if it is gone.
        const OR_NOTHING: usize = 2 << 28;
        let operation = (libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG) as usize;
        self.resident.is_exclusive(address) && {
            let arguments = [address, operation, 0, 0, address, OR_NOTHING];
            // SAFETY: no bit of the program's memory changes.
            unsafe { crate::floor::call::call(libc::SYS_futex, arguments) >= 0 }
        }
    }

    /// Groups that could not leave are tried again.
    pub(crate) fn clear_shelf(&self) {
        let mut state = self.patient();
        let groups = std::mem::take(&mut state.shelf);
        groups.into_iter().for_each(|group| state.list(group));
    }

    /// Sends the oldest tray to the store. Returns how many pages left memory by that; `None` if
    /// there is no tray.
    pub(crate) fn compress_oldest(&self, slot: &Slot) -> Option<usize> {
        let tray = self.patient().staged.pop_front()?;
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
        let range = self.patient().trays.range(tray);
        // SAFETY: by E3 no word names a place of the tray, and it is in no queue.
        if let Err(error) = unsafe { empty(&range, &self.uffd) } {
            crate::fold::end::lost(&format!("a tray cannot be emptied: {error}"));
        }
        self.patient().trays.give_back(tray);
        if full { None } else { Some(kept) }
    }

    fn compress(&self, tray: u32, place: usize) -> Kept {
        let word = Word::tray(tray, place);
        let page = {
            let mut state = self.patient();
            if state.home(tray, place, word).is_none() {
                return Kept::Gone;
            }
            // SAFETY: the page is there, and only this thread empties trays.
            unsafe { state.trays.pages(tray, place, 1) }
        };
        let kept = self.store.keep(page);
        if let Some(slot) = kept {
            let mut state = self.patient();
            if let Some(home) = state.home(tray, place, word) {
                state.book.set(home, Word::slot(slot));
                return Kept::Yes;
            }
            drop(state);
            self.store.give_back(slot);
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
            match self.store.keep(page) {
                Some(slot) => state.book.set(home, Word::slot(slot)),
                None => crate::fold::end::lost("a forked child's memory has no room"),
            }
        }
    }

    /// Puts what belongs at `address` in its place, and up to `window - 1` pages after it. Of pages
    /// in the store, what they took is given back.
    pub(crate) fn bring(
        &self,
        uffd: &Uffd,
        book: &mut Book,
        trays: &Trays,
        address: usize,
        window: usize,
        buffer: &mut [u8],
    ) -> Progress {
        match book.word(address).place() {
            Place::Program => self.bring_zeros(uffd, book, address, window),
            Place::Tray(tray, place) => {
                // SAFETY: the word says that the page is there.
                let page = unsafe { trays.pages(tray, place, 1) };
                // SAFETY: the bytes are the page's own, by its word.
                let progress = unsafe { uffd.copy(address, page) };
                if progress.pages == 1 {
                    book.set(address, Word::PROGRAM);
                }
                progress
            }
            Place::Slot(_) => self.bring_stored(uffd, book, address, window, buffer),
        }
    }

    fn bring_zeros(&self, uffd: &Uffd, book: &Book, address: usize, window: usize) -> Progress {
        let room = GROUP_PAGES - address % GROUP / PAGE;
        let mut count = 1;
        if window > 1 {
            let untouched = self.resident.empty_run(address, window.min(room));
            let ours = |&page: &usize| {
                let at = address + page * PAGE;
                book.word(at) == Word::PROGRAM && book.is_registered(&(at..at + PAGE))
            };
            count = (0..untouched).take_while(ours).count().max(1);
        }
        // SAFETY: nobody has touched these pages, so they read as zeros.
        let progress = unsafe { uffd.copy(address, &ZEROS[..count * PAGE]) };
        if progress.errno == libc::ENOENT && count > 1 {
            // Two mappings meet here.
            return self.bring_zero(uffd, address);
        }
        progress
    }

    /// Puts zeros where one page is missing that is not out.
    pub(crate) fn bring_zero(&self, uffd: &Uffd, address: usize) -> Progress {
        // SAFETY: nobody has touched the page, so it reads as zeros.
        unsafe { uffd.copy(address, &ZEROS[..PAGE]) }
    }

    pub(crate) fn bring_stored(
        &self,
        uffd: &Uffd,
        book: &mut Book,
        address: usize,
        window: usize,
        buffer: &mut [u8],
    ) -> Progress {
        let count = book.stored_run(address, window).max(1);
        let slot = |book: &Book, page: usize| match book.word(address + page * PAGE).place() {
            Place::Slot(slot) => slot,
            Place::Program | Place::Tray(..) => crate::fold::end::lost("a word changed"),
        };
        for page in 1..count {
            self.store.prefetch(slot(book, page));
        }
        for (page, bytes) in buffer[..count * PAGE].chunks_exact_mut(PAGE).enumerate() {
            if !self.store.read(slot(book, page), bytes) {
                crate::fold::end::lost("a page in the store does not decode");
            }
        }
        // SAFETY: the bytes are the pages' own, by their words.
        let mut progress = unsafe { uffd.copy(address, &buffer[..count * PAGE]) };
        if progress.errno == libc::ENOENT && count > 1 && progress.pages == 0 {
            // Two mappings meet here.
            // SAFETY: as above.
            progress = unsafe { uffd.copy(address, &buffer[..PAGE]) };
        }
        for page in 0..progress.pages {
            self.store.give_back(slot(book, page));
            book.set(address + page * PAGE, Word::PROGRAM);
        }
        progress
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
        crate::floor::call::wake(&self.bell);
    }
}

/// What became of a page in a tray.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    Yes,
    /// It was touched or given up meanwhile.
    Gone,
    NoRoom,
}

impl State {
    /// Queues a group that has pages in memory.
    pub(crate) fn list(&mut self, group: usize) {
        if self.book.queue(group) {
            self.queue.push_back(group);
        }
    }

    /// Where the page at a place of a tray belongs, if it is still wanted.
    fn home(&mut self, tray: u32, place: usize, word: Word) -> Option<usize> {
        let home = self.trays.tray(tray)?.homes[place];
        (home != 0 && self.book.word(home) == word).then_some(home)
    }

    /// Memory moved within the process.
    pub(crate) fn moved(&mut self, from: usize, to: usize, len: usize) {
        self.book.moved(from, to, len);
        let State { book, trays, .. } = self;
        trays.moved(book.out(&(to..to + len)));
        let groups: Vec<usize> = (to & !(GROUP - 1)..to + len).step_by(GROUP).collect();
        groups.into_iter().for_each(|group| self.list(group));
    }
}
