//! Memory that moves or goes while the engine knows of it.
//!
//! Invariant: what the book has is what the kernel has, when all news was read.
//!
//! Locks: the engine's.

use super::{KEPT, PAGES, engine, map, read, rig, write};
use crate::kernel::Event;
use crate::places::{PAGE, Place, Word};
use crate::threads::server::Server;
use crate::ways::Staged;
use std::cell::Cell;
use std::ops::Range;
use std::time::{Duration, Instant};

fn remap(from: usize, to: usize, pages: usize) {
    let (len, flags) = (pages * PAGE, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED);
    let (from, place) = (from as *mut libc::c_void, to as *mut libc::c_void);
    // SAFETY: both are mappings of the test, or the place is free.
    assert_eq!(unsafe { libc::mremap(from, len, len, flags, place) } as usize, to);
}

fn unmap(at: usize, pages: usize) {
    // SAFETY: the mapping is the test's.
    assert_eq!(unsafe { libc::munmap(at as *mut libc::c_void, pages * PAGE) }, 0);
}

/// New memory at a place, over what is there.
fn map_at(at: usize, pages: usize) {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: what is there is the test's.
    let new = unsafe { libc::mmap(at as *mut _, pages * PAGE, access, flags, -1, 0) };
    assert_eq!(new as usize, at);
}

#[test]
fn pages_that_move_while_they_are_out_are_found_at_their_new_place() {
    let Some(rig) = rig() else { return };
    assert_eq!(rig.stage_all(), PAGES - KEPT);
    // Half of them are in the store when the memory moves, and half in trays.
    rig.engine.compress_oldest(rig.slot);
    rig.engine.compress_oldest(rig.slot);
    let to = map(PAGES);
    remap(rig.base, to, PAGES);
    while rig.engine.compress_oldest(rig.slot).is_some() {}
    assert_eq!(rig.stored(), PAGES - KEPT);
    assert!((0..PAGES).all(|page| read(to, page) == [page as u64, 1]));
    rig.expect_stored(0);
}

/// One thread moves memory from D to X, and another then moves memory from E to D. Each is told of
/// by a move, and by the unmapping of the old place after it. The two threads' news may come in any
/// order.
#[test]
fn news_of_two_threads_may_come_in_any_order() {
    let Some((engine, slot)) = engine() else { return };
    const LEN: usize = 64 * PAGE;
    let [d, e, x] = [1, 2, 3].map(|place| place << 40);
    let moved = |from, to| Event::Moved { from, to, len: LEN };
    let unmapped = |from| Event::Gone { range: from..from + LEN, unmapped: true };
    let first = || [moved(d, x), unmapped(d)];
    let second = || [moved(e, d), unmapped(e)];
    // The number of the thread that tells next.
    for order in
        [[0, 0, 1, 1], [0, 1, 0, 1], [0, 1, 1, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 1]]
    {
        let mut server = Server::new(engine, slot);
        let mut state = engine.urgent();
        state.book.registered(&(d..d + LEN));
        state.book.registered(&(e..e + LEN));
        state.book.set(d + PAGE, Word::slot(5));
        state.book.set(e + PAGE, Word::slot(6));
        let mut told = [first().into_iter(), second().into_iter()];
        for thread in order {
            let event = told[thread].next().expect("two of each");
            server.act(&mut state, event);
        }
        let places = [d, e, x].map(|at| state.book.word(at + PAGE).place());
        assert_eq!(places, [Place::Slot(6), Place::Program, Place::Slot(5)], "{order:?}");
        let there = [d, e, x].map(|at| state.book.is_registered(&(at..at + LEN)));
        assert_eq!(there, [true, false, true], "{order:?}");
        let all = 0..usize::MAX;
        state.book.forget(&all);
        state.book.unregistered(&all);
    }
}

/// While it is not known that a place is free, no page leaves from there: its word would be taken
/// for that of the memory that was there before.
#[test]
fn nothing_leaves_while_a_move_is_postponed() {
    let Some((engine, slot)) = engine() else { return };
    const LEN: usize = 64 * PAGE;
    let [d, e] = [1, 2].map(|place| place << 40);
    let mut server = Server::new(engine, slot);
    let mut state = engine.urgent();
    state.book.registered(&(d..d + LEN));
    state.book.registered(&(e..e + LEN));
    state.list(d);
    server.act(&mut state, Event::Moved { from: e, to: d, len: LEN });
    drop(state);
    assert_eq!(engine.stage(slot), Staged::Nothing);
    assert!(!engine.urgent().book.queue(d), "it is in the queue still");
    server.act(&mut engine.urgent(), Event::Gone { range: d..d + LEN, unmapped: true });
    assert!(!engine.urgent().news.is_unsettled());
}

/// `MREMAP_DONTUNMAP` leaves the place of the memory where it was, and no news tells so. What comes
/// to that place by another move, and goes, is gone.
#[test]
fn a_place_that_stayed_is_unmapped_as_any_other() {
    let Some(rig) = rig() else { return };
    let (other, whole) = (map(PAGES), rig.base..rig.base + PAGES * PAGE);
    (0..PAGES).for_each(|page| write(other, page, 2));
    rig.engine.adopt(|| vec![other..other + PAGES * PAGE; 1]);
    assert_eq!(rig.page_out(), 2 * (PAGES - KEPT));
    let (from, len) = (rig.base as *mut libc::c_void, PAGES * PAGE);
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP;
    // SAFETY: the mapping is the test's.
    let to = unsafe { libc::mremap(from, len, len, flags, std::ptr::null_mut::<libc::c_void>()) };
    assert_ne!(to, libc::MAP_FAILED);
    assert!((0..PAGES).all(|page| read(rig.base, page) == [0, 0]), "it is new memory");
    assert!((0..PAGES).all(|page| read(to as usize, page) == [page as u64, 1]));
    unmap(rig.base, PAGES / 2);
    unmap(rig.base + PAGES / 2 * PAGE, PAGES / 2);
    remap(other, rig.base, PAGES);
    assert_eq!(rig.out(), PAGES - KEPT);
    map_at(rig.base, PAGES);
    // It was told. The server asks for the mappings in a moment in which there is no other news.
    let begun = Instant::now();
    while rig.engine.urgent().news.waits() {
        assert!(begun.elapsed() < Duration::from_secs(10), "there is such a moment");
        std::thread::yield_now();
    }
    assert!(!rig.engine.urgent().book.is_any_registered(&whole), "other memory is there");
    assert_eq!(rig.out(), 0);
    assert!((0..PAGES).all(|page| read(rig.base, page) == [0, 0]));
}

/// Between the two lists a part of the memory goes. The kernel has not registered what comes to its
/// place.
#[test]
fn a_list_that_is_old_registers_nothing() {
    let Some(rig) = rig() else { return };
    // A part of two groups, which are queued for their other pages.
    let (base, hole) = (map(PAGES), 40..100);
    (0..PAGES).for_each(|page| write(base, page, 1));
    let at = |page: usize| base + page * PAGE;
    let is_first = Cell::new(true);
    rig.engine.adopt(|| -> Vec<Range<usize>> {
        if is_first.replace(false) {
            let old = at(0)..at(PAGES);
            unmap(at(hole.start), hole.len());
            return vec![old; 1];
        }
        vec![at(0)..at(hole.start), at(hole.end)..at(PAGES)]
    });
    map_at(at(hole.start), hole.len());
    hole.clone().for_each(|page| write(base, page, 3));
    rig.page_out();
    let is_out = rig.engine.urgent().book.out(&(at(hole.start)..at(hole.end))).next().is_some();
    assert!(!is_out, "a touch of it would be no fault");
    assert!(hole.clone().all(|page| read(base, page) == [page as u64, 3]));
    assert!((0..PAGES).all(|page| read(base, page)[0] == page as u64));
}
