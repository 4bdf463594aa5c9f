//! What is known of the arena, under one lock: spans, book, and what the process folds with.
//!
//! ```text
//!   thread of the program --cross--> strand --with--> State
//!   pager, a strand ----------------------- with ----'
//!   fork      the thread that forks has the turn, so its child finds all of it whole
//! ```
//!
//! Invariants
//! - C1: a page whose word is not `PROGRAM` has no access, and lies in a span that folds.
//! - C2: a group with such a page has the bit of `pins`.
//! - C3: our heap and the store are used by threads that have the turn, so that a child finds them
//!   whole. Before the first fork the pager begins with the turn too.
//! - C4: `left_out` is what the system does not give to a forked child. A child loses the words,
//!   slots and spans of it before anything else is done under the lock.
//!
//! Lock: the turn. The store's locks are taken under it.

use super::executing::{Caller, Executing};
use super::fold::{Fold, is_stuck};
use super::narrow::Narrow;
use super::stacks::Stacks;
use super::{addresses, files, pins};
use crate::floor::call::{self, call};
use crate::floor::crossing;
use crate::floor::turn::{Taken, Turn};
use crate::kernel::lost;
use crate::places::{Book, CHUNK, GROUP, PAGE, Place, Word, bits, page_in_group};
use crate::places::{Kind, Spans};
use core::cell::UnsafeCell;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// What the lock guards.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) spans: Spans,
    /// What a forked child does not get (`MADV_DONTFORK`).
    pub(crate) left_out: Spans<()>,
    /// Memory without access that a core file leaves out until the program may read it.
    pub(crate) hidden: Spans<()>,
    /// This is a forked child, and still has what it did not get. It is lost by the first thread
    /// that has the lock, because heap and store need a strand.
    is_new: bool,
    pub(crate) book: Book,
    /// The end of what `brk` gave.
    pub(crate) brk: usize,
    /// There from the moment at which the process begins to fold.
    pub(crate) fold: Option<Fold>,
    /// The process does something that cannot be served, so nothing folds any more.
    pub(crate) melted: bool,
    /// Stacks for handlers of SIGSEGV.
    pub(crate) stacks: Stacks,
    /// Stacks for children in this memory, by the threads that wait for them.
    pub(crate) wide: Stacks,
    /// Memory for stacks of threads that are small.
    pub(crate) narrow: Narrow,
    /// Threads that execute programs.
    pub(crate) executing: Executing,
    /// How often the process has forked, and the one by which it was made. If ever, it may share
    /// pages.
    pub(crate) forks: u32,
    /// Neighbouring pages of which one is closed: each may be two mappings.
    pub(crate) edges: usize,
}

/// How long the pager steps aside for threads of the program, and how often at most: there may
/// always be one that waits, and the figures of the board have to come.
const STEP_ASIDE: Duration = Duration::from_micros(50);
const STEPS_ASIDE: u32 = 20; // 1 ms

struct Shared(UnsafeCell<Option<Box<State>>>);

// SAFETY: it is reached under the turn.
unsafe impl Sync for Shared {}

static STATE: Shared = Shared(UnsafeCell::new(None));
static TURN: Turn = Turn::new();
/// Threads of the program that wait for the turn: the pager lets them go first.
static AWAITED: AtomicU32 = AtomicU32::new(0);
/// 1 while there is no room before pages have gone to the disk. Threads that bring pages in wait.
static FULL: AtomicU32 = AtomicU32::new(0);
/// How long a thread waits for the disk at most, in looks of so many milliseconds.
const FULL_LOOKS: u32 = 100; // 1 s
const FULL_LOOK: u64 = 10;
/// 1 if the thread that has the turn forks.
static FORKING: AtomicU32 = AtomicU32::new(0);
/// A page whose first word is 1; in a forked child 0.
static HERE: AtomicUsize = AtomicUsize::new(0);
/// The process that has the memory.
static HOME: AtomicU32 = AtomicU32::new(0);

/// Makes the state. Called on a strand, before any other use.
///
/// # Errors
///
/// The system's number.
pub(crate) fn make() -> Result<(), i32> {
    let access = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize;
    // SAFETY: a new mapping at an address that the kernel chooses.
    let here = unsafe { call(libc::SYS_mmap, [0, PAGE, access, flags, usize::MAX, 0]) };
    if here <= 0 {
        return Err(libc::ENOMEM);
    }
    let advice = libc::MADV_WIPEONFORK as usize;
    // SAFETY: the page is new, and ours.
    let wiped = unsafe { call(libc::SYS_madvise, [here as usize, PAGE, advice, 0, 0, 0]) };
    if wiped < 0 {
        return Err(-wiped as i32);
    }
    let state = State { brk: addresses::START, ..State::default() };
    // SAFETY: nobody else uses it yet.
    unsafe { *STATE.0.get() = Some(Box::new(state)) };
    // relaxed: there is one thread.
    HERE.store(here as usize, Ordering::Relaxed);
    come_home();
    Ok(())
}

/// What forked children call, once they have come home.
static CHILD: AtomicUsize = AtomicUsize::new(0);

/// Says what forked children call.
pub(crate) fn set_child(child: fn()) {
    // relaxed: there is one thread.
    CHILD.store(child as usize, Ordering::Relaxed);
}

/// In a forked child, whose signals are blocked. It may have the table of descriptors of its
/// parent. If it gets no strand, it makes room for itself as its threads touch memory.
pub(crate) fn in_child(shares_descriptors: bool, has_strands: bool) {
    settle();
    if !shares_descriptors {
        files::open();
    }
    if !has_strands {
        return;
    }
    // relaxed: it is written before there are threads.
    let child = CHILD.load(Ordering::Relaxed);
    if child != 0 {
        // SAFETY: it is the function that was given.
        unsafe { core::mem::transmute::<usize, fn()>(child)() };
    }
}

fn come_home() {
    // relaxed: there is one thread.
    HOME.store(pid(), Ordering::Relaxed);
    // relaxed: as above.
    let here = HERE.load(Ordering::Relaxed) as *mut u32;
    // SAFETY: the page is mapped as long as the process lives.
    unsafe { here.write_volatile(1) };
}

/// Whether a thread is in the process that has the memory. A child made by `vfork` is not: the
/// memory is its parent's.
pub(crate) fn is_home() -> bool {
    home() == pid()
}

fn home() -> u32 {
    // relaxed: it changes only while there is one thread.
    HOME.load(Ordering::Relaxed)
}

/// The calling thread, and whose memory it has.
pub(crate) fn caller() -> Caller {
    Caller { thread: thread(), home: home(), is_home: is_home() }
}

/// Does `work` under the lock. The thread is on a strand; if it is the program's, it has settled.
pub(crate) fn with<R>(work: impl FnOnce(&mut State) -> R) -> R {
    // relaxed: it is advice.
    AWAITED.fetch_add(1, Ordering::Relaxed);
    let taken = TURN.take(thread());
    // relaxed: as above.
    AWAITED.fetch_sub(1, Ordering::Relaxed);
    under(taken, work)
}

/// The same for the pager, which lets the program's threads go first while they make room for
/// themselves.
pub(crate) fn patiently<R>(work: impl FnOnce(&mut State) -> R) -> R {
    let steps = (0..STEPS_ASIDE).take_while(|_| is_awaited() && !is_stuck());
    steps.for_each(|_| std::thread::sleep(STEP_ASIDE));
    under(TURN.take(thread()), work)
}

/// Whether a thread of the program waits for the lock.
pub(crate) fn is_awaited() -> bool {
    // relaxed: it is advice.
    AWAITED.load(Ordering::Relaxed) > 0
}

/// There is no room before pages have gone on to the disk.
pub(super) fn is_full() {
    // relaxed: it is advice.
    FULL.store(1, Ordering::Relaxed);
}

/// The pager has written some pages, or could not.
pub(crate) fn go_on() {
    // relaxed: as above.
    if FULL.swap(0, Ordering::Relaxed) != 0 {
        call::wake(&FULL);
    }
}

/// A thread of the program has brought pages in, and waits for the disk if that left no room. It
/// does not have the turn.
pub(crate) fn wait_for_disk() {
    // relaxed: as above.
    let is_full = || FULL.load(Ordering::Relaxed) != 0;
    if !is_full() || !is_home() {
        return;
    }
    let began = Instant::now();
    let looks = (0..FULL_LOOKS).take_while(|_| is_full());
    looks.for_each(|_| call::wait(&FULL, 1, FULL_LOOK));
    with(|state| {
        if let Some(fold) = &state.fold {
            let nanos = began.elapsed().as_nanos() as u64;
            // relaxed: a figure.
            fold.slot.stall_ns.fetch_add(nanos, Ordering::Relaxed);
        }
    });
}

fn under<R>(taken: Taken, work: impl FnOnce(&mut State) -> R) -> R {
    // SAFETY: this thread has the turn.
    let state = unsafe { (*STATE.0.get()).as_deref_mut() };
    let state = state.unwrap_or_else(|| lost("nothing is known of its memory"));
    if state.is_new {
        state.lose_left_out();
    }
    let done = work(state);
    if taken == Taken::Now {
        TURN.give();
    }
    done
}

/// Finds out whether this is a forked child that has not come home yet, and lets it. A thread of
/// the program does this before it crosses over.
pub(crate) fn settle() {
    // relaxed: it is written before there are threads.
    let here = HERE.load(Ordering::Relaxed) as *const u32;
    // SAFETY: the page is mapped as long as the process lives.
    if unsafe { here.read_volatile() } == 1 {
        return;
    }
    // relaxed: there is one thread.
    if FORKING.swap(0, Ordering::Relaxed) == 0 && TURN.is_taken() {
        // The child was made past the C library, while another thread of its parent was at work.
        lost("it was made by clone itself, while its parent's memory was on the move");
    }
    TURN.give();
    come_home();
    files::forget();
    crossing::settle();
    // relaxed: as above.
    AWAITED.store(0, Ordering::Relaxed);
    // relaxed: as above.
    FULL.store(0, Ordering::Relaxed);
    // SAFETY: there is one thread, and the work on the state was done.
    let state = unsafe { (*STATE.0.get()).as_deref_mut() };
    if let Some(state) = state {
        state.fold.iter_mut().for_each(|fold| fold.is_written = false);
        state.stacks.settle(thread());
        state.wide.settle(thread());
        state.is_new = true;
        let folds = state.spans.all().filter(|(_, kind)| *kind == Kind::Folds);
        folds.for_each(|(range, _)| pins::settle(&range));
    }
}

/// Called before a fork, by the thread that forks. It takes no signal.
pub(crate) fn before_fork() {
    settle();
    TURN.take(thread());
    // relaxed: under the lock.
    FORKING.store(1, Ordering::Relaxed);
    // SAFETY: this thread has the turn.
    if let Some(state) = unsafe { (*STATE.0.get()).as_deref_mut() } {
        state.forks = state.forks.wrapping_add(1).max(1);
    }
}

/// Called after a fork, in the parent. In the child, `settle` is called.
pub(crate) fn after_fork() {
    // relaxed: under the lock.
    FORKING.store(0, Ordering::Relaxed);
    TURN.give();
}

/// The number of this thread.
pub(crate) fn thread() -> u32 {
    // SAFETY: the call has no arguments.
    unsafe { call(libc::SYS_gettid, [0; 6]) as u32 }
}

fn pid() -> u32 {
    // SAFETY: the call has no arguments.
    unsafe { call(libc::SYS_getpid, [0; 6]) as u32 }
}

/// The groups that a range has a part of.
pub(crate) fn groups(range: &Range<usize>) -> impl Iterator<Item = usize> + use<> {
    (range.start & !(GROUP - 1)..range.end).step_by(GROUP)
}

/// The pages of a group of which a range has a part, as bits.
pub(crate) fn part(group: usize, range: &Range<usize>) -> u64 {
    let range = outwards(range);
    let (start, end) = (range.start.max(group), range.end.min(group + GROUP));
    if start >= end { 0 } else { bits(page_in_group(start), (end - start) / PAGE) }
}

/// The pages of an address range, rounded outwards.
pub(crate) fn outwards(range: &Range<usize>) -> Range<usize> {
    range.start & !(PAGE - 1)..range.end.saturating_add(PAGE - 1) & !(PAGE - 1)
}

impl State {
    /// The pages of a group that are closed, as bits.
    pub(crate) fn closed(&self, group: usize) -> u64 {
        self.book.pages(group, |_, word| word != Word::PROGRAM)
    }

    /// The pages of a group that fold, as bits.
    pub(crate) fn folds(&self, group: usize) -> u64 {
        let pieces = self.spans.pieces(&(group..group + GROUP));
        let folds = pieces.filter(|(_, kind)| *kind == Kind::Folds);
        folds.fold(0, |all, (piece, _)| all | part(group, &piece))
    }

    /// The groups of a range that have closed pages of which it has a part.
    pub(crate) fn closed_groups(&self, range: &Range<usize>) -> BTreeSet<usize> {
        self.book.out(&outwards(range)).map(|(address, _)| address & !(GROUP - 1)).collect()
    }

    /// Changes words of a group, and keeps what depends on them.
    pub(crate) fn change(&mut self, group: usize, work: impl FnOnce(&mut Book)) {
        let before = edges(self.closed(group));
        work(&mut self.book);
        let closed = self.closed(group);
        self.edges = (self.edges + edges(closed)).saturating_sub(before);
        if closed == 0 {
            pins::open(group);
        }
    }

    /// The content of closed pages of a range is not wanted any more. Their words become `word`.
    pub(crate) fn forget(&mut self, range: &Range<usize>, word: Word) {
        if word == Word::PROGRAM {
            let untouched = self.book.open(range).into_iter();
            untouched.flat_map(|chunk| groups(&(chunk..chunk + CHUNK))).for_each(pins::open);
        }
        for group in self.closed_groups(range) {
            let within = range.start.max(group)..range.end.min(group + GROUP);
            let out: Vec<(usize, Word)> = self.book.out(&within).collect();
            self.change(group, |book| out.iter().for_each(|&(page, _)| book.set(page, word)));
            out.iter().for_each(|&(_, word)| self.give_back(word));
        }
    }

    /// The program gives memory up.
    ///
    /// # Errors
    ///
    /// The system's number.
    pub(crate) fn give_up(&mut self, range: &Range<usize>) -> Result<(), i32> {
        // SAFETY: the program does not want the content.
        unsafe { addresses::release(range)? };
        self.forget(range, Word::PROGRAM);
        self.spans.remove(range);
        self.left_out.remove(range);
        Ok(())
    }

    /// In a child: the system did not give it this memory. Its places are reserved again, so that
    /// they may be used.
    fn lose_left_out(&mut self) {
        self.is_new = false;
        let all: Vec<_> = self.left_out.all().map(|(range, ())| range).collect();
        for range in all {
            if self.give_up(&range).is_err() {
                lost("the system has no more mappings for it");
            }
        }
    }

    /// A stack for this thread, which wants none, or a small one, and is told so. A child that
    /// shares this memory gets none: its parent's threads are unknown to it.
    pub(crate) fn stack(&mut self, told: Option<libc::stack_t>) -> Option<libc::stack_t> {
        if is_home() { self.stacks.give(thread(), told) } else { None }
    }

    /// A stack for a child that this thread waits for. A child that shares this memory gets none,
    /// as above.
    pub(crate) fn wide_stack(&mut self) -> Option<libc::stack_t> {
        if is_home() { self.wide.give(thread(), None) } else { None }
    }

    pub(crate) fn give_back(&self, word: Word) {
        if let (Place::Slot(slot), Some(fold)) = (word.place(), &self.fold) {
            fold.store.give_back(slot);
        }
    }
}

/// Neighbours in a group of which one is closed and the other is not. A group that is all closed
/// lies mostly between others like it.
fn edges(closed: u64) -> usize {
    if closed == u64::MAX { 0 } else { (closed ^ closed << 1).count_ones() as usize }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_the_pages_of_its_first_and_last_byte() {
        let mut state = State::default();
        let group = addresses::START;
        for page in [2, 3, 63] {
            state.book.set(group + page * PAGE, Word::CLOSED);
        }
        let closed_in = |start: usize, end: usize| {
            let range = group + start..group + end;
            let groups = state.closed_groups(&range).into_iter();
            groups
                .map(|group| part(group, &range) & state.closed(group))
                .fold(0, |all, it| all | it)
        };
        assert_eq!(closed_in(2 * PAGE + 1, 2 * PAGE + 2), bits(2, 1), "within a page");
        assert_eq!(closed_in(2 * PAGE + 4000, 3 * PAGE + 10), bits(2, 2), "over an edge");
        assert_eq!(closed_in(PAGE + 1, 2 * PAGE), 0, "up to an edge");
        assert_eq!(closed_in(63 * PAGE + 9, 64 * PAGE + 9), bits(63, 1), "over the group's end");
        assert_eq!(closed_in(4 * PAGE, 63 * PAGE), 0, "between");
    }
}
