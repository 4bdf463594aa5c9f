//! Memory that moves: its content goes to the new place, and what is out goes along in the book.
//!
//! Lock: the caller has the state.

use crate::arena::addresses::advise;
use crate::arena::reach;
use crate::arena::state::{State, groups, part};
use crate::arena::way::held_open;
use crate::places::{GROUP, PAGE, Place, Word};
use core::ops::Range;

/// Takes content to a new place, a group at a time. What is out goes along in the book.
pub(super) fn all(state: &mut State, old: &Range<usize>, place: usize) {
    for group in groups(old) {
        let (start, end) = (old.start.max(group), old.end.min(group + GROUP));
        let mut there = reach::content(group);
        // If mappings run out, all of the group comes in while pages are copied.
        for (page, word) in state.book.out(&(start..end)) {
            if let Place::Slot(_) = word.place() {
                there |= part(group, &(page..page + PAGE));
            }
        }
        for page in (start..end).step_by(PAGE) {
            let target = page - old.start + place;
            let word = state.book.word(page);
            if let Place::Slot(_) = word.place() {
                name_elsewhere(state, page, target, word);
            } else if there & part(group, &(page..page + PAGE)) != 0 {
                copy(state, page, target);
            }
        }
        // SAFETY: the content is at the new place.
        let _ = unsafe { advise(&(start..end), libc::MADV_DONTNEED) };
    }
}

/// A page of the store is of another address from now on.
fn name_elsewhere(state: &mut State, page: usize, target: usize, word: Word) {
    let group = |address: usize| address & !(GROUP - 1);
    if state.book.word(target) == Word::PROGRAM {
        // The new place is open: only closed pages are in the store.
        return copy(state, page, target);
    }
    // A page of zeros may have been stored there.
    state.forget(&(target..target + PAGE), Word::CLOSED);
    state.change(group(target), |book| book.set(target, word));
    state.change(group(page), |book| book.set(page, Word::CLOSED));
}

/// Copies a page to new memory. One of zeros takes none there. It may have taken none before.
fn copy(state: &mut State, page: usize, target: usize) {
    held_open(state, &(page..page + PAGE), |state| {
        let from = page as *const u64;
        // SAFETY: the page is open, and a program that moves memory does not use it meanwhile.
        let is_zero = |word: usize| unsafe { from.add(word).read_volatile() } == 0;
        if (0..PAGE / size_of::<u64>()).all(is_zero) {
            return;
        }
        held_open(state, &(target..target + PAGE), |_| {
            // SAFETY: both are open, and are two pages of the program, as above.
            unsafe { core::ptr::copy_nonoverlapping(page as *const u8, target as *mut u8, PAGE) };
        });
    });
}
