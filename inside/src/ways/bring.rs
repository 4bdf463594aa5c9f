//! The way in: what belongs at an address is put there, and with it pages around it that are likely
//! to be wanted too.
//!
//! ```text
//!   word   program    zeros, which a first touch finds        with those around it
//!          tray       moved back                              with those around it in the tray
//!          slot       decoded to a buffer, and copied         with those around it in the store
//!
//!   pages  . . . . | x x X x | . . .       X is touched; its quad comes; its run comes last,
//!                                          because it wakes the thread that waits
//! ```
//!
//! Invariant: E1 of `engine`. Only the server's thread is here.
//!
//! Lock: the caller has that of the book.

use super::engine::{Engine, State};
use super::worth::STAGED_PER_CENT;
use crate::kernel::{Progress, Uffd, lost, move_pages};
use crate::places::{
    Book, GROUP, GROUP_PAGES, PAGE, Place, Word, aligned, bits, is_watched, ones, page_in_group,
    runs,
};
use std::ops::Range;
use std::time::Instant;

/// Pages of a tray that a walk brings in at most.
pub(crate) const WINDOW_MAX: usize = GROUP_PAGES; // 64

/// Pages of the store, or of zeros, that a walk brings in at most.
const AT_ONCE_MAX: usize = 16;
/// What a page of zeros costs that comes beside another, in per cent of a fault. Little of that is
/// for filling it, and the rest for the memory that it takes.
const FRESH_PER_CENT: u32 = 25;

static ZEROS: [u8; AT_ONCE_MAX * PAGE] = [0; AT_ONCE_MAX * PAGE];

/// What came by a fault.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Came {
    /// Pages of the group that are in place now, as bits.
    pub(crate) pages: u64,
    /// Pages by which memory has grown.
    pub(crate) grown: usize,
    /// Why the page that was touched is not among them.
    pub(crate) errno: i32,
}

impl Engine {
    /// Puts what belongs at `address` in its place, and pages around it. `window` is the number of
    /// pages from there on that a walk would bring in. `buffer` has room for a group.
    pub(crate) fn bring(
        &self,
        state: &mut State,
        address: usize,
        window: usize,
        buffer: &mut [u8],
    ) -> Came {
        let came = match state.book.word(address).place() {
            Place::Program | Place::Closed => self.bring_zeros(state, address, window),
            Place::Tray(tray, place) => self.bring_staged(state, address, tray, place, window),
            Place::Slot(_) => self.bring_around(state, address, window, buffer),
        };
        let group = address & !(GROUP - 1);
        for (first, count) in runs(came.pages) {
            let start = group + first * PAGE;
            state.leaving.came(&(start..start + count * PAGE));
        }
        came
    }

    /// Puts zeros in the place of a page that was never touched, and of others around it.
    fn bring_zeros(&self, state: &mut State, address: usize, window: usize) -> Came {
        let (group, page) = (address & !(GROUP - 1), page_in_group(address));
        let watched = is_watched(group);
        let count = if watched { 1 } else { state.fresh_density.pages_at_once(FRESH_PER_CENT) };
        let window = window.min(AT_ONCE_MAX);
        let wanted = if window > count { walk(page, window) } else { aligned(page, count) };
        let is_one = wanted.count_ones() == 1;
        let fresh = if is_one && !watched { wanted } else { self.fresh(&state.book, group) };
        let wanted = wanted & fresh | bits(page, 1);
        let (pages, errno) = put_runs(wanted, page, |first, count| {
            // SAFETY: nobody has touched these pages, so they read as zeros.
            unsafe { self.uffd.copy(group + first * PAGE, &ZEROS[..count * PAGE]) }
        });
        if watched {
            state.fresh_trials.touched(group, fresh, page, pages);
        }
        Came { pages, grown: pages.count_ones() as usize, errno }
    }

    /// The pages of a group that are registered and that nobody has touched, as bits.
    fn fresh(&self, book: &Book, group: usize) -> u64 {
        let out = book.pages(group, |_, word| word != Word::PROGRAM);
        let parts = book.registered_parts(group);
        let part = |part: &Range<usize>| bits((part.start - group) / PAGE, part.len() / PAGE);
        let registered = parts.iter().fold(0, |all, one| all | part(one));
        // A copy would remove the mark of a guard page, which is not empty.
        registered & !out & self.resident.empty(group)
    }

    /// Puts zeros where one page is missing that is not out.
    pub(crate) fn bring_zero(&self, uffd: &Uffd, address: usize) -> Progress {
        // SAFETY: nobody has touched the page, so it reads as zeros.
        unsafe { uffd.copy(address, &ZEROS[..PAGE]) }
    }

    /// Moves a page back from its tray, and others around it.
    fn bring_staged(
        &self,
        state: &mut State,
        address: usize,
        tray: u32,
        place: usize,
        window: usize,
    ) -> Came {
        let (group, page) = (address & !(GROUP - 1), page_in_group(address));
        // A page that has moved since then stands at another number. The pager reads the tray that
        // it compresses, so nothing leaves that one.
        if place != page || state.compressing == Some(tray) {
            return self.copy_staged(state, address, tray, place);
        }
        let count =
            if is_watched(group) { 1 } else { state.staged_density.pages_at_once(STAGED_PER_CENT) };
        let wanted = walk(page, window) | aligned(page, count);
        let there = state.book.pages(group, |at, word| word == Word::tray(tray, at)) & wanted;
        let from = state.trays.range(tray).start;
        let is_shared = state.trays.is_shared(tray);
        let State { book, trays, .. } = &mut *state;
        let (pages, _) = put_runs(there, page, |first, count| {
            let (to, from) = (group + first * PAGE, from + first * PAGE);
            let progress = if is_shared {
                // SAFETY: by their words these pages are in the tray, and are the program's.
                unsafe { self.uffd.copy(to, trays.pages(tray, first, count)) }
            } else {
                // SAFETY: by their words these pages are the program's, and nobody reads them in
                // the tray: the pager reads only what it compresses. A tray is registered.
                unsafe { move_pages(self.mover(), to, from, count) }
            };
            (0..progress.pages).for_each(|at| book.set(to + at * PAGE, Word::PROGRAM));
            progress
        });
        state.trays.touched(tray, page, pages);
        if pages & bits(page, 1) != 0 {
            let grown = if is_shared { pages.count_ones() as usize } else { 0 };
            return Came { pages, grown, errno: 0 };
        }
        // The page is shared with a child, or the program's memory has another access than a tray.
        let own = self.copy_staged(state, address, tray, place);
        Came { pages: pages | own.pages, ..own }
    }

    /// Copies a page from its tray. The copy in the tray goes with the tray.
    fn copy_staged(&self, state: &mut State, address: usize, tray: u32, place: usize) -> Came {
        // SAFETY: the word says that the page is there.
        let page = unsafe { state.trays.pages(tray, place, 1) };
        // SAFETY: the bytes are the page's own, by its word.
        let progress = unsafe { self.uffd.copy(address, page) };
        if progress.pages == 1 {
            state.book.set(address, Word::PROGRAM);
        }
        let pages = bits(page_in_group(address), progress.pages);
        Came { pages, grown: progress.pages, errno: progress.errno }
    }

    /// Brings in a page of the store, and others around it.
    fn bring_around(
        &self,
        state: &mut State,
        address: usize,
        window: usize,
        buffer: &mut [u8],
    ) -> Came {
        let (group, page) = (address & !(GROUP - 1), page_in_group(address));
        let stored = state.book.stored(group);
        let watched = is_watched(group);
        let count = if watched {
            1
        } else {
            state.stored_density.pages_at_once(state.worth.stored_per_cent())
        };
        let mut wanted = stored & (walk(page, window.min(AT_ONCE_MAX)) | aligned(page, count));
        if wanted.count_ones() > 1 {
            // A copy would remove the mark of a guard page.
            wanted &= self.resident.empty(group) | bits(page, 1);
        }
        let began = (watched && wanted.count_ones() == 1).then(Instant::now);
        let book = &mut state.book;
        let came = self.bring_stored(&self.uffd, book, group, wanted, page, buffer, |at, slot| {
            self.store.came(at, slot)
        });
        if let Some(began) = began {
            state.worth.page_took(began.elapsed());
        }
        if watched {
            state.trials.touched(group, stored, page, came.pages);
        }
        came
    }

    /// Puts pages of a group in their places that the store has, the run with `page` last. `came`
    /// gets the address of each page and the slot that the book does not name any more.
    #[expect(clippy::too_many_arguments, reason = "a book and a descriptor may be of a child")]
    pub(crate) fn bring_stored(
        &self,
        uffd: &Uffd,
        book: &mut Book,
        group: usize,
        wanted: u64,
        page: usize,
        buffer: &mut [u8],
        came: impl Fn(usize, u32),
    ) -> Came {
        let slot = |book: &Book, page: usize| match book.word(group + page * PAGE).place() {
            Place::Slot(slot) => slot,
            Place::Program | Place::Tray(..) | Place::Closed => lost("a word changed"),
        };
        ones(wanted).skip(1).for_each(|at| self.store.prefetch(slot(book, at)));
        for at in ones(wanted) {
            let read = self.store.read(slot(book, at), &mut buffer[at * PAGE..][..PAGE]);
            read.unwrap_or_else(|why| lost(why));
        }
        let (pages, errno) = put_runs(wanted, page, |first, count| {
            let bytes = &buffer[first * PAGE..][..count * PAGE];
            // SAFETY: the bytes are the pages' own, by their words.
            let progress = unsafe { uffd.copy(group + first * PAGE, bytes) };
            for at in first..first + progress.pages {
                let address = group + at * PAGE;
                came(address, slot(book, at));
                book.set(address, Word::PROGRAM);
            }
            progress
        });
        Came { pages, grown: pages.count_ones() as usize, errno }
    }
}

/// The pages of a walk from a page on, within its group.
fn walk(page: usize, window: usize) -> u64 {
    bits(page, window.min(GROUP_PAGES - page))
}

/// Puts runs of pages in place, the run with `page` last. Returns which pages came, and why `page`
/// did not.
fn put_runs(pages: u64, page: usize, mut put: impl FnMut(usize, usize) -> Progress) -> (u64, i32) {
    let has = |first: usize, count: usize| (first..first + count).contains(&page);
    let mut came = 0;
    for (first, count) in runs(pages).filter(|&(first, count)| !has(first, count)) {
        came |= bits(first, put(first, count).pages);
    }
    let mut errno = 0;
    if let Some((first, count)) = runs(pages).find(|&(first, count)| has(first, count)) {
        let progress = put(first, count);
        came |= bits(first, progress.pages);
        errno = progress.errno;
    }
    if came & bits(page, 1) == 0 && pages.count_ones() > 1 && errno != libc::EAGAIN {
        // Two mappings meet here.
        let progress = put(page, 1);
        came |= bits(page, progress.pages);
        errno = progress.errno;
    }
    (came, errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `put_runs` asks for, if the system puts `room` pages of a run in place.
    fn asked(pages: u64, page: usize, room: usize) -> (Vec<(usize, usize)>, u64) {
        let mut asked = Vec::new();
        let (came, _) = put_runs(pages, page, |first, count| {
            asked.push((first, count));
            let errno = if count > room { libc::ENOENT } else { 0 };
            Progress { pages: count.min(room), errno }
        });
        (asked, came)
    }

    #[test]
    fn the_run_that_wakes_the_thread_is_the_last() {
        let pages = bits(0, 2) | bits(4, 3) | bits(9, 1);
        assert_eq!(asked(pages, 5, 64), (vec![(0, 2), (9, 1), (4, 3)], pages));
    }

    #[test]
    fn a_page_that_a_run_does_not_reach_comes_alone() {
        let (pages, all) = asked(bits(4, 3), 6, 2);
        assert_eq!((pages, all), (vec![(4, 3), (6, 1)], bits(4, 3)));
        assert_eq!(asked(bits(6, 1), 6, 0), (vec![(6, 1)], 0));
    }
}
