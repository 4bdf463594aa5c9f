//! A fork waits until no thread is in the middle of something that a child could never finish.
//!
//! ```text
//!   a thread of ours    | inside: takes locks, changes tables |
//!   a thread that forks          waits ---------------------> | fork |  threads wait to go in
//!   the child                                                        | has every lock free
//! ```
//!
//! A child has the memory of its parent, and one thread. A lock that another thread held stays
//! locked in the child for ever. So a thread is *inside* while it may hold locks that a fault of a
//! child needs, and the C library calls `prepare` before it forks.
//!
//! This is a static, because a hook of the C library has no argument, and a fork copies all of the
//! process. A child that was made without the C library's `fork` runs no hook. It is told from its
//! parent elsewhere.
//!
//! Invariant: between `prepare` and `resume` no thread is inside, except those that were when the
//! forking thread itself was. Lock: none; a thread that waits gives up its CPU.
//!
//! Each side writes before it reads. A thread that goes in counts itself and then looks for a fork.
//! A thread that forks raises the flag and then looks at the counts. At least one sees the other.

use super::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use super::fence_for_loom;
use super::thread::yield_now;
use crate::machine::cpu;
use std::fmt;

/// Counts of threads that are inside, by the CPU on which they went in.
const COUNTS: usize = if cfg!(loom) { 1 } else { 8 };
/// Threads that are noted at a time: three for each pager, memory and cache with a disk.
const NOTED: usize = if cfg!(loom) { 1 } else { 64 };

/// Two cache lines, because processors fetch them in pairs.
#[repr(align(128))]
struct Count(AtomicUsize);

/// Who is inside, and whether a fork is under way.
pub struct Forks {
    inside: [Count; COUNTS],
    under_way: AtomicBool,
    /// The numbers of threads that are inside and may run code of the program's, such as a disk's.
    noted: [AtomicU32; NOTED],
}

#[cfg(not(any(loom, shuttle)))]
static FORKS: Forks = Forks::new();

/// The right to take locks that a fault of a forked child may need. No thread forks meanwhile.
#[must_use = "a fork goes on when this is dropped"]
pub struct Inside<'f> {
    count: &'f AtomicUsize,
    note: Option<&'f AtomicU32>,
}

/// The same in this process. In a model no thread forks.
#[derive(Debug)]
#[must_use = "a fork goes on when this is dropped"]
pub struct InProcess(
    #[cfg(not(any(loom, shuttle)))]
    #[expect(dead_code, reason = "it is held, and dropped")]
    Inside<'static>,
);

/// Waits for a fork that is under way, and keeps others waiting until the result is dropped.
///
/// A thread that is inside must not go in once more, because a fork may wait for it in between.
/// May be called in a signal handler.
pub fn go_inside() -> InProcess {
    InProcess(
        #[cfg(not(any(loom, shuttle)))]
        FORKS.go_inside(),
    )
}

/// The same for a round of a thread of ours in which code of the program's may run. If that code
/// forks, the fork does not wait for this thread. Its child must not touch a region.
pub fn begin_round() -> InProcess {
    InProcess(
        #[cfg(not(any(loom, shuttle)))]
        FORKS.begin_round(),
    )
}

/// Whether this thread is in a round of its own, so that waiting for all would never end.
#[cfg(not(any(loom, shuttle, miri)))]
pub(crate) fn is_in_a_round() -> bool {
    FORKS.is_noted()
}

/// Waits until no thread is inside, and lets none go in. The caller forks then, and is not inside.
#[cfg(not(any(loom, shuttle, miri)))]
pub(crate) fn prepare() {
    FORKS.prepare();
}

/// Lets threads go in again, in the parent or in the child.
#[cfg(not(any(loom, shuttle, miri)))]
pub(crate) fn resume(in_child: bool) {
    FORKS.resume(in_child);
}

impl Forks {
    /// Nobody is inside.
    #[cfg(not(any(loom, shuttle)))]
    #[expect(clippy::new_without_default, reason = "a constant, for the one static")]
    pub const fn new() -> Forks {
        Forks {
            inside: [const { Count(AtomicUsize::new(0)) }; COUNTS],
            under_way: AtomicBool::new(false),
            noted: [const { AtomicU32::new(0) }; NOTED],
        }
    }

    /// Nobody is inside. It is not `const`, because the atomics of a model are not.
    #[cfg(any(loom, shuttle))]
    #[expect(clippy::new_without_default, reason = "as the constant it stands for")]
    pub fn new() -> Forks {
        Forks {
            inside: std::array::from_fn(|_| Count(AtomicUsize::new(0))),
            under_way: AtomicBool::new(false),
            noted: std::array::from_fn(|_| AtomicU32::new(0)),
        }
    }

    /// See [`go_inside`].
    pub fn go_inside(&self) -> Inside<'_> {
        let count = &self.inside[cpu::current_hint() % COUNTS].0;
        loop {
            // SeqCst pairs with the swap and the loads in `prepare`, so that this thread sees the
            // fork, or the fork sees this thread: see the head of this file.
            count.fetch_add(1, Ordering::SeqCst);
            fence_for_loom();
            // SeqCst: as above. As an Acquire it pairs with the Release in `resume`, so that this
            // thread goes in after the fork.
            if !self.under_way.load(Ordering::SeqCst) {
                return Inside { count, note: None };
            }
            // Release pairs with the loads in `prepare`, so that a fork that waited for this thread
            // comes after it.
            count.fetch_sub(1, Ordering::Release);
            // relaxed: it is looked at again above.
            while self.under_way.load(Ordering::Relaxed) {
                yield_now();
            }
        }
    }

    /// See [`begin_round`].
    pub fn begin_round(&self) -> Inside<'_> {
        let thread = this_thread();
        let mut inside = self.go_inside();
        // relaxed: only this thread has to find its number, and a place belongs to the thread whose
        // number it has.
        let free = |note: &&AtomicU32| {
            note.compare_exchange(0, thread, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        inside.note = self.noted.iter().find(free);
        inside
    }

    /// Whether this thread is in a round.
    pub fn is_noted(&self) -> bool {
        let thread = this_thread();
        // relaxed: as above.
        self.noted.iter().any(|note| note.load(Ordering::Relaxed) == thread)
    }

    /// Waits until no thread is inside, and lets none go in.
    pub fn prepare(&self) {
        // Another thread's fork comes first. SeqCst pairs with the load in `go_inside`, so that a
        // thread that goes in sees this fork, or is counted below.
        while self.under_way.swap(true, Ordering::SeqCst) {
            // relaxed: it is looked at again above.
            while self.under_way.load(Ordering::Relaxed) {
                yield_now();
            }
        }
        fence_for_loom();
        // SeqCst pairs with the increment in `go_inside`; and as an Acquire with the end of what
        // was done inside, so that the child has all of it.
        while self.inside.iter().any(|count| count.0.load(Ordering::SeqCst) != 0) {
            yield_now();
        }
    }

    /// Lets threads go in again, in the parent or in the child.
    pub fn resume(&self, in_child: bool) {
        if in_child {
            // A thread of the parent may have counted itself for a moment.
            // relaxed: the child has one thread.
            self.inside.iter().for_each(|count| count.0.store(0, Ordering::Relaxed));
            // relaxed: as above.
            self.noted.iter().for_each(|note| note.store(0, Ordering::Relaxed));
        }
        // Release pairs with the loads in `go_inside`, so that a thread that goes in comes after
        // the fork.
        self.under_way.store(false, Ordering::Release);
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        // relaxed: only this thread has looked for it.
        self.note.into_iter().for_each(|note| note.store(0, Ordering::Relaxed));
        // relaxed: it is 0 only in a child that was made in the middle, which has one thread.
        if self.count.load(Ordering::Relaxed) > 0 {
            // Release pairs with the loads in `prepare`, so that the child has all that was done
            // inside.
            self.count.fetch_sub(1, Ordering::Release);
        }
    }
}

impl fmt::Debug for Inside<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inside").field("noted", &self.note.is_some()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Forks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // relaxed: for a reader's eyes.
        write!(f, "Forks(under way: {})", self.under_way.load(Ordering::Relaxed))
    }
}

fn this_thread() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn a_fork_finds_nobody_inside_and_keeps_everybody_out() {
        let (fork, working) = (Forks::new(), AtomicUsize::new(0));
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    // relaxed: it only asks the threads to end.
                    while !stop.load(Ordering::Relaxed) {
                        let _inside = fork.go_inside();
                        // relaxed: read while nobody is inside.
                        working.fetch_add(1, Ordering::Relaxed);
                        std::hint::spin_loop();
                        // relaxed: as above.
                        working.fetch_sub(1, Ordering::Relaxed);
                    }
                });
            }
            let found = (0..2000).find(|_| {
                fork.prepare();
                // relaxed: `prepare` has seen the end of what was done inside.
                let found = (0..50).any(|_| working.load(Ordering::Relaxed) != 0);
                fork.resume(false);
                found
            });
            // relaxed: as above.
            stop.store(true, Ordering::Relaxed);
            assert_eq!(found, None, "the round in which a thread was inside");
        });
    }

    #[test]
    fn a_child_has_nobody_inside() {
        let fork = Forks::new();
        std::mem::forget(fork.go_inside());
        // relaxed: as if the fork had come in the middle of the count.
        fork.under_way.store(true, Ordering::Relaxed);
        fork.resume(true);
        let begun = Instant::now();
        fork.prepare();
        fork.resume(false);
        assert!(begun.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn a_thread_in_a_round_knows_it_and_no_other_does() {
        let forks = Forks::new();
        assert!(!forks.is_noted());
        let round = forks.begin_round();
        assert!(forks.is_noted());
        let other = std::thread::scope(|scope| scope.spawn(|| forks.is_noted()).join());
        assert!(!other.expect("it asks only"));
        drop(round);
        assert!(!forks.is_noted());
    }
}
