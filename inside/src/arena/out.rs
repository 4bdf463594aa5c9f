//! The way out: pages of a group close, and leave for the store.
//!
//! ```text
//!   queue --rest--> closed, in place --store_some: up to 16 pages--> closed, in the store
//!     |                    |
//!     '---- wait: pinned, or shared with a forked process: tried again after a while
//! ```
//!
//! Invariant: C1 to C3 of the state. Lock: the caller has the state.

use super::addresses::{advise, protect};
use super::state::{State, is_awaited};
use super::{pins, reach};
use crate::kernel::lost;
use crate::places::{GROUP_PAGES, PAGE, Word, aligned, bits, runs};
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;
/// Pages that one step stores at most.
const STEP: usize = 16;

/// Groups that a step of a guard closes, so that threads do not wait long for it.
const GUARD_STEP: usize = 64;

/// Pages that cannot leave, because they are locked.
pub(crate) struct Locked(pub(crate) Range<usize>);

/// Adds to a figure.
pub(crate) fn add(word: &AtomicU64, count: u64) {
    // relaxed: a figure.
    word.fetch_add(count, Ordering::Relaxed);
}

/// Sets the pages of a group that are bits to a word.
pub(crate) fn set_all(state: &mut State, group: usize, pages: u64, word: Word) {
    state.change(group, |book| {
        for (first, count) in runs(pages) {
            (first..first + count).for_each(|page| book.set(group + page * PAGE, word));
        }
    });
}

/// The addresses of a run of pages of a group.
pub(crate) fn bytes(group: usize, (first, count): (usize, usize)) -> Range<usize> {
    group + first * PAGE..group + (first + count) * PAGE
}

/// Queues a group that has pages in memory.
pub(crate) fn list(state: &mut State, group: usize) {
    if let Some(fold) = &mut state.fold
        && !state.melted
        && state.book.queue(group)
    {
        fold.queue.push_back(group);
    }
}

/// Closes the pages of a group that may leave: it is not pinned, and this process has them alone.
/// False if it has to stay, and is looked at again after a while.
pub(crate) fn rest(state: &mut State, group: usize) -> bool {
    let (shared, own) = shared(state, group);
    if shared != 0 && own == 0 || !pins::close(group) {
        wait(state, group);
        return false;
    }
    let pages = close(state, group, !shared);
    if let Some(fold) = &mut state.fold
        && state.book.queue(group)
    {
        fold.rests(group, pages);
    }
    true
}

/// Whether other processes have all pages of a group that are in memory, so that none may leave.
pub(crate) fn is_shared(state: &State, group: usize) -> bool {
    let (shared, own) = shared(state, group);
    shared != 0 && own == 0
}

/// The pages of a group that fold and are in memory: those that other processes have too, and those
/// that are this process's own.
fn shared(state: &State, group: usize) -> (u64, u64) {
    let (shared, own) =
        if state.forks > 0 { reach::shared(group, GROUP_PAGES) } else { (0, u64::MAX) };
    let folds = state.folds(group);
    (folds & shared, folds & own)
}

/// Closes pages of a group that is not pinned. Returns how many were open.
pub(crate) fn close(state: &mut State, group: usize, wanted: u64) -> usize {
    let folds = state.folds(group);
    let open = folds & !state.closed(group) & wanted;
    if open == 0 {
        return 0;
    }
    let (first, end) = (open.trailing_zeros(), u64::BITS - open.leading_zeros());
    let all = (first as usize, (end - first) as usize);
    // What lies between them is closed, unless it does not fold or is to stay open.
    let others = !folds | folds & !state.closed(group) & !wanted;
    let is_one = bits(all.0, all.1) & others == 0;
    let parts = if is_one { vec![all] } else { runs(open).collect() };
    // SAFETY: a touch is served.
    let shut = |part: &(usize, usize)| unsafe { protect(&bytes(group, *part), libc::PROT_NONE) };
    if parts.iter().all(|part| shut(part).is_ok()) {
        set_all(state, group, open, Word::CLOSED);
        return open.count_ones() as usize;
    }
    // The system has no more mappings. A part of it may have closed.
    for run in runs(open) {
        // SAFETY: the program may read and write there.
        if unsafe { protect(&bytes(group, run), READ_WRITE) }.is_err() {
            lost("the system does not open its memory again");
        }
    }
    0
}

/// Guards some groups of the queue, from the one at `place` on: they close, and stay in the queue.
/// What forks share is copied by writes, which nobody tells of except if the memory is closed.
/// Returns the next place; `None` after the last.
pub(crate) fn guard(state: &mut State, place: usize) -> Option<usize> {
    for at in place..place + GUARD_STEP {
        let group = *state.fold.as_ref()?.queue.get(at)?;
        if pins::close(group) {
            close(state, group, u64::MAX);
        }
    }
    Some(place + GUARD_STEP)
}

/// Stores some pages of a group that rests and are `there`. `None` if there are none, and `Some(0)`
/// if the store is full.
pub(crate) fn store_some(
    state: &mut State,
    group: usize,
    there: u64,
    least: usize,
) -> Result<Option<usize>, Locked> {
    let there = there & state.book.pages(group, |_, word| word == Word::CLOSED);
    let mut some = 0;
    for first in (0..GROUP_PAGES).step_by(STEP) {
        some = there & aligned(first, STEP);
        if some != 0 && state.forks > 0 {
            let shared = reach::shared(group + first * PAGE, STEP).0 << first;
            if some & shared != 0 {
                wait(state, group);
            }
            some &= !shared;
        }
        if some != 0 {
            break;
        }
    }
    if some == 0 {
        return Ok(None);
    }
    let before = compressed(state);
    let (mut stored, mut freed) = (0, 0);
    for run in runs(some) {
        let left = store_run(state, group, run, least)?;
        stored += left.pages;
        freed += left.freed;
        if stored >= least && is_awaited() {
            break;
        }
    }
    if let Some(fold) = &mut state.fold {
        // With a disk, what does not compress makes room when it has gone there.
        let grown = fold.store.compressed() as i64 - before as i64;
        let taken = (grown.max(0) as usize).div_ceil(PAGE) as i64;
        fold.room += freed as i64 - taken;
        fold.set_stuck(stored == 0);
        add(&fold.slot.pages_out, stored as u64);
    }
    Ok(Some(stored))
}

/// Bytes that pages of the store take in memory.
fn compressed(state: &State) -> u64 {
    state.fold.as_ref().map_or(0, |fold| fold.store.compressed())
}

/// Lets a group wait on the shelf: it is pinned, or another process would keep its pages in memory.
fn wait(state: &mut State, group: usize) {
    if let Some(fold) = &mut state.fold {
        fold.shelf.insert(group);
    }
}

/// Pages that left for the store.
#[derive(Default)]
struct Left {
    pages: usize,
    /// Those of them that surely took memory. One that was read and never written is the system's
    /// page of zeros, which takes none. Not every system tells these from others of zeros.
    freed: usize,
}

/// Stores neighbouring pages.
fn store_run(
    state: &mut State,
    group: usize,
    run: (usize, usize),
    least: usize,
) -> Result<Left, Locked> {
    let range = bytes(group, run);
    let Some(fold) = &mut state.fold else { return Ok(Left::default()) };
    let (mut slots, mut freed) = (Vec::new(), 0);
    let began = fold.is_timed().then(Instant::now);
    for page in range.clone().step_by(PAGE) {
        if slots.len() >= least && is_awaited() {
            break;
        }
        let copy = &mut fold.buffer[..PAGE];
        if !copy_closed(&(page..page + PAGE), copy) {
            break;
        }
        let Some(slot) = fold.store.keep(page, copy) else { break };
        slots.push(slot);
        freed += usize::from(!is_zero(copy));
    }
    if let Some(began) = began.filter(|_| !slots.is_empty()) {
        fold.worth.out_took(began.elapsed() / slots.len() as u32);
    }
    let gone = range.start..range.start + slots.len() * PAGE;
    // SAFETY: the pages are in the store, and closed.
    if gone.start < gone.end && unsafe { advise(&gone, libc::MADV_DONTNEED) }.is_err() {
        slots.iter().for_each(|&slot| fold.store.give_back(slot));
        return Err(Locked(range));
    }
    state.change(group, |book| {
        let places = gone.clone().step_by(PAGE).zip(&slots);
        places.for_each(|(page, &slot)| book.set(page, Word::slot(slot)));
    });
    Ok(Left { pages: slots.len(), freed })
}

fn is_zero(page: &[u8]) -> bool {
    page.chunks_exact(64).all(|part| part == [0; 64])
}

/// Copies pages that are closed. False if the system refuses.
fn copy_closed(range: &Range<usize>, buffer: &mut [u8]) -> bool {
    if reach::get(range.start, buffer) {
        return true;
    }
    // SAFETY: who writes waits for the lock in the handler, and then finds the page in the store.
    if unsafe { protect(range, libc::PROT_READ) }.is_err() {
        return false;
    }
    // SAFETY: the pages are readable, and nobody writes to them.
    unsafe {
        core::ptr::copy_nonoverlapping(range.start as *const u8, buffer.as_mut_ptr(), range.len());
    }
    // SAFETY: a touch is served.
    if unsafe { protect(range, libc::PROT_NONE) }.is_err() {
        lost("the system does not close its memory again");
    }
    true
}
