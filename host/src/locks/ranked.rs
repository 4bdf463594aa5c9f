//! Mutexes and readers-writer locks that have a rank.
//!
//! ```text
//!   lock    enter the rank (asserted in debug builds) --> wait for the lock of the system
//!   sleep   assert that the guard's rank is the highest --> sleep, and have the lock again
//! ```
//!
//! [`Lock`](crate::Lock) is smaller, and is for what is held for a few instructions. These are for
//! what is held for long, for what several threads read, and for threads that wait for a change.
//!
//! Two sets have the same types. A model sees every step of the first. The second is that of
//! [`unmodelled`](crate::sync::unmodelled): the standard library's, in a model too.
//!
//! Invariant: a guard has its rank entered as long as it lives, so R1 of `rank` holds for these
//! locks too. There is no poisoning. A holder keeps the value whole after every statement, because
//! a panic gives the lock up.

use super::rank::{HeldRank, Rank};

/// The rank of one lock, of which release builds keep nothing.
#[derive(Debug, Clone, Copy)]
struct Place {
    #[cfg(debug_assertions)]
    rank: Rank,
}

impl Place {
    fn new(rank: Rank) -> Place {
        #[cfg(not(debug_assertions))]
        let _ = rank;
        Place {
            #[cfg(debug_assertions)]
            rank,
        }
    }

    /// Enters the rank of a lock that is about to be waited for.
    #[inline]
    fn enter(self) -> HeldRank {
        #[cfg(debug_assertions)]
        return HeldRank::enter(self.rank);
        #[cfg(not(debug_assertions))]
        HeldRank::enter(Rank::Leaf)
    }

    /// Enters the rank of a lock that was taken without waiting.
    #[inline]
    fn enter_try(self) -> HeldRank {
        #[cfg(debug_assertions)]
        return HeldRank::enter_try(self.rank);
        #[cfg(not(debug_assertions))]
        HeldRank::enter_try(Rank::Leaf)
    }
}

/// The types, over the locks of one module.
macro_rules! ranked_locks {
    ($($sync:ident)::+) => {
        use super::{HeldRank, Place, Rank};
        use std::ops::{Deref, DerefMut};
        use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};
        use $($sync)::+ as sync;

        /// A mutex with a rank.
        #[derive(Debug)]
        pub struct RankedMutex<T> {
            place: Place,
            inner: sync::Mutex<T>,
        }

        /// A mutex that is held. Dropping it gives the mutex up.
        #[derive(Debug)]
        #[must_use = "the mutex is given up when this is dropped"]
        pub struct RankedMutexGuard<'a, T> {
            guard: sync::MutexGuard<'a, T>,
            held: HeldRank,
        }

        impl<T> RankedMutex<T> {
            /// A mutex that is free.
            pub fn new(rank: Rank, value: T) -> RankedMutex<T> {
                RankedMutex { place: Place::new(rank), inner: sync::Mutex::new(value) }
            }

            /// Waits for the mutex.
            ///
            /// # Panics
            ///
            /// In debug builds, if this thread holds a lock of the same or a higher rank.
            pub fn lock(&self) -> RankedMutexGuard<'_, T> {
                let held = self.place.enter();
                RankedMutexGuard { guard: valid(self.inner.lock()), held }
            }

            /// Takes the mutex if it is free. It never waits.
            pub fn try_lock(&self) -> Option<RankedMutexGuard<'_, T>> {
                let guard = if_free(self.inner.try_lock())?;
                Some(RankedMutexGuard { guard, held: self.place.enter_try() })
            }
        }

        impl<'a, T> RankedMutexGuard<'a, T> {
            /// Gives the mutex up until `changed` is notified, and then has it again. It may return
            /// without a notification.
            ///
            /// # Panics
            ///
            /// In debug builds, if this thread holds a lock of a higher rank.
            pub fn sleep(self, changed: &sync::Condvar) -> RankedMutexGuard<'a, T> {
                self.held.assert_highest();
                RankedMutexGuard { guard: valid(changed.wait(self.guard)), held: self.held }
            }

            /// As [`sleep`](Self::sleep), until `condition` is false.
            ///
            /// # Panics
            ///
            /// As [`sleep`](Self::sleep) does.
            pub fn sleep_while(
                mut self,
                changed: &sync::Condvar,
                mut condition: impl FnMut(&mut T) -> bool,
            ) -> RankedMutexGuard<'a, T> {
                while condition(&mut self) {
                    self = self.sleep(changed);
                }
                self
            }
        }

        impl<T> Deref for RankedMutexGuard<'_, T> {
            type Target = T;

            fn deref(&self) -> &T {
                &self.guard
            }
        }

        impl<T> DerefMut for RankedMutexGuard<'_, T> {
            fn deref_mut(&mut self) -> &mut T {
                &mut self.guard
            }
        }

        /// A readers-writer lock with a rank. A thread that holds it for reading and waits to read
        /// once more may wait for itself, so debug builds refuse that too.
        #[derive(Debug)]
        pub struct RankedRwLock<T> {
            place: Place,
            inner: sync::RwLock<T>,
        }

        /// A lock that is held for reading. Dropping it gives the lock up.
        #[derive(Debug)]
        #[must_use = "the lock is given up when this is dropped"]
        pub struct RankedReadGuard<'a, T> {
            guard: sync::RwLockReadGuard<'a, T>,
            _held: HeldRank,
        }

        /// A lock that is held for writing. Dropping it gives the lock up.
        #[derive(Debug)]
        #[must_use = "the lock is given up when this is dropped"]
        pub struct RankedWriteGuard<'a, T> {
            guard: sync::RwLockWriteGuard<'a, T>,
            _held: HeldRank,
        }

        impl<T> RankedRwLock<T> {
            /// A lock that is free.
            pub fn new(rank: Rank, value: T) -> RankedRwLock<T> {
                RankedRwLock { place: Place::new(rank), inner: sync::RwLock::new(value) }
            }

            /// Waits until no other thread writes.
            ///
            /// # Panics
            ///
            /// In debug builds, if this thread holds a lock of the same or a higher rank.
            pub fn read(&self) -> RankedReadGuard<'_, T> {
                let held = self.place.enter();
                RankedReadGuard { guard: valid(self.inner.read()), _held: held }
            }

            /// Waits until no other thread reads or writes.
            ///
            /// # Panics
            ///
            /// In debug builds, if this thread holds a lock of the same or a higher rank.
            pub fn write(&self) -> RankedWriteGuard<'_, T> {
                let held = self.place.enter();
                RankedWriteGuard { guard: valid(self.inner.write()), _held: held }
            }

            /// Takes the lock for reading if no other thread writes. It never waits.
            pub fn try_read(&self) -> Option<RankedReadGuard<'_, T>> {
                let guard = if_free(self.inner.try_read())?;
                Some(RankedReadGuard { guard, _held: self.place.enter_try() })
            }

            /// Takes the lock for writing if it is free. It never waits.
            pub fn try_write(&self) -> Option<RankedWriteGuard<'_, T>> {
                let guard = if_free(self.inner.try_write())?;
                Some(RankedWriteGuard { guard, _held: self.place.enter_try() })
            }
        }

        impl<T> Deref for RankedReadGuard<'_, T> {
            type Target = T;

            fn deref(&self) -> &T {
                &self.guard
            }
        }

        impl<T> Deref for RankedWriteGuard<'_, T> {
            type Target = T;

            fn deref(&self) -> &T {
                &self.guard
            }
        }

        impl<T> DerefMut for RankedWriteGuard<'_, T> {
            fn deref_mut(&mut self) -> &mut T {
                &mut self.guard
            }
        }

        fn valid<G>(taken: LockResult<G>) -> G {
            taken.unwrap_or_else(PoisonError::into_inner)
        }

        fn if_free<G>(taken: TryLockResult<G>) -> Option<G> {
            match taken {
                Ok(guard) => Some(guard),
                Err(TryLockError::Poisoned(poison)) => Some(poison.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            }
        }
    };
}

/// Locks that a model sees.
mod modelled {
    ranked_locks!(crate::sync);
}

pub use modelled::{
    RankedMutex, RankedMutexGuard, RankedReadGuard, RankedRwLock, RankedWriteGuard,
};

/// Ranked locks of code that no model runs.
pub mod unmodelled {
    ranked_locks!(crate::sync::unmodelled);

    use std::time::{Duration, Instant};

    impl<'a, T> RankedMutexGuard<'a, T> {
        /// As [`sleep_while`](Self::sleep_while), for at most `timeout`. The bool says whether the
        /// condition is still true.
        ///
        /// # Panics
        ///
        /// As [`sleep`](Self::sleep) does.
        pub fn sleep_while_for(
            mut self,
            changed: &sync::Condvar,
            timeout: Duration,
            mut condition: impl FnMut(&mut T) -> bool,
        ) -> (RankedMutexGuard<'a, T>, bool) {
            let begun = Instant::now();
            while condition(&mut self) {
                let left = timeout.saturating_sub(begun.elapsed());
                if left.is_zero() {
                    return (self, true);
                }
                self.held.assert_highest();
                let guard = valid(changed.wait_timeout(self.guard, left)).0;
                self = RankedMutexGuard { guard, held: self.held };
            }
            (self, false)
        }
    }
}

#[cfg(all(test, debug_assertions, not(any(loom, shuttle))))]
mod tests {
    use super::unmodelled::{RankedMutex, RankedRwLock};
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_panic_gives_the_mutex_up_and_leaves_its_value() {
        let mutex = RankedMutex::new(Rank::Leaf, 1);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut held = mutex.lock();
            *held = 2;
            panic!("on purpose");
        }));
        assert!(panicked.is_err());
        assert_eq!(*mutex.lock(), 2);
        assert_eq!(mutex.try_lock().map(|held| *held), Some(2));
    }

    #[test]
    #[should_panic(expected = "R1: waiting for a lock of rank Class")]
    fn a_mutex_under_a_higher_one_is_caught() {
        let (class, leaf) = (RankedMutex::new(Rank::Class, ()), RankedMutex::new(Rank::Leaf, ()));
        let _leaf = leaf.lock();
        drop(class.lock());
    }

    #[test]
    #[should_panic(expected = "R1: waiting for a lock of rank Gate")]
    fn reading_twice_is_caught() {
        let lock = RankedRwLock::new(Rank::Gate, ());
        let _read = lock.read();
        drop(lock.read());
    }

    #[test]
    fn trying_takes_what_is_free_and_counts_it() {
        let (lock, mutex) = (RankedRwLock::new(Rank::Gate, 7), RankedMutex::new(Rank::Leaf, 8));
        let read = lock.try_read().expect("nobody writes");
        assert_eq!((*read, lock.try_write().is_none()), (7, true));
        drop(read);
        let held = mutex.try_lock().expect("it is free");
        assert!(mutex.try_lock().is_none() && *held == 8);
        drop(held);
        *lock.try_write().expect("it is free") = 9;
        assert_eq!(*lock.read(), 9);
    }

    /// A thread that sleeps under a higher lock would take its own again in the wrong order.
    #[test]
    #[should_panic(expected = "R1: sleeping with a lock of rank Class")]
    fn sleeping_under_a_higher_lock_is_caught() {
        let (class, leaf) = (RankedMutex::new(Rank::Class, ()), RankedMutex::new(Rank::Leaf, ()));
        let (held, _leaf) = (class.lock(), leaf.lock());
        drop(held.sleep(&crate::sync::unmodelled::Condvar::new()));
    }

    #[test]
    fn a_sleep_ends_with_its_condition_or_its_time() {
        let (mutex, changed) =
            (RankedMutex::new(Rank::Leaf, 0), crate::sync::unmodelled::Condvar::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                *mutex.lock() = 1;
                changed.notify_all();
            });
            assert_eq!(*mutex.lock().sleep_while(&changed, |value| *value == 0), 1);
        });
        let short = Duration::from_millis(1);
        let (held, late) = mutex.lock().sleep_while_for(&changed, short, |value| *value == 1);
        assert_eq!((*held, late), (1, true));
        let long = Duration::from_secs(60);
        assert!(!held.sleep_while_for(&changed, long, |value| *value == 0).1);
    }
}
