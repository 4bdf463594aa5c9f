//! The way in: what belongs at an address is put there.
//!
//! ```text
//!   word   program    zeros, which a first touch finds
//!          tray       a copy of the page in the tray
//!          slot       decoded to a buffer, with those after it that are out too
//! ```
//!
//! Invariant: E1 of `engine`. Only the server's thread is here.
//!
//! Lock: the caller has that of the book.

use super::engine::Engine;
use super::trays::Trays;
use crate::kernel::{Progress, Uffd, lost};
use crate::places::{Book, GROUP, GROUP_PAGES, PAGE, Place, Word};

/// Pages that one fault brings in at most.
pub(crate) const WINDOW_MAX: usize = 16;

static ZEROS: [u8; WINDOW_MAX * PAGE] = [0; WINDOW_MAX * PAGE];

impl Engine {
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
            Place::Slot(_) => {
                let count = self.stored_run(book, address, window);
                self.bring_stored(uffd, book, address, count, buffer)
            }
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

    /// The pages from `address` on that may come together from the store. A copy would remove the
    /// mark of a guard page, so a run ends before one.
    fn stored_run(&self, book: &Book, address: usize, window: usize) -> usize {
        match book.stored_run(address, window) {
            run @ 0..=1 => run,
            run => self.resident.empty_run(address, run).max(1),
        }
    }

    /// Puts `count` pages that the store has in their places, from `address` on.
    pub(crate) fn bring_stored(
        &self,
        uffd: &Uffd,
        book: &mut Book,
        address: usize,
        count: usize,
        buffer: &mut [u8],
    ) -> Progress {
        let slot = |book: &Book, page: usize| match book.word(address + page * PAGE).place() {
            Place::Slot(slot) => slot,
            Place::Program | Place::Tray(..) => lost("a word changed"),
        };
        for page in 1..count {
            self.store.prefetch(slot(book, page));
        }
        for (page, bytes) in buffer[..count * PAGE].chunks_exact_mut(PAGE).enumerate() {
            if !self.store.read(slot(book, page), bytes) {
                lost("a page in the store does not decode");
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
}
