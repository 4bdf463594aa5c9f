//! Calls about mappings: what the program asks for is done in the arena.
//!
//! ```text
//!   mmap       private, anonymous, 128 KiB or more, with musl 16 KiB: a place in the arena
//!   brk        memory at the arena's start
//!   munmap, mremap, mprotect, madvise, mlock     the kernel is asked, and the book follows
//!   mremap     that the kernel refuses, because its memory was closed in parts: part after part,
//!              also from a place outside the arena, where such memory went
//! ```
//!
//! The access of memory that folds is ours to change, so `mprotect` to the access that it has
//! anyway changes nothing.
//!
//! Invariant: C1 of the state. A call that fails leaves the content as it was, except that `mmap`
//! may have unmapped a part, as POSIX lets it. Lock: the caller has the state.

use super::carry;
use super::code::is_musl;
use crate::arena::addresses::{self, advise, protect};
use crate::arena::fresh;
use crate::arena::state::State;
use crate::arena::way::{ask, dissolve, held_open, pages};
use crate::places::{Kind, MAPPING_MIN, PAGE, SMALL_MIN, Word};
use core::ops::Range;
use libc::c_long;

const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;
/// Not every C library has a name for it.
const MADV_COLLAPSE: i32 = 25;
const ANYWHERE: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
const MREMAP_DONTUNMAP: i32 = 4;
/// The end of the addresses that a program can have.
const ADDRESSES_END: usize = (1 << 47) - PAGE;

const _: () =
    assert!(MREMAP_DONTUNMAP & (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) == 0, "a flag");

/// What a trapped call becomes: an answer, or `None` if the kernel is to do it as it is.
pub(super) type Answer = Option<isize>;

/// Does a call.
pub(super) fn serve(state: &mut State, number: c_long, arguments: &[usize; 6]) -> Answer {
    let [first, second, third, ..] = *arguments;
    // These are ours wherever they begin. Memory that closed in parts may have moved elsewhere, and
    // moves on from there. Of other calls, registers that are no arguments may have any value.
    let is_placed = matches!(number, libc::SYS_mmap | libc::SYS_brk | libc::SYS_mremap);
    if !is_placed && !addresses::contains(first) {
        return None;
    }
    match number {
        libc::SYS_mmap => map(state, arguments),
        libc::SYS_brk => Some(brk(state, first)),
        libc::SYS_munmap => Some(unmap(state, first, second)),
        libc::SYS_mremap => remap(state, arguments),
        libc::SYS_mprotect => Some(change_access(state, number, arguments)),
        libc::SYS_pkey_mprotect | libc::SYS_mlock | libc::SYS_mlock2 => {
            dissolve(state, &whole(first, second));
            None
        }
        libc::SYS_madvise => take_advice(state, first, second, third as i32),
        // They name memory that is not anonymous, and the arena has none at first.
        _ => None,
    }
}

fn error(number: i32) -> isize {
    -(number as isize)
}

fn result(done: Result<(), i32>, value: usize) -> isize {
    done.map_or_else(error, |()| value as isize)
}

/// The part of a range that is in the arena, as whole pages.
fn whole(start: usize, len: usize) -> Range<usize> {
    let (range, all) = (pages(start, len), addresses::range());
    let start = range.start.clamp(all.start, all.end);
    start..range.end.clamp(start, all.end)
}

/// Whether a range begins with a page, and all of it is in the arena.
fn is_whole(start: usize, len: usize) -> bool {
    start.is_multiple_of(PAGE) && is_inside(&pages(start, len))
}

fn is_inside(range: &Range<usize>) -> bool {
    let all = addresses::range();
    all.start <= range.start && range.end <= all.end && range.start <= range.end
}

fn map(state: &mut State, arguments: &[usize; 6]) -> Answer {
    let [at, len, access, flags, ..] = *arguments;
    let (access, flags) = (access as i32, flags as i32);
    if len == 0 || len > addresses::LEN_MAX {
        return None;
    }
    let len = len.next_multiple_of(PAGE);
    let fixed = libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE;
    if flags & fixed != 0 {
        return addresses::contains(at).then(|| map_at(state, arguments, &(at..at + len)));
    }
    let is_plain = flags & !libc::MAP_NORESERVE == ANYWHERE;
    let is_ours = matches!(access, READ_WRITE | libc::PROT_NONE);
    if !is_plain || !is_ours || len < least() || state.melted {
        return None;
    }
    let hint = at & !(PAGE - 1);
    let fits =
        is_inside(&(hint..hint.saturating_add(len))) && state.spans.is_free(&(hint..hint + len));
    let place = if fits { hint } else { state.spans.place(len, &addresses::range_for(len))? };
    let range = place..place + len;
    if access == libc::PROT_NONE {
        state.spans.set(&range, Kind::Bare);
        state.hidden.set(&range, ());
        return Some(place as isize);
    }
    Some(result(fresh::give(state, &range), place))
}

/// Shorter mappings do not fold. The heap of musl is of mappings of `16 KiB` to `64 KiB`, and that
/// of glibc is not.
fn least() -> usize {
    if is_musl() { SMALL_MIN } else { MAPPING_MIN }
}

/// A mapping at an address of the arena that the program names.
fn map_at(state: &mut State, arguments: &[usize; 6], range: &Range<usize>) -> isize {
    let [at, len, access, flags, fd, offset] = *arguments;
    let (access, flags) = (access as i32, flags as i32);
    if !is_inside(range) {
        return error(libc::ENOMEM);
    }
    if flags & libc::MAP_FIXED_NOREPLACE != 0 && !state.spans.is_free(range) {
        return error(libc::EEXIST);
    }
    let flags = flags & !libc::MAP_FIXED_NOREPLACE | libc::MAP_FIXED;
    let is_plain = flags & !(libc::MAP_NORESERVE | libc::MAP_FIXED) == ANYWHERE;
    let map = || ask(libc::SYS_mmap, [at, len, access as usize, flags as usize, fd, offset]);
    let mapped = match is_plain {
        // Programs give memory back so, and much of it may be out. It need not come in for that.
        true => map(),
        // The kernel may fail after it has taken the old memory away. So it is whole until then.
        false => held_open(state, range, |_| map()),
    };
    if mapped < 0 {
        // Whatever has gone is reserved again.
        let has_gone = || ask(libc::SYS_msync, [at, len, libc::MS_ASYNC as usize, 0, 0, 0]) < 0;
        if is_plain && has_gone() {
            let _ = state.give_up(range);
        }
        return mapped;
    }
    state.forget(range, Word::PROGRAM);
    let kind = match access {
        _ if !is_plain || state.melted => Kind::Stays,
        READ_WRITE => Kind::Folds,
        _ => Kind::Bare,
    };
    state.spans.set(range, kind);
    state.left_out.remove(range);
    state.hidden.remove(range);
    match kind {
        Kind::Folds => look(state, range),
        Kind::Bare if access == libc::PROT_NONE => {
            addresses::hide(range);
            state.hidden.set(range, ());
        }
        _ => {}
    }
    mapped
}

/// Memory of a range folds from now on, and has the access of memory that does.
fn look(state: &mut State, range: &Range<usize>) {
    if state.fold.is_some() {
        // SAFETY: it changes no byte. An error means that there are no huge pages.
        let _ = unsafe { advise(range, libc::MADV_NOHUGEPAGE) };
        fresh::look_through(state, range);
    }
}

fn brk(state: &mut State, wanted: usize) -> isize {
    let all = addresses::brk_range();
    if !all.contains(&wanted) {
        return state.brk as isize;
    }
    let (old, new) = (state.brk.next_multiple_of(PAGE), wanted.next_multiple_of(PAGE));
    let done = match new {
        _ if new > old && !state.spans.is_free(&(old..new)) => Err(libc::ENOMEM),
        _ if new > old => fresh::give(state, &(old..new)),
        _ if new < old => state.give_up(&(new..old)),
        _ => Ok(()),
    };
    if done.is_ok() {
        state.brk = wanted;
    }
    state.brk as isize
}

fn unmap(state: &mut State, at: usize, len: usize) -> isize {
    let is_range = len > 0 && len <= ADDRESSES_END - at.min(ADDRESSES_END);
    if !at.is_multiple_of(PAGE) || !is_range {
        return error(libc::EINVAL);
    }
    let range = whole(at, len);
    result(state.give_up(&range), 0)
}

fn change_access(state: &mut State, number: c_long, arguments: &[usize; 6]) -> isize {
    let [at, len, access, ..] = *arguments;
    let range = at..at.saturating_add(len).next_multiple_of(PAGE);
    if !at.is_multiple_of(PAGE) || !is_inside(&range) {
        return error(if at.is_multiple_of(PAGE) { libc::ENOMEM } else { libc::EINVAL });
    }
    let pieces: Vec<_> = state.spans.pieces(&range).collect();
    let covered: usize = pieces.iter().map(|(piece, _)| piece.len()).sum();
    if covered < range.len() {
        return error(libc::ENOMEM);
    }
    for (piece, kind) in pieces {
        let done = match (kind, access as i32) {
            (Kind::Folds, READ_WRITE) => Ok(()),
            (Kind::Bare, READ_WRITE) => open_bare(state, &piece),
            (Kind::Folds, _) => held_open(state, &piece, |state| {
                give_access(number, &piece, access, arguments[3])
                    .map(|()| state.spans.set(&piece, Kind::Bare))
            }),
            (Kind::Bare | Kind::Stays, _) => {
                if access as i32 != libc::PROT_NONE {
                    show_hidden(state, &piece);
                }
                give_access(number, &piece, access, arguments[3])
            }
        };
        if let Err(number) = done {
            return error(number);
        }
    }
    0
}

fn give_access(number: c_long, range: &Range<usize>, access: usize, key: usize) -> Result<(), i32> {
    let answer = ask(number, [range.start, range.len(), access, key, 0, 0]);
    if answer < 0 { Err(-answer as i32) } else { Ok(()) }
}

/// A core file has what may be read from now on, unless the program itself has said otherwise.
fn show_hidden(state: &mut State, range: &Range<usize>) {
    state.hidden.pieces(range).for_each(|(piece, ())| addresses::show(&piece));
    state.hidden.remove(range);
}

/// Memory that had other access may be read and written, and folds.
fn open_bare(state: &mut State, range: &Range<usize>) -> Result<(), i32> {
    show_hidden(state, range);
    // SAFETY: the program asks for it.
    unsafe { protect(range, READ_WRITE)? };
    let kind = if state.melted { Kind::Stays } else { Kind::Folds };
    state.spans.set(range, kind);
    if kind == Kind::Folds {
        look(state, range);
    }
    Ok(())
}

fn take_advice(state: &mut State, at: usize, len: usize, advice: i32) -> Answer {
    let range = whole(at, len);
    match advice {
        libc::MADV_DONTNEED => {
            if !at.is_multiple_of(PAGE) {
                return None;
            }
            let given = ask(libc::SYS_madvise, [at, len, advice as usize, 0, 0, 0]);
            if given == 0 {
                state.forget(&range, Word::CLOSED);
            }
            Some(given)
        }
        // The content may stay: what is out stays there.
        libc::MADV_FREE | libc::MADV_COLD | libc::MADV_PAGEOUT => None,
        libc::MADV_NORMAL | libc::MADV_RANDOM | libc::MADV_SEQUENTIAL | libc::MADV_WILLNEED => {
            Some(0)
        }
        libc::MADV_HUGEPAGE | libc::MADV_NOHUGEPAGE | MADV_COLLAPSE => {
            state.fold.is_some().then_some(0)
        }
        libc::MADV_DONTDUMP | libc::MADV_DODUMP => None,
        libc::MADV_DONTFORK | libc::MADV_DOFORK if is_whole(at, len) => {
            Some(leave_out(state, &range, advice))
        }
        libc::MADV_POPULATE_READ | libc::MADV_POPULATE_WRITE => {
            let arguments = [at, len, advice as usize, 0, 0, 0];
            Some(held_open(state, &range, |_| ask(libc::SYS_madvise, arguments)))
        }
        _ => {
            dissolve(state, &range);
            None
        }
    }
}

/// A forked child does not get this memory, or gets it again. The arena's reserve between it is a
/// child's too.
fn leave_out(state: &mut State, range: &Range<usize>, advice: i32) -> isize {
    let pieces: Vec<_> = state.spans.pieces(range).map(|(piece, _)| piece).collect();
    let covered: usize = pieces.iter().map(Range::len).sum();
    for piece in pieces {
        let give = |advice: i32| {
            ask(libc::SYS_madvise, [piece.start, piece.len(), advice as usize, 0, 0, 0])
        };
        let given = give(advice);
        if given < 0 {
            // A part of it may have got the advice. A child gets all that nothing is noted of.
            let noted = state.left_out.is_all(&piece, ());
            let _ = give(if noted { libc::MADV_DONTFORK } else { libc::MADV_DOFORK });
            return given;
        }
        match advice {
            libc::MADV_DONTFORK => state.left_out.set(&piece, ()),
            _ => state.left_out.remove(&piece),
        }
    }
    if covered < range.len() { error(libc::ENOMEM) } else { 0 }
}

fn remap(state: &mut State, arguments: &[usize; 6]) -> Answer {
    let [at, old_len, new_len, flags, to, _] = *arguments;
    let (old_len, new_len) = (round(old_len)?, round(new_len)?);
    let old = at..at.checked_add(old_len)?;
    let is_simple = flags as i32 & !libc::MREMAP_MAYMOVE == 0
        && old_len > 0
        && new_len > 0
        && state.left_out.is_free(&old);
    if is_simple && at.is_multiple_of(PAGE) && state.spans.is_all(&old, Kind::Folds) {
        return Some(resize(state, &old, new_len, flags as i32 & libc::MREMAP_MAYMOVE != 0));
    }
    // Without MREMAP_FIXED it may have any value.
    Some(remap_otherwise(state, arguments, &old, &(to..to.saturating_add(new_len))))
}

fn round(len: usize) -> Option<usize> {
    len.checked_next_multiple_of(PAGE)
}

/// Memory that folds becomes longer or shorter, and may move.
fn resize(state: &mut State, old: &Range<usize>, len: usize, may_move: bool) -> isize {
    let new = old.start..old.start.saturating_add(len);
    if len <= old.len() {
        let rest = new.end..old.end;
        return if rest.is_empty() {
            old.start as isize
        } else {
            result(state.give_up(&rest), old.start)
        };
    }
    let grown = old.end..new.end;
    if is_inside(&grown) && state.spans.is_free(&grown) {
        return result(fresh::give(state, &grown), old.start);
    }
    let place = state.spans.place(len, &addresses::range_for(len)).filter(|_| may_move);
    let Some(place) = place else { return error(libc::ENOMEM) };
    if let Err(number) = fresh::give(state, &(place..place + len)) {
        return error(number);
    }
    carry::all(state, old, place);
    result(state.give_up(old), place)
}

/// Memory of another kind, or to a place that the program names.
fn remap_otherwise(
    state: &mut State,
    arguments: &[usize; 6],
    old: &Range<usize>,
    new: &Range<usize>,
) -> isize {
    let flags = arguments[3] as i32;
    let is_named = flags & libc::MREMAP_FIXED != 0;
    let target = whole(new.start, new.len());
    let source = whole(old.start, old.len());
    dissolve(state, &source);
    let left_out = left_out_of(state, old, new.len());
    let is_hidden = state.hidden.pieces(&source).next().is_some();
    // A hole is a mapping too, the arena's reserve, and does not move.
    let covered: usize = state.spans.pieces(&source).map(|(piece, _)| piece.len()).sum();
    // Memory that came from here in parts is in parts elsewhere too.
    let may_be_parts = covered == old.len() || source.is_empty();
    let place = state.spans.place(new.len(), &addresses::range_for(new.len()));
    let how = |_: &mut State| match may_be_parts {
        true => moved_whole_or_in_parts(arguments, place),
        false => moved_whole(arguments),
    };
    let moved = if is_named { held_open(state, &target, how) } else { how(state) };
    if moved < 0 {
        return moved;
    }
    if moved as usize != old.start && flags & MREMAP_DONTUNMAP == 0 && !source.is_empty() {
        // The place is free now, and reserved again.
        let _ = state.give_up(&source);
    }
    let target = whole(moved as usize, new.len());
    state.left_out.remove(&target);
    for part in left_out {
        state.left_out.set(&whole(moved as usize + part.start, part.len()), ());
    }
    if moved as usize == old.start && new.len() < old.len() {
        let _ = state.give_up(&(target.end..source.end.max(target.end)));
    }
    state.spans.set(&target, Kind::Stays);
    if is_hidden {
        state.hidden.set(&target, ());
    }
    moved
}

/// What of a range a child does not get, counted from its start, when it has a new length. What
/// comes to its end is like the end.
fn left_out_of(state: &State, old: &Range<usize>, len: usize) -> Vec<Range<usize>> {
    let parts = state.left_out.pieces(old).map(|(piece, ())| {
        let end = if piece.end == old.end { len } else { piece.end - old.start };
        (piece.start - old.start).min(len)..end.min(len)
    });
    parts.collect()
}

fn moved_whole(arguments: &[usize; 6]) -> isize {
    ask(libc::SYS_mremap, *arguments)
}

/// Asks the kernel for a move. What was closed in parts may be several mappings still, which it
/// does not move together. The program knows of one, so these are moved one after the other.
/// They go to `free`, which is of the arena: what is in parts elsewhere could not move again.
fn moved_whole_or_in_parts(arguments: &[usize; 6], free: Option<usize>) -> isize {
    let moved = moved_whole(arguments);
    let [at, old_len, new_len, flags, to, _] = *arguments;
    let only = |flag: i32| flags as i32 & flag != 0;
    if moved != error(libc::EFAULT) || !only(libc::MREMAP_MAYMOVE) || only(MREMAP_DONTUNMAP) {
        return moved;
    }
    let (Some(old_len), Some(new_len)) = (round(old_len), round(new_len)) else { return moved };
    if old_len == 0 || new_len == 0 {
        return moved;
    }
    let is_named = only(libc::MREMAP_FIXED);
    let Some(place) = (if is_named { Some(to) } else { free }) else { return moved };
    let kept = old_len.min(new_len);
    // From Linux 6.17 on, a part may have a hole in it and move. The program's mapping has none.
    if ask(libc::SYS_msync, [at, kept, libc::MS_ASYNC as usize, 0, 0, 0]) < 0 {
        return moved;
    }
    match moved_in_parts(at, kept, place, new_len) {
        Ok(()) => {
            // What is too much has gone by the first try, or goes now.
            if kept < old_len {
                let _ = ask(libc::SYS_munmap, [at + kept, old_len - kept, 0, 0, 0, 0]);
            }
            place as isize
        }
        Err(number) => {
            if !is_named {
                // SAFETY: the place was free, and what came there has gone back.
                let _ = unsafe { addresses::release(&(place..place + new_len)) };
            }
            error(number)
        }
    }
}

/// Moves as much at a time as the kernel does. The last part becomes as long as it has to. If a
/// part cannot be moved, those before it are moved back.
fn moved_in_parts(at: usize, len: usize, place: usize, new_len: usize) -> Result<(), i32> {
    let mut done = 0;
    while done < len {
        let mut part = len - done;
        loop {
            let is_last = done + part == len;
            let new = if is_last { new_len - done } else { part };
            match moved_to(at + done, part, place + done, new) {
                0.. => break,
                refused if refused == error(libc::EFAULT) && part > PAGE => {
                    part = (part / 2).next_multiple_of(PAGE);
                }
                refused => {
                    if done > 0 {
                        let _ = moved_in_parts(place, done, at, done);
                    }
                    return Err(-refused as i32);
                }
            }
        }
        done += part;
    }
    Ok(())
}

fn moved_to(from: usize, len: usize, to: usize, new_len: usize) -> isize {
    let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as usize;
    ask(libc::SYS_mremap, [from, len, new_len, flags, to, 0])
}
