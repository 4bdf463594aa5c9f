//! A 32-bit word on which threads can sleep: the primitive under our locks.
//!
//! A wait may end without a reason (by a signal, or by a wake meant for another thread), so callers
//! loop.
//!
//! Invariant F1: a waiter that sleeps has found the word equal to what it expected, at a moment
//! after which every `wake` finds it asleep. The kernel ensures this by the lock of its hash
//! bucket. The model that is used under loom and shuttle ensures it by a mutex.
//!
//! Lock: none. A model has a mutex in the place of the kernel's bucket lock.

#[cfg(not(any(loom, shuttle)))]
pub(crate) use futex_system::Futex;

#[cfg(any(loom, shuttle))]
pub(crate) use futex_model::Futex;

#[cfg(not(any(loom, shuttle)))]
mod futex_system {
    use std::sync::atomic::AtomicU32;
    use std::time::Duration;

    /// The word.
    #[derive(Debug)]
    pub(crate) struct Futex(AtomicU32);

    impl Futex {
        pub(crate) const fn new(value: u32) -> Futex {
            Futex(AtomicU32::new(value))
        }

        #[inline]
        pub(crate) fn word(&self) -> &AtomicU32 {
            &self.0
        }

        /// Sleeps while the word is `expected`; may return early.
        #[cfg(not(miri))]
        pub(crate) fn wait(&self, expected: u32) {
            use rustix::thread::futex::{Flags, wait};
            // An error is EAGAIN (the word differs) or EINTR. After both the caller looks again.
            let _ = wait(&self.0, Flags::PRIVATE, expected, None);
        }

        /// The same as [`Futex::wait`], with a limit of `timeout`.
        #[cfg(not(miri))]
        pub(crate) fn wait_for(&self, expected: u32, timeout: Duration) {
            use rustix::thread::{Timespec, futex};
            let timeout = Timespec {
                tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: timeout.subsec_nanos().into(),
            };
            // The same as above, or ETIMEDOUT.
            let _ = futex::wait(&self.0, futex::Flags::PRIVATE, expected, Some(&timeout));
        }

        #[cfg(not(miri))]
        fn wake(&self, waiters: u32) {
            use rustix::thread::futex::{Flags, wake};
            // A wake of a private futex in our own memory cannot fail.
            let _ = wake(&self.0, Flags::PRIVATE, waiters);
        }

        /// Miri has no such system call, so every wait returns early.
        #[cfg(miri)]
        pub(crate) fn wait(&self, _expected: u32) {
            std::thread::yield_now();
        }

        #[cfg(miri)]
        pub(crate) fn wait_for(&self, _expected: u32, _timeout: Duration) {
            std::thread::yield_now();
        }

        #[cfg(miri)]
        fn wake(&self, _waiters: u32) {}

        /// Wakes one sleeper, if there is one.
        pub(crate) fn wake_one(&self) {
            self.wake(1);
        }

        /// Wakes every sleeper.
        pub(crate) fn wake_all(&self) {
            self.wake(i32::MAX as u32);
        }
    }
}

#[cfg(any(loom, shuttle))]
mod futex_model {
    use crate::sync::atomic::{AtomicU32, Ordering};
    use crate::sync::{Condvar, Mutex, MutexGuard};
    use std::sync::PoisonError;
    use std::time::Duration;

    /// The word, with a mutex and a condition that stand for what the kernel keeps.
    #[derive(Debug)]
    pub(crate) struct Futex {
        word: AtomicU32,
        bucket: Mutex<()>,
        asleep: Condvar,
    }

    impl Futex {
        pub(crate) fn new(value: u32) -> Futex {
            Futex { word: AtomicU32::new(value), bucket: Mutex::new(()), asleep: Condvar::new() }
        }

        pub(crate) fn word(&self) -> &AtomicU32 {
            &self.word
        }

        fn bucket(&self) -> MutexGuard<'_, ()> {
            // A scenario that panicked elsewhere should end with its own panic.
            self.bucket.lock().unwrap_or_else(PoisonError::into_inner)
        }

        pub(crate) fn wait(&self, expected: u32) {
            let bucket = self.bucket();
            // SeqCst pairs with the barrier the kernel takes before it compares, so that a
            // word changed before a wake is seen changed by a wait that comes after it.
            if self.word.load(Ordering::SeqCst) == expected {
                drop(self.asleep.wait(bucket).unwrap_or_else(PoisonError::into_inner));
            }
        }

        /// A model has no time, so it waits without a limit.
        pub(crate) fn wait_for(&self, expected: u32, _timeout: Duration) {
            self.wait(expected);
        }

        pub(crate) fn wake_one(&self) {
            let _bucket = self.bucket();
            self.asleep.notify_one();
        }

        pub(crate) fn wake_all(&self) {
            let _bucket = self.bucket();
            self.asleep.notify_all();
        }
    }
}
