//! Memory that the program has not touched yet. It is closed, so that the program cannot outrun the
//! pager: a thread that touches it makes room first.
//!
//! ```text
//!   span   | pages in memory |        never touched: whole chunks        | part of a chunk |
//!            queued            closed by one call for all of them          group by group
//! ```
//!
//! A process begins to fold while its threads fill memory. What takes long then is what they
//! outrun. So the system is asked for whole chunks, and neighbours close together.
//!
//! Invariant: C1 and C2 of the state. Lock: the caller has the state.

use super::addresses::{advise, is_touched, present, protect, show};
use super::out::{close, list, set_all};
use super::pins;
use super::state::{State, groups, part};
use crate::places::{CHUNK, GROUP, Kind, Word};
use core::ops::Range;

const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;
/// Larger ranges are not closed, because their pins and their chunks would take too much.
pub(crate) const LEN_MAX: usize = 1 << 36; // 64 GiB

/// Queues the groups of a span that have pages in memory, and closes what was never touched.
pub(crate) fn look_through(state: &mut State, span: &Range<usize>) {
    let closes = span.len() <= LEN_MAX;
    if closes {
        let vacant = chunks(span).filter(|&chunk| state.book.is_vacant(chunk));
        let untouched = vacant.filter(|&chunk| !is_touched(chunk) && may_close(chunk)).collect();
        joined(untouched).iter().for_each(|range| close_chunks(state, range));
    }
    for group in groups(span) {
        let wanted = part(group, span);
        if state.book.is_all_closed(group) {
            continue;
        }
        if present(group) & wanted != 0 {
            list(state, group);
        } else if closes && pins::close(group) {
            close(state, group, wanted);
        }
    }
}

/// Closes whole chunks that were not touched a moment ago, and whose pins say that they close.
fn close_chunks(state: &mut State, range: &Range<usize>) {
    // SAFETY: a touch is served.
    if unsafe { protect(range, libc::PROT_NONE) }.is_err() {
        return; // The system has no more mappings.
    }
    for chunk in chunks(range) {
        state.book.close(chunk);
        if is_touched(chunk) {
            let touched = groups(&chunk_at(chunk)).filter(|&group| present(group) != 0);
            touched.for_each(|group| list(state, group));
        }
    }
}

/// Memory comes to a range that has no access, and folds. Returns the system's number if it
/// refuses.
pub(crate) fn give(state: &mut State, range: &Range<usize>) -> Result<(), i32> {
    show(range);
    state.hidden.remove(range);
    let is_folding = state.fold.is_some() && !state.melted;
    if is_folding && range.len() <= LEN_MAX {
        let done = give_closed(state, range);
        if done.is_err() {
            // The program does not get it.
            let _ = state.give_up(range);
        }
        return done;
    }
    // SAFETY: the memory is new.
    unsafe { protect(range, READ_WRITE)? };
    let kind = if state.melted { Kind::Stays } else { Kind::Folds };
    state.spans.set(range, kind);
    Ok(())
}

/// The same for memory that is closed until it is touched, except where a system call uses a group.
fn give_closed(state: &mut State, range: &Range<usize>) -> Result<(), i32> {
    // SAFETY: it changes no byte. An error means that there are no huge pages.
    let _ = unsafe { advise(range, libc::MADV_NOHUGEPAGE) };
    state.spans.set(range, Kind::Folds);
    for chunk in chunks(range) {
        if state.book.is_vacant(chunk) && may_close(chunk) {
            state.book.close(chunk);
        }
    }
    for group in groups(range) {
        if state.book.is_all_closed(group) {
            continue;
        }
        if pins::close(group) {
            set_all(state, group, part(group, range), Word::CLOSED);
        } else {
            // SAFETY: the memory is new.
            unsafe { protect(&within(group, range), READ_WRITE)? };
            list(state, group);
        }
    }
    Ok(())
}

/// Opens the chunks of a range that were never touched.
pub(crate) fn open(state: &mut State, range: &Range<usize>) {
    let untouched = chunks(range).filter(|&chunk| state.book.is_all_closed(chunk)).collect();
    for range in joined(untouched) {
        // SAFETY: the program may read and write there.
        if unsafe { protect(&range, READ_WRITE) }.is_err() {
            // Then they open group by group, with what helps if there are no more mappings.
            continue;
        }
        state.book.open(&range);
        for group in groups(&range) {
            pins::open(group);
            list(state, group);
        }
    }
}

/// The chunks that lie in a range with all of their pages, by start.
fn chunks(range: &Range<usize>) -> impl Iterator<Item = usize> + use<> {
    let start = range.start.next_multiple_of(CHUNK);
    (start..(range.end & !(CHUNK - 1)).max(start)).step_by(CHUNK)
}

fn chunk_at(start: usize) -> Range<usize> {
    start..start + CHUNK
}

/// Chunks, with neighbours as one range.
fn joined(chunks: Vec<usize>) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for chunk in chunks {
        match ranges.last_mut() {
            Some(last) if last.end == chunk => last.end += CHUNK,
            _ => ranges.push(chunk_at(chunk)),
        }
    }
    ranges
}

/// Notes that the groups of a chunk are about to have closed pages. False if one of them is pinned.
fn may_close(chunk: usize) -> bool {
    groups(&chunk_at(chunk)).all(pins::close)
}

fn within(group: usize, range: &Range<usize>) -> Range<usize> {
    range.start.max(group)..range.end.min(group + GROUP)
}
