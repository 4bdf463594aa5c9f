//! A mutex of one futex word with a rank: it survives preemption and works in a signal handler.
//!
//! ```text
//!               lock, try_lock                 lock finds it taken
//!      FREE ------------------------> HELD ------------------------> CONTENDED
//!        ^                             |                                |
//!        +------- guard dropped -------+--- guard dropped, wake one ----+
//! ```
//!
//! Invariant L1: while the word is not FREE exactly one guard exists. Invariant L2: if a thread
//! sleeps on the word, the word is CONTENDED or someone has been woken who will make it so again:
//! a thread that has slept takes the lock as CONTENDED, since others may sleep still.
//!
//! ```text
//!      Lock { own word, value }        Lock { shared, value }   Lock { shared, value }
//!                                                 `------> LockWord <------'
//! ```
//!
//! A lock has a word of its own, or shares a [`LockWord`] with others. Invariant L3: which word a
//! lock uses never changes, and nothing but locks reaches a word. So L1 holds over all the locks of
//! a word: while one of them is taken, so are the others, and no other guard of any of them exists.
//!
//! The three states are those of Drepper's "Futexes Are Tricky". There is no poisoning: a panic
//! with the lock held gives it up, and what it left half-done is the concern of whoever panics
//! with a lock held; code in this tree does not.

use super::futex::Futex;
use super::rank::{Held, Rank};
use crate::sync::atomic::Ordering;
use crate::sync::{MutPtr, UnsafeCell, hint};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;

/// Looks at a taken lock before going to sleep: about the length of our longest short hold. None
/// in a model, where a look yields to the other threads and so hides the way to sleep.
const SPINS: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 100 };

/// A word that several locks share: see [`Lock::sharing`]. Alone on its cache lines, as many locks
/// want it and nothing else should.
#[derive(Debug)]
#[repr(align(128))]
pub struct LockWord(Futex);

impl Default for LockWord {
    fn default() -> LockWord {
        LockWord(Futex::new(FREE))
    }
}

/// A value that one thread at a time may reach. See the module's pictures.
pub struct Lock<T> {
    own: Futex,
    /// What is used instead of `own`, from the beginning to the end (L3).
    shared: Option<Arc<LockWord>>,
    rank: Rank,
    value: UnsafeCell<T>,
}

// SAFETY: the lock owns its value; sending the one sends the other.
unsafe impl<T: Send> Send for Lock<T> {}
// SAFETY: by L1 and L3 the value is reached by one thread at a time, so that sharing the lock
// only ever sends the value; a shared word holds no data.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// A free lock.
    #[cfg(not(any(loom, shuttle)))]
    pub const fn new(rank: Rank, value: T) -> Lock<T> {
        Lock { own: Futex::new(FREE), shared: None, rank, value: UnsafeCell::new(value) }
    }

    /// A free lock; not `const`, since the atomics of a model are not.
    #[cfg(any(loom, shuttle))]
    pub fn new(rank: Rank, value: T) -> Lock<T> {
        Lock { own: Futex::new(FREE), shared: None, rank, value: UnsafeCell::new(value) }
    }

    /// A lock that is taken whenever another one of `word` is: one lock over many values.
    ///
    /// A thread that holds one of them and waits for another waits for itself. Locks of one word
    /// have one rank, so that debug builds catch it.
    pub fn sharing(word: Arc<LockWord>, rank: Rank, value: T) -> Lock<T> {
        Lock { shared: Some(word), ..Lock::new(rank, value) }
    }

    /// Waits for the lock.
    ///
    /// # Panics
    ///
    /// In debug builds, when this thread holds a lock of the same or a higher rank.
    #[inline]
    pub fn lock(&self) -> LockGuard<'_, T> {
        let (held, state) = (Held::enter(self.rank), self.state());
        if !try_acquire(state) {
            acquire_contended(state);
        }
        self.guard(held, state)
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<LockGuard<'_, T>> {
        let state = self.state();
        try_acquire(state).then(|| self.guard(Held::enter_try(self.rank), state))
    }

    /// The value, with no lock needed: nobody else can know of it.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }

    /// The word that says whether the lock is taken.
    #[inline]
    fn state(&self) -> &Futex {
        match &self.shared {
            None => &self.own,
            Some(word) => &word.0,
        }
    }

    /// The value, for whoever has taken `state`, which is this lock's word.
    #[inline]
    fn guard<'a>(&'a self, held: Held, state: &'a Futex) -> LockGuard<'a, T> {
        let taken = Taken { state, _held: held };
        LockGuard { value: self.value.get_mut(), _taken: taken, exclusive: PhantomData }
    }
}

#[inline]
fn try_acquire(state: &Futex) -> bool {
    // Acquire pairs with the Release in `Taken::drop`, so that the last holder's changes to the
    // value are seen. relaxed: a failure tells only that the lock is taken.
    let (taken, failed) = (Ordering::Acquire, Ordering::Relaxed);
    state.word().compare_exchange(FREE, HELD, taken, failed).is_ok()
}

#[cold]
fn acquire_contended(state: &Futex) {
    if spin(state) && try_acquire(state) {
        return;
    }
    // Acquire pairs with the Release in `Taken::drop`, as in `try_acquire`. Taken as CONTENDED:
    // others may be asleep (L2).
    while state.word().swap(CONTENDED, Ordering::Acquire) != FREE {
        state.wait(CONTENDED);
    }
}

/// Waits a little for a holder that is running, and says whether the lock looks free.
fn spin(state: &Futex) -> bool {
    for _ in 0..SPINS {
        // relaxed: a hint; whoever sees FREE still has to acquire.
        match state.word().load(Ordering::Relaxed) {
            FREE => return true,
            CONTENDED => return false,
            _ => hint::spin_loop(),
        }
    }
    false
}

impl<T: Default> Default for Lock<T> {
    fn default() -> Lock<T> {
        Lock::new(Rank::Leaf, T::default())
    }
}

impl<T: fmt::Debug> fmt::Debug for Lock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lock = f.debug_struct("Lock");
        lock.field("rank", &self.rank);
        match self.try_lock() {
            Some(guard) => lock.field("value", &*guard).finish(),
            None => lock.finish_non_exhaustive(),
        }
    }
}

/// The lock, held; dropping it gives the lock up.
#[must_use = "the lock is given up when this is dropped"]
pub struct LockGuard<'a, T> {
    /// Declared, and so dropped, before the lock is given up.
    value: MutPtr<T>,
    _taken: Taken<'a>,
    exclusive: PhantomData<&'a mut T>,
}

/// The word, not FREE because of us (L1).
struct Taken<'a> {
    state: &'a Futex,
    _held: Held,
}

// SAFETY: a shared guard gives `&T` and nothing more. (It is not `Send`: `Held` is not.)
unsafe impl<T: Sync> Sync for LockGuard<'_, T> {}

impl<T> Deref for LockGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: by L1 and L3 this guard is the only way to the value, and it is borrowed.
        self.value.with(|value| unsafe { &*value })
    }
}

impl<T> DerefMut for LockGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: by L1 and L3 this guard is the only way to the value; it is borrowed exclusively.
        self.value.with(|value| unsafe { &mut *value })
    }
}

impl<T: fmt::Debug> fmt::Debug for LockGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl Drop for Taken<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release pairs with the Acquire in `try_acquire` and `acquire_contended`, so that the
        // next holder sees this one's changes to the value.
        if self.state.word().swap(FREE, Ordering::Release) == CONTENDED {
            self.state.wake_one();
        }
    }
}
