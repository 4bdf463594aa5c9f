//! How a region ends: by the memory's worker, or when the call returns.
//!
//! Invariant: the addresses are given back first. Then the folding half is dropped by its last
//! owner, and after that its frames go back to the system.
//!
//! Lock: none. The thread that drops the last part takes the locks of that part.

use crate::state::Folded;
use host::fault::begin_call;
use std::sync::Arc;
use zram::Memory;

/// When the memory of a region is freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Teardown {
    /// Everything is handed to the memory's worker. Stored pages count as pending until they are
    /// freed. Dropping does this.
    #[default]
    Range,
    /// When the call returns, every object is freed, every frame is free in the arena, and the
    /// range is unmapped. The memory's worker returns the frames to the system after that, in bulk.
    Sync,
}

/// Drops a region that is closed, once it has no other owner. A thread that looked at it before
/// will soon let go. The region is taken apart, so no thread can look at it again. To count the
/// owners and then drop it would be wrong, because the pager could become the last owner.
fn drop_last<T>(mut last: Arc<T>) {
    while let Err(shared) = Arc::try_unwrap(last) {
        std::thread::yield_now();
        last = shared;
    }
}

/// Drops the folding half after all else of a region, here or in the worker. Then as many bytes of
/// frames as the region had go back to the system, and no more. Frames that were free before stay
/// held for their next use.
///
/// It is dropped last, because it waits until the folding half has no other owner, and the region
/// is one.
pub(super) struct Ending {
    memory: Arc<Memory>,
    folded: Option<(Arc<Folded>, Teardown)>,
    bytes: u64,
}

impl Ending {
    /// The ending of a region that still exists: dropping this does nothing yet.
    pub(super) fn of(memory: &Arc<Memory>) -> Ending {
        Ending { memory: Arc::clone(memory), folded: None, bytes: 0 }
    }

    /// The region is closed, and will free `bytes` bytes of frames. From now on, dropping this ends
    /// it.
    pub(super) fn begin(&mut self, folded: &Arc<Folded>, teardown: Teardown, bytes: u64) {
        self.folded = Some((Arc::clone(folded), teardown));
        self.bytes = bytes;
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let _call = begin_call();
        let (memory, bytes) = (Arc::clone(&self.memory), self.bytes);
        match self.folded.take() {
            Some((folded, Teardown::Range)) => {
                self.memory.defer(folded.store.pending_bytes(), move || {
                    drop_last(folded);
                    release_later(memory, bytes);
                });
            }
            Some((folded, Teardown::Sync)) => {
                drop_last(folded);
                release_later(memory, bytes);
            }
            None => {}
        }
    }
}

/// Returns so many bytes of free frames to the system, later.
fn release_later(memory: Arc<Memory>, bytes: u64) {
    if bytes > 0 {
        let to = Arc::clone(&memory);
        to.defer(0, move || {
            memory.release(memory.free_bytes_held().saturating_sub(bytes));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::drop_last;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex, Weak};

    /// Counts itself when it is dropped.
    struct Ends(Arc<AtomicUsize>);

    impl Drop for Ends {
        fn drop(&mut self) {
            // relaxed: so is the load.
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A second thread looks at the region as the pager looks at a region of its list.
    #[test]
    fn what_is_dropped_last_is_dropped_whoever_looks_at_it() {
        const ROUNDS: usize = 20_000;
        let (ended, seen) = (Arc::new(AtomicUsize::new(0)), Mutex::new(Weak::<Ends>::new()));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // relaxed: a number that only rises.
                while ended.load(Ordering::Relaxed) < ROUNDS {
                    let looked_at = seen.lock().expect("nobody panics").clone();
                    while let Some(held) = looked_at.upgrade() {
                        std::thread::yield_now();
                        drop(held);
                        std::thread::yield_now();
                    }
                }
            });
            let dropped = (0..ROUNDS).find(|&round| {
                let last = Arc::new(Ends(Arc::clone(&ended)));
                *seen.lock().expect("nobody panics") = Arc::downgrade(&last);
                while Arc::strong_count(&last) == 1 {
                    std::thread::yield_now();
                }
                drop_last(last);
                // relaxed: if another thread dropped it, this one may see that or not.
                ended.load(Ordering::Relaxed) != round + 1
            });
            // relaxed: ends the other thread.
            ended.store(ROUNDS, Ordering::Relaxed);
            assert_eq!(dropped, None, "the round whose value outlived its end");
        });
    }
}
