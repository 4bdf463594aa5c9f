//! The lock of the shared zone and the counts beside it: std's, or a model's where this crate or
//! an allocator above it is checked in one.
//!
//! Shuttle gets std's counts. They order nothing, so to be interrupted at each of them would only
//! make the histories of a pool longer.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
pub(crate) use std::sync::{Arc, PoisonError, TryLockError};
#[cfg(not(any(loom, shuttle, tsan)))]
pub(crate) use std::sync::{Mutex, MutexGuard};

#[cfg(tsan)]
pub(crate) use seen::Mutex;
#[cfg(tsan)]
pub(crate) use std::sync::MutexGuard;

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard};

#[cfg(shuttle)]
pub(crate) use shuttle::sync::{Mutex, MutexGuard};

/// A lock whose every step ThreadSanitizer sees: std's waits in code built without the sanitizer,
/// after which what the last owner wrote seems to be ordered by nothing.
#[cfg(tsan)]
mod seen {
    use std::sync::{self, LockResult, MutexGuard, TryLockError, TryLockResult};

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) const fn new(value: T) -> Mutex<T> {
            Mutex(sync::Mutex::new(value))
        }

        /// As std's, without sleeping.
        pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
            loop {
                match self.0.try_lock() {
                    Ok(guard) => return Ok(guard),
                    Err(TryLockError::Poisoned(poison)) => return Err(poison),
                    Err(TryLockError::WouldBlock) => std::thread::yield_now(),
                }
            }
        }

        pub(crate) fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
            self.0.try_lock()
        }
    }
}
