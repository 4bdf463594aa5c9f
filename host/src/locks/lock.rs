//! A mutex of one futex word, with a rank. It may be taken in a signal handler.
//!
//! ```text
//!               lock, try_lock                 lock finds it taken
//!      FREE ------------------------> HELD ------------------------> CONTENDED
//!        ^                             |                                |
//!        +------- guard dropped -------+--- guard dropped, wake one ----+
//! ```
//!
//! Invariant L1: while the word is not FREE exactly one guard exists. Invariant L2: if a thread
//! sleeps on the word, either the word is CONTENDED, or a thread has been woken that will make it
//! so again. A thread that has slept takes the lock as CONTENDED, because others may still sleep.
//!
//! ```text
//!      Lock { own word, value }        Lock { shared, value }   Lock { shared, value }
//!                                                 `------> LockWord <------'
//! ```
//!
//! A lock has a word of its own, or shares a [`LockWord`] with others. Invariant L3: the word of a
//! lock never changes, and nothing but locks reaches a word. L1 therefore holds over all the locks
//! of a word. While one of them is taken, the others are taken too, and none of them has another
//! guard.
//!
//! The three states are those of Drepper's "Futexes Are Tricky". There is no poisoning: a panic
//! while the lock is held gives the lock up. The code of this tree does not panic while it holds a
//! lock.

use super::futex::Futex;
use super::rank::{HeldRank, Rank};
use crate::sync::atomic::Ordering;
use crate::sync::{MutPtr, UnsafeCell, hint};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;

/// How often a thread looks at a taken lock before it goes to sleep: about the length of our
/// longest short hold. Never in a model, where a look yields to the other threads and so hides the
/// way to sleep.
const SPINS: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 100 };

/// A word that several locks share: see [`Lock::sharing`]. It is alone on its cache lines, because
/// many locks use it.
#[derive(Debug)]
#[repr(align(128))]
pub struct LockWord(Futex);

impl Default for LockWord {
    fn default() -> LockWord {
        LockWord(Futex::new(FREE))
    }
}

/// A value that one thread at a time may reach. The module has a picture of its states.
pub struct Lock<T> {
    own: Futex,
    /// The word that is used instead of `own`, for the whole life of the lock (L3).
    shared: Option<Arc<LockWord>>,
    rank: Rank,
    value: UnsafeCell<T>,
}

// SAFETY: the lock owns its value; sending the one sends the other.
unsafe impl<T: Send> Send for Lock<T> {}
// SAFETY: by L1 and L3 one thread at a time reaches the value, so sharing the lock only ever sends
// the value. A shared word holds no data.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// A free lock.
    #[cfg(not(any(loom, shuttle)))]
    pub const fn new(rank: Rank, value: T) -> Lock<T> {
        Lock { own: Futex::new(FREE), shared: None, rank, value: UnsafeCell::new(value) }
    }

    /// A free lock. It is not `const`, because the atomics of a model are not.
    #[cfg(any(loom, shuttle))]
    pub fn new(rank: Rank, value: T) -> Lock<T> {
        Lock { own: Futex::new(FREE), shared: None, rank, value: UnsafeCell::new(value) }
    }

    /// A lock that is taken whenever another one of `word` is taken: one lock over many values.
    ///
    /// A thread that holds one of them and waits for another one waits for itself. Give all locks
    /// of a word the same rank, so that debug builds catch this.
    pub fn sharing(word: Arc<LockWord>, rank: Rank, value: T) -> Lock<T> {
        Lock { shared: Some(word), ..Lock::new(rank, value) }
    }

    /// Waits for the lock.
    ///
    /// # Panics
    ///
    /// In debug builds, if this thread holds a lock of the same or a higher rank.
    #[inline]
    pub fn lock(&self) -> LockGuard<'_, T> {
        let (held, state) = (HeldRank::enter(self.rank), self.state());
        if !try_acquire(state) {
            acquire_contended(state);
        }
        self.guard(held, state)
    }

    /// Takes the lock if it is free; `None` if it is not. It never waits.
    #[inline]
    pub fn try_lock(&self) -> Option<LockGuard<'_, T>> {
        let state = self.state();
        try_acquire(state).then(|| self.guard(HeldRank::enter_try(self.rank), state))
    }

    /// The value. It needs no lock, because no other thread can reach it any more.
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

    /// A guard, for a caller that has taken `state`, which is this lock's word.
    #[inline]
    fn guard<'a>(&'a self, held: HeldRank, state: &'a Futex) -> LockGuard<'a, T> {
        let taken = Taken { state, _held: held };
        LockGuard { value: self.value.get_mut(), _taken: taken, exclusive: PhantomData }
    }
}

#[inline]
fn try_acquire(state: &Futex) -> bool {
    // Acquire pairs with the Release in `Taken::drop`, so that the last holder's changes to the
    // value are seen. relaxed: a failure says only that the lock is taken.
    let (taken, failed) = (Ordering::Acquire, Ordering::Relaxed);
    state.word().compare_exchange(FREE, HELD, taken, failed).is_ok()
}

#[cold]
fn acquire_contended(state: &Futex) {
    if spin(state) && try_acquire(state) {
        return;
    }
    // Acquire pairs with the Release in `Taken::drop`, so that the last holder's changes to the
    // value are seen. It is taken as CONTENDED, because others may be asleep (L2).
    while state.word().swap(CONTENDED, Ordering::Acquire) != FREE {
        state.wait(CONTENDED);
    }
}

/// Waits a little for a holder that is running, and says whether the lock looks free.
fn spin(state: &Futex) -> bool {
    for _ in 0..SPINS {
        // relaxed: a hint; a thread that sees FREE still has to acquire.
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

/// A lock that is held. Dropping it gives the lock up.
#[must_use = "the lock is given up when this is dropped"]
pub struct LockGuard<'a, T> {
    /// Declared, and so dropped, before the lock is given up.
    value: MutPtr<T>,
    _taken: Taken<'a>,
    exclusive: PhantomData<&'a mut T>,
}

impl<T> LockGuard<'_, T> {
    /// True if a thread sleeps until this lock is given up, or one did when the lock was taken. A
    /// thread that looks at the lock again and again before it goes to sleep is not seen.
    ///
    /// ```
    /// use ramfold_host::Lock;
    ///
    /// let lock = Lock::new(ramfold_host::Rank::Leaf, 7);
    /// assert!(!lock.lock().is_contended());
    /// ```
    #[inline]
    pub fn is_contended(&self) -> bool {
        // relaxed: a hint about threads that wait; nothing of theirs is read.
        self._taken.state.word().load(Ordering::Relaxed) == CONTENDED
    }
}

/// The word, which is not FREE because of this guard (L1).
struct Taken<'a> {
    state: &'a Futex,
    _held: HeldRank,
}

// SAFETY: a shared guard gives only `&T`. (It is not `Send`, because `HeldRank` is not.)
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
        // SAFETY: by L1 and L3 this guard is the only way to the value. It is borrowed exclusively.
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
