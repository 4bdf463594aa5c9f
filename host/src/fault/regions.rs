//! The table in which a fault finds the region of an address, without a lock.
//!
//! ```text
//!            enter                    retire                   drop
//!   free  ---------->  watched  ------------------>  gone  ---------->  free
//!   0..0            range, server       range, no server        0..0
//!
//!   fault:  range covers?  visitors + 1   server?   serve   visitors - 1
//! ```
//!
//! A region that is gone keeps its range until its addresses are given back. A thread that touches
//! it then learns that it is gone. If the table forgot it, the fault would go elsewhere.
//!
//! Invariants
//! - R1: a server is called only between an increment and a decrement of the visitors of its slot.
//!   It is dropped after its pointer was taken out and a look has then found no visitor. Each
//!   visitor is counted before that look, or finds no server.
//! - R2: a slot is entered under the lock, and its range is read without. A range counts only if
//!   its start is the same before and after its end was read. By the time the server is asked, the
//!   slot may be another region's. The server itself says whether an address is its own.
//!
//! Lock: entering a region, a leaf.

use crate::locks::{Lock, Rank};
use crate::machine::cpu;
use crate::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use crate::sync::{fence_for_loom, thread};
use std::fmt;
use std::ops::Range;
use std::ptr;
use std::sync::Arc;

/// Regions that a process can have at a time.
pub const REGIONS_MAX: usize = 1024;

/// Brings the pages of a region in when they are touched.
///
/// # Safety
///
/// Asked by the thread that touches it, `serve` runs in a signal handler, in the middle of the code
/// that touches a page of the range. That code may have taken something apart, and may rely on its
/// thread to do nothing else until it is whole again. For example, a generator of random numbers
/// that fills a slice of the range would be entered a second time. So `serve`, and all that it
/// calls:
/// - enters no code that may have been interrupted, or that the interrupted code is in the middle
///   of, unless that code allows it. It uses no allocator, no standard stream, and no state of a
///   thread that lives on between calls. Functions that POSIX calls async-signal-safe are allowed,
///   and so are locks and atomics that are the server's own.
/// - does not panic, because the words of a panic need an allocator and a standard stream.
///
/// ```
/// use ramfold_host::fault::{Asker, Served, Server};
/// struct Nowhere;
/// // SAFETY: it calls nothing.
/// unsafe impl Server for Nowhere {
///     fn serve(&self, _: usize, _: Asker) -> Served {
///         Served::Foreign
///     }
/// }
/// ```
///
/// Without the word `unsafe` the compiler refuses it:
///
/// ```compile_fail,E0200
/// use ramfold_host::fault::{Asker, Served, Server};
/// struct Nowhere;
/// impl Server for Nowhere {
///     fn serve(&self, _: usize, _: Asker) -> Served {
///         Served::Foreign
///     }
/// }
/// ```
pub unsafe trait Server: Send + Sync {
    /// Brings the page at `address` in. [`fault`](crate::fault) has the other rules for it.
    fn serve(&self, address: usize, asker: Asker) -> Served;

    /// Whether a forked child has the region too, and the server, and may serve its own touches.
    fn outlives_fork(&self) -> bool {
        false
    }

    /// Lets go of what a forked child has of the region. The rules of `serve` hold.
    fn let_go(&self) {}
}

/// The asker for a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asker {
    /// The thread that touches it, by a SIGBUS.
    Toucher,
    /// The thread that touches it, by a SIGSEGV: the page may not be read.
    Denied,
    /// The same, where the page has a guard.
    Guarded,
    /// A message. It may be late: another thread brought the page in, the toucher went on, and the
    /// address may now be in another region or in none. A thread that does wait touches the page
    /// again when it is woken.
    Message {
        /// The system's number of the thread that touched it.
        thread: u32,
    },
}

/// The answer of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Served {
    /// It put the page in place, which woke the threads that waited for it.
    Filled,
    /// The page was in place already.
    Present,
    /// The address is not in its region.
    Foreign,
}

/// The outcome of a touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touched {
    /// The page is there, and the access must be tried again.
    Served(Served),
    /// The address is in a region that was dropped.
    Gone,
    /// The address is in no region.
    Foreign,
}

/// Counts of visitors of a slot, by CPU, so that threads that fault in one region rarely share one.
const VISITORS: usize = if cfg!(loom) { 1 } else { 4 };

struct Slot {
    start: AtomicUsize,
    end: AtomicUsize,
    /// A boxed `Arc`, or null.
    server: AtomicPtr<Arc<dyn Server>>,
    /// A forked child keeps the region.
    outlives_fork: AtomicBool,
    /// In a forked child: the region is its parent's, and closed memory is there instead.
    is_parents: AtomicBool,
    visitors: [Visitors; VISITORS],
}

/// Two cache lines, because processors fetch them in pairs.
#[repr(align(128))]
struct Visitors(AtomicUsize);

/// A visitor that is counted. A panic of the server ends the count too, or retiring it would wait
/// for ever.
struct Visit<'s>(&'s AtomicUsize);

impl Visit<'_> {
    fn begin(visitors: &Visitors) -> Visit<'_> {
        // SeqCst pairs with the swap in `take_server`, so that R1 holds: either this visitor is
        // counted before the look at the count, or the load in `visit` finds the pointer gone.
        visitors.0.fetch_add(1, Ordering::SeqCst);
        fence_for_loom();
        Visit(&visitors.0)
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        // Release pairs with the load in `take_server`, so that the server is dropped after its
        // last use.
        self.0.fetch_sub(1, Ordering::Release);
    }
}

impl Slot {
    #[cfg(not(loom))]
    const fn new() -> Slot {
        Slot {
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            server: AtomicPtr::new(ptr::null_mut()),
            outlives_fork: AtomicBool::new(false),
            is_parents: AtomicBool::new(false),
            visitors: [const { Visitors(AtomicUsize::new(0)) }; VISITORS],
        }
    }

    #[cfg(loom)]
    fn new() -> Slot {
        Slot {
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            server: AtomicPtr::new(ptr::null_mut()),
            outlives_fork: AtomicBool::new(false),
            is_parents: AtomicBool::new(false),
            visitors: std::array::from_fn(|_| Visitors(AtomicUsize::new(0))),
        }
    }

    fn covers(&self, address: usize) -> bool {
        // Acquire pairs with the Release in `enter`, so that the end and the server that are seen
        // belong to this start, or to a later one (R2).
        let start = self.start.load(Ordering::Acquire);
        // Acquire pairs with the Release in `enter`, so that a thread that sees the end of the
        // slot's next region sees below that the start of the last one is gone.
        let end = self.end.load(Ordering::Acquire);
        // relaxed: it is read after the end, and is the start of that end or of a later one.
        let still = self.start.load(Ordering::Relaxed) == start;
        start != 0 && still && (start..end).contains(&address)
    }

    /// Asks the server about a touch of its range.
    fn visit(&self, address: usize, asker: Asker) -> Touched {
        let _visit = Visit::begin(&self.visitors[cpu::current_hint() % VISITORS]);
        // SeqCst pairs with the swap in `take_server`, so that a visitor that was counted too late
        // finds no server (R1). As an Acquire it pairs with the store in `enter`, so that the
        // server is seen whole.
        let server = self.server.load(Ordering::SeqCst);
        if server.is_null() {
            // What the program has mapped over its parent's memory is its own.
            let is_gone = self.covers(address) && !self.is_parents();
            return if is_gone { Touched::Gone } else { Touched::Foreign };
        }
        // SAFETY: R1 keeps the server until this visit ends.
        match unsafe { &*server }.serve(address, asker) {
            Served::Foreign => Touched::Foreign,
            served => Touched::Served(served),
        }
    }

    /// Its range, where no other thread changes it.
    fn range(&self) -> Range<usize> {
        // relaxed: see above.
        self.start.load(Ordering::Relaxed)..self.end.load(Ordering::Relaxed)
    }

    fn is_parents(&self) -> bool {
        // relaxed: it is set by the only thread of a child.
        self.is_parents.load(Ordering::Relaxed)
    }

    /// Takes the server out, and returns it once no visitor can be using it.
    fn take_server(&self) -> Option<Box<Arc<dyn Server>>> {
        // SeqCst pairs with the increment in `Visit::begin`, so that each visitor is counted before
        // the looks below, or finds no server (R1).
        let server = self.server.swap(ptr::null_mut(), Ordering::SeqCst);
        if server.is_null() {
            return None;
        }
        fence_for_loom();
        for visitors in &self.visitors {
            // SeqCst: as above. As an Acquire it pairs with the Release of a visit's end, so that
            // the server is dropped after its last use.
            while visitors.0.load(Ordering::SeqCst) != 0 {
                thread::yield_now();
            }
        }
        // SAFETY: made by `Box::into_raw` in `enter`, and taken out once, by the swap.
        Some(unsafe { Box::from_raw(server) })
    }
}

/// The table of regions, `N` at a time.
pub struct Regions<const N: usize> {
    slots: [Slot; N],
    /// The slots from this one on were never used.
    high: AtomicUsize,
    entering: Lock<()>,
}

impl<const N: usize> Regions<N> {
    /// An empty table.
    #[cfg(not(loom))]
    #[expect(clippy::new_without_default, reason = "a constant, for the one static")]
    pub const fn new() -> Regions<N> {
        Regions {
            slots: [const { Slot::new() }; N],
            high: AtomicUsize::new(0),
            entering: Lock::new(Rank::Leaf, ()),
        }
    }

    /// An empty table. It is not `const`, because the atomics of a model are not.
    #[cfg(loom)]
    #[expect(clippy::new_without_default, reason = "as the constant it stands for")]
    pub fn new() -> Regions<N> {
        Regions {
            slots: std::array::from_fn(|_| Slot::new()),
            high: AtomicUsize::new(0),
            entering: Lock::new(Rank::Leaf, ()),
        }
    }

    /// Makes `server` serve touches of `range`. `None` if the table is full or the range is empty.
    pub fn enter(&self, range: Range<usize>, server: Arc<dyn Server>) -> Option<Watch<'_>> {
        if range.is_empty() || range.start == 0 {
            return None;
        }
        let _entering = self.entering.lock();
        // Acquire pairs with the Release in `Watch::drop`, which takes no lock, so that the slot is
        // filled after its last region left it. One that still seems taken is only passed over.
        let free = |slot: &&Slot| slot.start.load(Ordering::Acquire) == 0;
        let index = self.slots.iter().position(|slot| free(&slot))?;
        let slot = &self.slots[index];
        // relaxed: read in a child by the thread that forked, or by one that it started.
        slot.outlives_fork.store(server.outlives_fork(), Ordering::Relaxed);
        // relaxed: the slot is free, and no thread looks at it before its start is there.
        slot.is_parents.store(false, Ordering::Relaxed);
        slot.server.store(Box::into_raw(Box::new(server)), Ordering::SeqCst);
        // Release pairs with the Acquire in `covers`, so that a thread that sees this end sees what
        // emptied the slot before.
        slot.end.store(range.end, Ordering::Release);
        // Release pairs with the Acquire in `covers`, so that a thread that sees this start sees
        // its end and its server (R2).
        slot.start.store(range.start, Ordering::Release);
        // Release pairs with the Acquire in `serve`, so that a thread that looks at the slot finds
        // it filled.
        self.high.fetch_max(index + 1, Ordering::Release);
        Some(Watch { slot })
    }

    /// Whether `address` is in a region, or in one that was dropped.
    pub fn covers(&self, address: usize) -> bool {
        self.used().any(|slot| slot.covers(address))
    }

    /// Whether `address` is in a region that only the parent of this process has.
    pub fn is_parents(&self, address: usize) -> bool {
        self.used().any(|slot| slot.is_parents() && slot.covers(address))
    }

    /// The slots that were ever used, over which a fault walks.
    fn used(&self) -> std::slice::Iter<'_, Slot> {
        // Acquire pairs with the Release in `enter`, so that the slots are found filled.
        self.slots[..self.high.load(Ordering::Acquire)].iter()
    }

    /// Serves a touch of `address`.
    pub fn serve(&self, address: usize, asker: Asker) -> Touched {
        let slots = self.used().filter(|slot| slot.covers(address));
        let mut touches = slots.map(|slot| slot.visit(address, asker));
        touches.find(|&touched| touched != Touched::Foreign).unwrap_or(Touched::Foreign)
    }
}

impl<const N: usize> Regions<N> {
    /// Makes the table that of a forked child, which has entered no region yet. It keeps what
    /// outlives a fork. Other servers let go, and `close` puts closed memory where their regions
    /// were. If it refuses, the addresses are the child's own by now, and the slot is emptied. No
    /// other thread may enter or serve meanwhile. Returns whether there is such memory.
    pub fn abandon(&self, close: impl Fn(Range<usize>) -> bool) -> bool {
        // A thread of the parent may have been filling one that `used` does not show yet.
        for slot in &self.slots {
            // relaxed: see `enter`.
            if !slot.outlives_fork.load(Ordering::Relaxed) {
                let server = slot.server.swap(ptr::null_mut(), Ordering::SeqCst);
                // SAFETY: it is whole, and this child has no thread that drops it.
                unsafe { server.as_ref() }.into_iter().for_each(|server| server.let_go());
                let range = slot.range();
                let closed = range.start != 0 && (slot.is_parents() || close(range));
                // relaxed: see `Slot::is_parents`.
                slot.is_parents.store(closed, Ordering::Relaxed);
                if !closed {
                    // Release pairs with the Acquire in `enter`, so that the next sees it empty.
                    slot.start.store(0, Ordering::Release);
                }
            }
            for visitors in &slot.visitors {
                // relaxed: the threads that visited are the parent's.
                visitors.0.store(0, Ordering::Relaxed);
            }
        }
        self.slots.iter().any(Slot::is_parents)
    }
}

impl<const N: usize> fmt::Debug for Regions<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // relaxed: for a reader's eyes.
        write!(f, "Regions({} of {N} used)", self.high.load(Ordering::Relaxed))
    }
}

/// A region that is watched: its place in the table. Dropping it makes the table forget the region.
/// Only then may its addresses be given back.
pub struct Watch<'t> {
    slot: &'t Slot,
}

impl Watch<'_> {
    /// Takes the server out, and waits until no thread uses it. From then on a touch of the range
    /// is [`Touched::Gone`]. The server itself must not call this, because it would wait for
    /// itself.
    pub fn retire(&self) {
        drop(self.slot.take_server());
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.retire();
        // Release pairs with the Acquire in `enter`, so that the slot's next owner sees it empty.
        self.slot.start.store(0, Ordering::Release);
    }
}

impl fmt::Debug for Watch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // relaxed: for a reader's eyes.
        write!(f, "Watch({:#x})", self.slot.start.load(Ordering::Relaxed))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize as Count;

    struct Counting(Range<usize>, Count);

    // SAFETY: it counts and compares. Besides, no signal handler asks it.
    unsafe impl Server for Counting {
        fn serve(&self, address: usize, _: Asker) -> Served {
            // relaxed: one thread.
            self.1.fetch_add(1, Ordering::Relaxed);
            if self.0.contains(&address) { Served::Filled } else { Served::Foreign }
        }
    }

    #[test]
    fn a_touch_finds_its_region_and_no_other() {
        let regions = Regions::<2>::new();
        let server = Arc::new(Counting(100..200, Count::new(0)));
        let entry = regions.enter(100..200, server.clone()).expect("there is room");
        assert_eq!(regions.serve(150, Asker::Toucher), Touched::Served(Served::Filled));
        assert_eq!(regions.serve(200, Asker::Toucher), Touched::Foreign);
        assert_eq!(regions.serve(99, Asker::Toucher), Touched::Foreign);
        entry.retire();
        assert_eq!(regions.serve(150, Asker::Toucher), Touched::Gone);
        assert_eq!(Arc::strong_count(&server), 1, "the server was let go");
        drop(entry);
        assert_eq!(regions.serve(150, Asker::Toucher), Touched::Foreign);
        assert_eq!(server.1.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_full_table_refuses_and_a_slot_is_used_again() {
        let regions = Regions::<1>::new();
        let server = Arc::new(Counting(100..200, Count::new(0)));
        let first = regions.enter(100..200, server.clone()).expect("there is room");
        assert!(regions.enter(300..400, server.clone()).is_none());
        assert!(regions.enter(5..5, server.clone()).is_none());
        drop(first);
        let other = Arc::new(Counting(300..400, Count::new(0)));
        let _second = regions.enter(300..400, other).expect("the slot is free again");
        assert_eq!(regions.serve(350, Asker::Toucher), Touched::Served(Served::Filled));
        assert_eq!(regions.serve(150, Asker::Toucher), Touched::Foreign);
    }

    #[test]
    fn an_abandoned_table_serves_nobody_and_has_room() {
        let regions = Regions::<1>::new();
        let server = Arc::new(Counting(100..200, Count::new(0)));
        let entry = regions.enter(100..200, server.clone()).expect("there is room");
        std::mem::forget(entry);
        assert!(!regions.abandon(|_| false));
        assert_eq!(regions.serve(150, Asker::Toucher), Touched::Foreign);
        let again = Arc::new(Counting(100..200, Count::new(0)));
        let _again = regions.enter(100..200, again.clone()).expect("the slot is free");
        assert_eq!(regions.serve(150, Asker::Toucher), Touched::Served(Served::Filled));
        // relaxed: one thread.
        let served = [&server, &again].map(|server| server.1.load(Ordering::Relaxed));
        assert_eq!(served, [0, 1], "by the new one");
    }

    #[test]
    fn where_a_parents_region_was_a_child_is_told() {
        let regions = Regions::<2>::new();
        let server = Arc::new(Counting(100..200, Count::new(0)));
        std::mem::forget(regions.enter(100..200, server));
        assert!(regions.abandon(|range| range == (100..200)));
        assert!(regions.is_parents(150) && !regions.is_parents(200));
        assert_eq!(regions.serve(150, Asker::Toucher), Touched::Foreign, "the program's own file");
    }

    struct Panicking;

    // SAFETY: no signal handler asks it: the test does, in the middle of nothing.
    unsafe impl Server for Panicking {
        fn serve(&self, _: usize, _: Asker) -> Served {
            panic!("as this server does")
        }
    }

    #[test]
    fn a_server_that_panics_can_be_retired() {
        let regions = Regions::<1>::new();
        let entry = regions.enter(100..200, Arc::new(Panicking)).expect("there is room");
        // If a visitor were left, dropping the entry would wait for ever.
        let entry = std::mem::ManuallyDrop::new(entry);
        let serve =
            std::panic::AssertUnwindSafe(|| regions.serve(150, Asker::Message { thread: 1 }));
        assert!(std::panic::catch_unwind(serve).is_err());
        assert!(entry.slot.visitors.iter().all(|left| left.0.load(Ordering::SeqCst) == 0));
        entry.retire();
        assert_eq!(regions.serve(150, Asker::Toucher), Touched::Gone);
    }
}
