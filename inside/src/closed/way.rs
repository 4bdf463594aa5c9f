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
//! groups that are watched teach, as with userfaultfd.
//!
//! A page that comes back is written through `/proc/self/mem` while it is closed, so no thread sees
//! a part of it. Memory that the program has never touched is closed as well. So it cannot outrun
//! the pager: who touches it, makes room first.
//!
//! Mappings are scarce, and each edge between open and closed pages makes one. So neighbours come
//! together if edges become many.
//!
//! Invariant: C1 to C3 of the state. Lock: the caller has the state.

use super::arena::{advise, present, protect, release};
use super::fold::Fold;
use super::state::{State, groups, is_awaited, outwards, part};
use super::{pins, reach};
use crate::floor::passage::pass;
use crate::kernel::lost;
use crate::places::Kind;
use crate::places::{GROUP, GROUP_PAGES, PAGE, Place, Word, aligned, bits, page_in_group, runs};
use core::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;
/// Pages that one step stores at most.
const STEP: usize = 16;
/// What a thread that makes room for itself stores at least, so that it pays for a step only then.
const OWN: usize = 4;
/// Larger ranges of fresh memory are not closed, because their words would take too much.
const FRESH_MAX: usize = 1 << 30; // 1 GiB
/// Steps of a thread that makes room for itself, at most.
const STEPS_MAX: usize = 256;

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// So many pages went to the store.
    Stored(usize),
    /// A group rests now, or could not.
    Rested,
    /// There is nothing to do.
    Nothing,
}

fn add(word: &AtomicU64, count: u64) {
    // relaxed: a figure.
    word.fetch_add(count, Ordering::Relaxed);
}

/// Sets the pages of a group that are bits to a word.
fn set_all(state: &mut State, group: usize, pages: u64, word: Word) {
    state.change(group, |book| {
        for (first, count) in runs(pages) {
            (first..first + count).for_each(|page| book.set(group + page * PAGE, word));
        }
    });
}

fn bytes(group: usize, (first, count): (usize, usize)) -> Range<usize> {
    group + first * PAGE..group + (first + count) * PAGE
}

/// Opens what was touched. False if the touch was no business of ours.
pub(super) fn touch(state: &mut State, address: usize) -> bool {
    let group = address & !(GROUP - 1);
    let page = address & !(PAGE - 1);
    match state.book.word(page).place() {
        Place::Slot(_) => {
            make_room(state, 8);
            let (edges, stored) = (state.edges, state.book.stored(group));
            let Some(fold) = &mut state.fold else { return false };
            add(&fold.slot.stored_faults, 1);
            // It may have been opened to make room.
            let wanted = fold.window_stored(page, stored, edges);
            open(state, group, wanted);
            true
        }
        Place::Closed => {
            make_room(state, 8);
            let closed = state.book.pages(group, |_, word| word == Word::CLOSED);
            let (edges, there) = (state.edges, present(group));
            let mut wanted = closed;
            if let Some(fold) = &mut state.fold {
                if there & bits(page_in_group(page), 1) == 0 {
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
            let folds = state.spans.kind(address) == Some(Kind::Folds);
            // SAFETY: the program may read and write there.
            folds && unsafe { protect(&(page..page + PAGE), READ_WRITE) }.is_ok()
        }
    }
}

/// Opens the closed pages of a range, for a system call or for good.
pub(super) fn open_range(state: &mut State, range: &Range<usize>) {
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
            let out: Vec<_> = state.book.out(&(piece.start.max(group)..piece.end)).collect();
            let out = out.into_iter().take_while(|(page, _)| *page < group + GROUP);
            let words: Vec<Word> = out.map(|(_, word)| word).collect();
            set_all(state, group, pages, Word::PROGRAM);
            words.into_iter().for_each(|word| state.give_back(word));
            list(state, group);
        }
    }
    true
}

/// Puts what the store has of these pages in their places, which stay closed.
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
            if !fold.store.read(slot, to) {
                lost("a page of its memory is damaged in the store");
            }
        }
        if !reach::put(place.start, buffer) {
            lost("the system refuses to put its memory back");
        }
        fold.room -= count as i64;
        add(&fold.slot.pages_in, count as u64);
    }
}

/// Queues a group that has pages in memory.
fn list(state: &mut State, group: usize) {
    if let Some(fold) = &mut state.fold
        && !state.melted
        && state.book.queue(group)
    {
        fold.queue.push_back(group);
    }
}

/// Makes room for pages that are about to come, if there is none.
fn make_room(state: &mut State, pages: i64) {
    let lacks = |state: &State| state.fold.as_ref().is_some_and(|it| it.room < pages && !it.stuck);
    if !lacks(state) {
        return;
    }
    let began = Instant::now();
    for _ in 0..STEPS_MAX {
        if !lacks(state) || step(state, OWN) == Step::Nothing {
            break;
        }
    }
    if let Some(fold) = &state.fold {
        add(&fold.slot.stall_ns, began.elapsed().as_nanos() as u64);
    }
}

/// Makes something leave: `least` pages if there are, and more if no thread waits for the lock.
fn step(state: &mut State, least: usize) -> Step {
    let Some(fold) = state.fold.as_mut().filter(|_| !state.melted) else { return Step::Nothing };
    if let Some(group) = fold.next_to_rest() {
        state.book.unqueue(group);
        rest(state, group);
        return Step::Rested;
    }
    let Some((group, there)) = fold.next_to_leave() else { return Step::Nothing };
    match store_some(state, group, there, least) {
        Some(0) => Step::Nothing,
        Some(pages) => Step::Stored(pages),
        None => {
            if let Some(fold) = &mut state.fold {
                fold.has_left();
            }
            state.book.unqueue(group);
            if state.folds(group) & !state.closed(group) & present(group) != 0 {
                list(state, group);
            }
            Step::Rested
        }
    }
}

/// Closes the pages of a group that may leave: it is not pinned, and this process has them alone.
/// Other groups are looked at again after a while.
fn rest(state: &mut State, group: usize) {
    let own = if state.shares { reach::exclusive(group, GROUP_PAGES) } else { u64::MAX };
    let is_shared = state.folds(group) & !state.closed(group) & own == 0;
    if is_shared || !pins::close(group) {
        wait(state, group);
        return;
    }
    let pages = close(state, group, own);
    if let Some(fold) = &mut state.fold
        && state.book.queue(group)
    {
        fold.rests(group, pages);
    }
}

/// Closes pages of a group that is not pinned. Returns how many were open.
fn close(state: &mut State, group: usize, wanted: u64) -> usize {
    let folds = state.folds(group);
    let open = folds & !state.closed(group) & wanted;
    if open == 0 {
        return 0;
    }
    let (first, end) = (open.trailing_zeros(), u64::BITS - open.leading_zeros());
    let all = (first as usize, (end - first) as usize);
    // What lies between open pages is closed, or does not fold.
    let is_one = bits(all.0, all.1) & !folds == 0;
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

/// Stores some pages of a group that rests and are `there`. `None` if there are none, and `Some(0)` if the store is
/// full.
fn store_some(state: &mut State, group: usize, there: u64, least: usize) -> Option<usize> {
    let there = there & state.book.pages(group, |_, word| word == Word::CLOSED);
    let mut some = 0;
    for first in (0..GROUP_PAGES).step_by(STEP) {
        some = there & aligned(first, STEP);
        if some != 0 && state.shares {
            let own = reach::exclusive(group + first * PAGE, STEP) << first;
            if some & !own != 0 {
                wait(state, group);
            }
            some &= own;
        }
        if some != 0 {
            break;
        }
    }
    if some == 0 {
        return None;
    }
    let mut stored = 0;
    for run in runs(some) {
        stored += store_run(state, group, run, least)?;
        if stored >= least && is_awaited() {
            break;
        }
    }
    if let Some(fold) = &mut state.fold {
        fold.room += stored as i64 * 2 / 3;
        fold.stuck = stored == 0;
        add(&fold.slot.pages_out, stored as u64);
    }
    Some(stored)
}

/// Lets a group wait on the shelf: it is pinned, or another process would keep its pages in memory.
fn wait(state: &mut State, group: usize) {
    if let Some(fold) = &mut state.fold
        && fold.shelf.last() != Some(&group)
    {
        fold.shelf.push(group);
    }
}

/// Stores neighbouring pages. `None` if they cannot leave, which means that they are locked.
fn store_run(state: &mut State, group: usize, run: (usize, usize), least: usize) -> Option<usize> {
    let range = bytes(group, run);
    let fold = state.fold.as_mut()?;
    let mut slots = Vec::new();
    let began = fold.is_timed().then(Instant::now);
    for page in range.clone().step_by(PAGE) {
        if slots.len() >= least && is_awaited() {
            break;
        }
        let copy = &mut fold.buffer[..PAGE];
        if !copy_closed(&(page..page + PAGE), copy) {
            break;
        }
        let Some(slot) = fold.store.keep(copy) else { break };
        slots.push(slot);
    }
    if let Some(began) = began.filter(|_| !slots.is_empty()) {
        fold.worth.out_took(began.elapsed() / slots.len() as u32);
    }
    let gone = range.start..range.start + slots.len() * PAGE;
    // SAFETY: the pages are in the store, and closed.
    if gone.start < gone.end && unsafe { advise(&gone, libc::MADV_DONTNEED) }.is_err() {
        slots.iter().for_each(|&slot| fold.store.give_back(slot));
        dissolve(state, &range);
        return None;
    }
    state.change(group, |book| {
        let places = gone.clone().step_by(PAGE).zip(&slots);
        places.for_each(|(page, &slot)| book.set(page, Word::slot(slot)));
    });
    Some(slots.len())
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

/// Opens a range, and keeps it open for `work`.
pub(super) fn held_open<R>(
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
pub(super) fn dissolve(state: &mut State, range: &Range<usize>) {
    held_open(state, range, |state| {
        state.spans.turn(range, Kind::Folds, Kind::Stays);
        state.spans.turn(range, Kind::Bare, Kind::Stays);
    });
}

/// All memory opens, and nothing folds any more.
pub(super) fn melt(state: &mut State) {
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
            look_through(state, &span);
        }
    }
}

/// Queues the groups of a span that have pages in memory, and closes what was never touched.
pub(crate) fn look_through(state: &mut State, span: &Range<usize>) {
    for group in groups(span) {
        let wanted = part(group, span);
        if present(group) & wanted != 0 {
            list(state, group);
        } else if span.len() <= FRESH_MAX && pins::close(group) {
            close(state, group, wanted);
        }
    }
}

/// Looks for memory that the program has touched since, in spans that are too large to close.
pub(crate) fn look_again(state: &mut State) {
    let all: Vec<_> = state.spans.all().collect();
    let large = all.iter().filter(|(span, kind)| *kind == Kind::Folds && span.len() > FRESH_MAX);
    large.for_each(|(span, _)| look_through(state, span));
    state.have_executed();
    if let Some(fold) = &mut state.fold {
        let groups = std::mem::take(&mut fold.shelf);
        groups.into_iter().for_each(|group| list(state, group));
    }
}

/// Memory comes to a range that has no access, and folds. Returns the system's number if it
/// refuses.
pub(super) fn fresh(state: &mut State, range: &Range<usize>) -> Result<(), i32> {
    let is_folding = state.fold.is_some() && !state.melted;
    if is_folding && range.len() <= FRESH_MAX {
        // SAFETY: it changes no byte. An error means that there are no huge pages.
        let _ = unsafe { advise(range, libc::MADV_NOHUGEPAGE) };
        state.spans.set(range, Kind::Folds);
        for group in groups(range) {
            let pages = part(group, range);
            if pins::close(group) {
                set_all(state, group, pages, Word::CLOSED);
            } else {
                // SAFETY: the memory is new.
                unsafe { protect(&bytes_of(group, range), READ_WRITE)? };
                list(state, group);
            }
        }
        return Ok(());
    }
    // SAFETY: the memory is new.
    unsafe { protect(range, READ_WRITE)? };
    let kind = if state.melted { Kind::Stays } else { Kind::Folds };
    state.spans.set(range, kind);
    Ok(())
}

fn bytes_of(group: usize, range: &Range<usize>) -> Range<usize> {
    range.start.max(group)..range.end.min(group + GROUP)
}

/// The program gives memory up.
pub(super) fn give_up(state: &mut State, range: &Range<usize>) -> Result<(), i32> {
    // SAFETY: the program does not want the content.
    unsafe { release(range)? };
    state.forget(range, Word::PROGRAM);
    state.spans.remove(range);
    Ok(())
}

/// Keeps a process within what it may have: makes about `want` pages leave, a step at a time.
/// Returns how many did.
pub(crate) fn hold(want: usize) -> usize {
    let (mut left, mut steps) = (0, 0);
    while left < want {
        match super::state::patiently(|state| step(state, 1)) {
            Step::Stored(pages) => left += pages,
            Step::Rested if steps < 1 << 16 => steps += 1,
            Step::Rested | Step::Nothing => break,
        }
    }
    left
}

/// The pages of memory of a length, rounded outwards.
pub(super) fn pages(start: usize, len: usize) -> Range<usize> {
    outwards(&(start..start.saturating_add(len)))
}

/// A call about whole ranges of the arena, from the passage.
pub(super) fn ask(number: libc::c_long, arguments: [usize; 6]) -> isize {
    // SAFETY: the program asks for it; what it changes is noted by the caller.
    unsafe { pass(number, arguments) }
}
