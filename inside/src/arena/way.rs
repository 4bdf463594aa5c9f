//! A page's way: it closes, leaves for the store, comes back, and opens.
//!
//! ```text
//!   open --rest: a group at a time--> closed, in place --store: 16 pages--> closed, in the store
//!     ^                                  |                                     |
//!     '-------- a touch: neighbours -----+----- a touch: neighbours, a walk ---'
//! ```
//!
//! Groups leave in the order in which they came. A group that rests is closed, and still in
//! memory: a touch opens the page, which is its second chance. How many neighbours open with it,
//! groups that are watched teach, as with userfaultfd. The groups that were touched last do not
//! rest: if nothing else could leave, an instruction that touches two pages would never end.
//!
//! A page that comes back is written through `/proc/self/mem` while it is closed, so no thread sees
//! a part of it.
//!
//! Mappings are scarce, and each edge between open and closed pages makes one. So neighbours come
//! together if edges become many.
//!
//! Invariant: C1 to C3 of the state. Lock: the caller has the state.

use super::addresses::{self, advise, present, protect};
use super::fold::Fold;
use super::out::{self, Locked, add, bytes, list, rest, set_all};
use super::state::{self, State, outwards, part};
use super::{fresh, pins, reach};
use crate::floor::passage::pass;
use crate::kernel::lost;
use crate::places::Kind;
use crate::places::{GROUP, GROUP_PAGES, PAGE, Place, Word, bits, page_in_group, runs};
use core::ops::Range;
use std::time::{Duration, Instant};

const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;
/// What a thread that makes room for itself stores at least, so that it pays for a step only then.
const OWN: usize = 4;
/// Steps of a thread that makes room for itself, at most.
const STEPS_MAX: usize = 256;
/// Groups that a thread which makes room finds with nothing that may leave, one after the other,
/// until it goes on without room. After a fork, nearly all of them may be shared.
const VAIN_MAX: usize = 8;

/// After this time the pager counts memory anew, because threads make room too.
const HOLD_TIME: Duration = Duration::from_millis(10);
/// Steps of the pager without a page, at most.
const HOLD_STEPS: u32 = 1 << 16; // 65536

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// So many pages went to the store.
    Stored(usize),
    /// A group rests now, or has left those that rest, or folds no more.
    Rested,
    /// A group had nothing that may leave, because it is pinned or shared.
    Vain,
    /// There is nothing to do.
    Nothing,
}

/// Opens what was touched. False if the touch was no business of ours.
pub(crate) fn touch(state: &mut State, address: usize, writes: bool) -> bool {
    let group = address & !(GROUP - 1);
    let page = address & !(PAGE - 1);
    match state.book.word(page).place() {
        Place::Slot(_) => {
            make_room(state, 8);
            let (edges, stored) = (state.edges, state.book.stored(group));
            let Some(fold) = &mut state.fold else { return false };
            add(&fold.slot.stored_faults, 1);
            fold.was_touched(group);
            // It may have been opened to make room.
            let wanted = fold.window_stored(page, stored, edges);
            open(state, group, wanted);
            true
        }
        Place::Closed => {
            make_room(state, 8);
            let closed = state.book.pages(group, |_, word| word == Word::CLOSED);
            let (edges, there) = (state.edges, present(group));
            let shared = match &state.fold {
                Some(fold) if fold.shares => reach::shared(group, GROUP_PAGES).0 & closed,
                _ => 0,
            };
            let mut wanted = closed;
            if let Some(fold) = &mut state.fold {
                let touched = bits(page_in_group(page), 1);
                fold.was_touched(group);
                if shared & touched != 0 {
                    // The whole group, because each touch may cost a copy anyway.
                    wanted &= there;
                    fold.may_copy(shared.count_ones());
                    add(&fold.slot.first_touches, 1);
                } else if there & touched == 0 {
                    // Fresh memory, which is mostly filled from one end to the other.
                    wanted &= !there;
                    fold.room -= i64::from(wanted.count_ones());
                    add(&fold.slot.first_touches, 1);
                } else {
                    wanted = fold.window_resting(page, closed & there, edges);
                    add(&fold.slot.staged_faults, 1);
                }
            }
            open(state, group, wanted);
            true
        }
        Place::Program | Place::Tray(..) => {
            // Another thread has opened it. The access is given again, so that nobody loops.
            if state.spans.kind(address) == Some(Kind::Folds) {
                // SAFETY: the program may read and write there.
                return unsafe { protect(&(page..page + PAGE), READ_WRITE) }.is_ok();
            }
            // Or it folds no more since the touch, and the program may still do what it did.
            reach::allows(address, writes)
        }
    }
}

/// Opens the closed pages of a range, for a system call or for good.
pub(crate) fn open_range(state: &mut State, range: &Range<usize>) {
    fresh::open(state, range);
    for group in state.closed_groups(range) {
        make_room(state, 8);
        open(state, group, part(group, range));
    }
}

/// Opens pages of a group.
fn open(state: &mut State, group: usize, wanted: u64) {
    let closed = state.closed(group) & wanted;
    for run in runs(closed) {
        let range = bytes(group, run);
        // If there are no more mappings to be had, fewer edges are needed.
        let done = try_open(state, &range) || try_open(state, &bytes(group, (0, 64))) || {
            let span = whole_span(state, &range);
            try_open(state, &span)
        };
        if !done {
            lost("the system has no more mappings for it");
        }
    }
    list(state, group);
}

/// All of the span that has a range.
fn whole_span(state: &State, range: &Range<usize>) -> Range<usize> {
    let all = state.spans.all().map(|(span, _)| span);
    all.into_iter().find(|span| span.contains(&range.start)).unwrap_or_else(|| range.clone())
}

/// Opens a range that folds, or as much of it as does. False if the system refuses.
fn try_open(state: &mut State, range: &Range<usize>) -> bool {
    let pieces: Vec<_> = state.spans.pieces(range).collect();
    for (piece, kind) in pieces {
        if kind != Kind::Folds {
            continue;
        }
        let closed = state.closed_groups(&piece);
        closed.iter().for_each(|&group| fill(state, group, part(group, &piece)));
        // SAFETY: the program may read and write there, and all content is in place.
        if unsafe { protect(&piece, READ_WRITE) }.is_err() {
            return false;
        }
        for group in closed {
            let pages = state.closed(group) & part(group, &piece);
            set_all(state, group, pages, Word::PROGRAM);
            list(state, group);
        }
    }
    true
}

/// Puts what the store has of these pages in their places, which stay closed. The store does not
/// have them any more, so they are put there once, even if the system then refuses to open them.
fn fill(state: &mut State, group: usize, pages: u64) {
    let stored = state.book.stored(group) & pages;
    let Some(fold) = &mut state.fold else { return };
    for (first, count) in runs(stored) {
        let place = bytes(group, (first, count));
        let buffer = &mut fold.buffer[..count * PAGE];
        for (page, to) in buffer.chunks_exact_mut(PAGE).enumerate() {
            let Place::Slot(slot) = state.book.word(place.start + page * PAGE).place() else {
                lost("a word changed");
            };
            fold.store.read(slot, to).unwrap_or_else(|why| lost(why));
            fold.store.came(place.start + page * PAGE, slot);
        }
        if !reach::put(place.start, buffer) {
            lost("the system refuses to put its memory back");
        }
        fold.room -= count as i64;
        add(&fold.slot.pages_in, count as u64);
    }
    set_all(state, group, stored, Word::CLOSED);
}

/// Makes room for pages that are about to come, if there is none.
fn make_room(state: &mut State, pages: i64) {
    let lacks = |state: &State| state.fold.as_ref().is_some_and(|fold| fold.lacks(pages));
    if !lacks(state) {
        return;
    }
    let began = Instant::now();
    let mut vain = 0;
    for _ in 0..STEPS_MAX {
        if !lacks(state) || overflows(state) {
            break;
        }
        let step = step(state, OWN);
        vain = after(step, vain);
        if vain > VAIN_MAX && state.forks > 0 {
            state.fold.iter_mut().for_each(Fold::looked_in_vain);
        }
        if step == Step::Nothing {
            break;
        }
    }
    if lacks(state) && overflows(state) {
        state::is_full();
    }
    if let Some(fold) = &state.fold {
        add(&fold.slot.stall_ns, began.elapsed().as_nanos() as u64);
    }
}

/// How many steps in turn were in vain after one more.
fn after(step: Step, vain: usize) -> usize {
    match step {
        Step::Vain => vain + 1,
        Step::Stored(_) => 0,
        Step::Rested | Step::Nothing => vain,
    }
}

/// Whether pages have to go on to the disk, which the pager alone does.
fn overflows(state: &State) -> bool {
    let overflows = |fold: &Fold| fold.is_written && fold.store.overflow(fold.quota).is_some();
    state.fold.as_ref().is_some_and(overflows)
}

/// Makes something leave: `least` pages if there are, and more if no thread waits for the lock.
fn step(state: &mut State, least: usize) -> Step {
    let Some(fold) = state.fold.as_mut().filter(|_| !state.melted) else { return Step::Nothing };
    if let Some(group) = fold.next_to_rest() {
        state.book.unqueue(group);
        return if rest(state, group) { Step::Rested } else { Step::Vain };
    }
    let Some((group, there)) = fold.next_to_leave(state.forks > 0) else { return Step::Nothing };
    match out::store_some(state, group, there, least) {
        Ok(Some(0)) => Step::Nothing,
        Ok(Some(pages)) => Step::Stored(pages),
        Err(Locked(range)) => {
            dissolve(state, &range);
            Step::Rested
        }
        Ok(None) => {
            let is_shelved = state.fold.as_ref().is_some_and(|fold| fold.is_shelved(group));
            if let Some(fold) = &mut state.fold {
                fold.has_left();
            }
            state.book.unqueue(group);
            if state.folds(group) & !state.closed(group) & present(group) != 0 {
                list(state, group);
            }
            // One that is empty, because the program gave it up, does not come back.
            if is_shelved { Step::Vain } else { Step::Rested }
        }
    }
}

/// Opens a range, and keeps it open for `work`.
pub(crate) fn held_open<R>(
    state: &mut State,
    range: &Range<usize>,
    work: impl FnOnce(&mut State) -> R,
) -> R {
    pins::pin(range);
    open_range(state, range);
    let done = work(state);
    pins::unpin(range);
    done
}

/// Memory of a range opens, and folds no more.
pub(crate) fn dissolve(state: &mut State, range: &Range<usize>) {
    held_open(state, range, |state| {
        state.spans.turn(range, Kind::Folds, Kind::Stays);
        state.spans.turn(range, Kind::Bare, Kind::Stays);
    });
}

/// Bytes of a stack that stay open, below the stack pointer and above it.
const STACK: (usize, usize) = (64 << 10, 4096);

/// The pages of a stack that a thread uses next.
pub(crate) fn stack(pointer: usize) -> Range<usize> {
    let all = addresses::range();
    let start = pointer.saturating_sub(STACK.0).max(all.start);
    outwards(&(start..pointer.saturating_add(STACK.1).min(all.end)))
}

/// A thread is on a stack in memory that folds. The part that it uses next folds no more, because
/// the kernel writes frames of signals there. False if it did not fold.
pub(crate) fn keep_stack(state: &mut State, pointer: usize) -> bool {
    let range = stack(pointer);
    let folds: Vec<_> = state.spans.pieces(&range).filter(|(_, it)| *it == Kind::Folds).collect();
    folds.iter().for_each(|(piece, _)| dissolve(state, piece));
    !folds.is_empty()
}

/// All memory opens, and nothing folds any more.
pub(crate) fn melt(state: &mut State) {
    state.melted = true;
    let all: Vec<_> = state.spans.all().map(|(span, _)| span).collect();
    all.iter().for_each(|span| dissolve(state, span));
}

/// Begins to fold.
pub(crate) fn begin(state: &mut State, fold: Fold) {
    state.fold = Some(fold);
    let all: Vec<_> = state.spans.all().collect();
    for (span, kind) in all {
        // SAFETY: it changes no byte. An error means that there are no huge pages.
        let _ = unsafe { advise(&span, libc::MADV_NOHUGEPAGE) };
        if kind == Kind::Folds {
            fresh::look_through(state, &span);
        }
    }
}

/// Looks for memory that the program has touched since, in spans that are too large to close.
pub(crate) fn look_again(state: &mut State) {
    let all: Vec<_> = state.spans.all().collect();
    let large =
        all.iter().filter(|(span, kind)| *kind == Kind::Folds && span.len() > fresh::LEN_MAX);
    large.for_each(|(span, _)| fresh::look_through(state, span));
    state.executing.settle(&state::caller());
}

/// So many groups that could not leave are tried again. Those that other processes have stay on the
/// shelf: a thread that makes room would look at them in vain.
pub(crate) fn try_shelf(state: &mut State, count: usize) {
    let shelved = state.fold.as_ref().map_or(0, |fold| fold.shelf.len());
    for _ in 0..count.min(shelved) {
        let Some(group) = state.fold.as_mut().and_then(Fold::next_shelved) else { break };
        if !out::is_shared(state, group) {
            if let Some(fold) = &mut state.fold {
                fold.shelf.remove(&group);
            }
            list(state, group);
        }
    }
}

/// Keeps a process within what it may have: makes about `want` pages leave, a step at a time, and
/// as many as it can in a moment. Returns how many did.
pub(crate) fn hold(want: usize) -> usize {
    let (mut left, mut steps, began) = (0, 0, Instant::now());
    while left < want && began.elapsed() < HOLD_TIME {
        match super::state::patiently(|state| step(state, 1)) {
            Step::Stored(pages) => left += pages,
            Step::Rested | Step::Vain if steps < HOLD_STEPS => steps += 1,
            Step::Rested | Step::Vain | Step::Nothing => break,
        }
    }
    left
}

/// The pages of memory of a length, rounded outwards.
pub(crate) fn pages(start: usize, len: usize) -> Range<usize> {
    outwards(&(start..start.saturating_add(len)))
}

/// A call about whole ranges of the arena, from the passage.
pub(crate) fn ask(number: libc::c_long, arguments: [usize; 6]) -> isize {
    // SAFETY: the program asks for it; what it changes is noted by the caller.
    unsafe { pass(number, arguments) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_in_vain_are_counted_until_something_leaves() {
        let after_all = |steps: &[Step]| steps.iter().fold(0, |vain, &step| after(step, vain));
        assert_eq!(after_all(&[Step::Vain, Step::Rested, Step::Vain, Step::Nothing]), 2);
        assert_eq!(after_all(&[Step::Vain, Step::Vain, Step::Stored(4), Step::Vain]), 1);
    }
}
