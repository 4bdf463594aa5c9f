//! A fork waits until no thread is in the middle of something that a child could never finish.
//!
//! ```text
//!   a thread of ours    | inside: takes locks, changes tables |
//!   a thread that forks          waits ---------------------> | fork |  threads wait to go in
//!   the child                                                        | has every lock free
//! ```
//!
//! A child has the memory of its parent, and one thread. A lock that another thread held stays
//! locked in the child for ever. So whoever takes locks that a fault of a child may need is
//! *inside* meanwhile, and the C library calls `prepare` before it forks.
//!
//! This is a static, because a hook of the C library has no argument, and a fork copies all of the
//! process. A child that was made without the C library's `fork` runs no hook. It is told from its
//! parent elsewhere.
//!
//! Invariant: between `prepare` and `resume` no thread is inside, except those that were when the
//! forking thread itself was. Lock: none; a thread that waits gives up its CPU.
//!
//! Each side writes before it reads: who goes in counts itself and then looks for a fork, and who
//! forks raises the flag and then looks at the counts. At least one of them sees the other.

use super::cpu;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::thread::yield_now;

/// Counts of threads that are inside, by the CPU on which they went in.
const COUNTS: usize = 8;

/// Two cache lines, because processors fetch them in pairs.
#[repr(align(128))]
struct Count(AtomicUsize);

struct Fork {
    inside: [Count; COUNTS],
    under_way: AtomicBool,
    /// The numbers of threads that are inside and may run code of the program's, such as a disk's.
    noted: [AtomicU32; NOTED],
}

/// Threads that are noted at a time: three for each pager, memory and cache with a disk.
const NOTED: usize = 64;

impl Fork {
    const fn new() -> Fork {
        Fork {
            inside: [const { Count(AtomicUsize::new(0)) }; COUNTS],
            under_way: AtomicBool::new(false),
            noted: [const { AtomicU32::new(0) }; NOTED],
        }
    }
}

static FORK: Fork = Fork::new();

/// The right to take locks that a fault of a forked child may need. No thread forks meanwhile.
#[derive(Debug)]
#[must_use = "a fork goes on when this is dropped"]
pub struct Inside {
    count: &'static AtomicUsize,
    note: Option<&'static AtomicU32>,
}

/// Waits for a fork that is under way, and keeps others waiting until the result is dropped.
///
/// A thread that is inside must not go in once more, because a fork may wait for it in between.
/// May be called in a signal handler.
pub fn go_inside() -> Inside {
    FORK.go_inside()
}

/// The same for a round of a thread of ours in which code of the program's may run. If that code
/// forks, the fork does not wait for this thread. Its child must not touch a region.
pub fn begin_round() -> Inside {
    FORK.begin_round()
}

impl Fork {
    fn go_inside(&'static self) -> Inside {
        let count = &self.inside[cpu::current_hint() % COUNTS].0;
        loop {
            // SeqCst pairs with the store and the loads in `prepare`: see the head of this file.
            count.fetch_add(1, Ordering::SeqCst);
            // SeqCst: as above.
            if !self.under_way.load(Ordering::SeqCst) {
                return Inside { count, note: None };
            }
            // Release pairs with the loads in `prepare`.
            count.fetch_sub(1, Ordering::Release);
            // relaxed: it is looked at again above.
            while self.under_way.load(Ordering::Relaxed) {
                yield_now();
            }
        }
    }

    fn begin_round(&'static self) -> Inside {
        let thread = this_thread();
        let mut inside = self.go_inside();
        // relaxed: only this thread has to find it.
        let free = |note: &&AtomicU32| {
            note.compare_exchange(0, thread, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        inside.note = self.noted.iter().find(free);
        inside
    }

    fn is_noted(&self) -> bool {
        let thread = this_thread();
        // relaxed: as above.
        self.noted.iter().any(|note| note.load(Ordering::Relaxed) == thread)
    }

    fn prepare(&self) {
        // Another thread's fork comes first. SeqCst pairs with the load in `go_inside`.
        while self.under_way.swap(true, Ordering::SeqCst) {
            yield_now();
        }
        // SeqCst pairs with the increment in `go_inside`; and as an Acquire with the end of what
        // was done inside, so that the child has all of it.
        while self.inside.iter().any(|count| count.0.load(Ordering::SeqCst) != 0) {
            yield_now();
        }
    }

    fn resume(&self, in_child: bool) {
        if in_child {
            // A thread of the parent may have counted itself for a moment.
            // relaxed: the child has one thread.
            self.inside.iter().for_each(|count| count.0.store(0, Ordering::Relaxed));
            // relaxed: as above.
            self.noted.iter().for_each(|note| note.store(0, Ordering::Relaxed));
        }
        // Release pairs with the loads in `go_inside`.
        self.under_way.store(false, Ordering::Release);
    }
}

/// Whether this thread is in a round of its own, so that waiting for all would never end.
pub(crate) fn is_in_a_round() -> bool {
    FORK.is_noted()
}

/// Waits until no thread is inside, and lets none go in. The caller forks then, and is not inside.
pub(crate) fn prepare() {
    FORK.prepare();
}

/// Lets threads go in again, in the parent or in the child.
pub(crate) fn resume(in_child: bool) {
    FORK.resume(in_child);
}

impl Drop for Inside {
    fn drop(&mut self) {
        // relaxed: only this thread has looked for it.
        self.note.into_iter().for_each(|note| note.store(0, Ordering::Relaxed));
        // Release pairs with the loads in `prepare`.
        self.count.fetch_sub(1, Ordering::Release);
    }
}

fn this_thread() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn fork() -> &'static Fork {
        Box::leak(Box::new(Fork::new()))
    }

    #[test]
    fn a_fork_finds_nobody_inside_and_keeps_everybody_out() {
        let (fork, working) = (fork(), AtomicUsize::new(0));
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
        let fork = fork();
        let _of_another_thread = fork.go_inside();
        // relaxed: as if the fork had come in the middle of the count.
        fork.under_way.store(true, Ordering::Relaxed);
        fork.resume(true);
        let begun = Instant::now();
        fork.prepare();
        fork.resume(true);
        assert!(begun.elapsed() < Duration::from_secs(5));
    }
}
