//! Locks whose every hand-over ThreadSanitizer sees, for `cfg(tsan)` alone.
//!
//! ```text
//!   std's lock()   free: an exchange in our code, which is seen;  taken: waits in std, which is
//!                  built without the sanitizer, so that what the last owner wrote seems to be
//!                  ordered by nothing; a condition variable gives the lock up there, too
//!   here           the same, and a step of a counter beside it: after it was taken, before it is
//!                  given up, and on both sides of a wait
//! ```
//!
//! Invariant: a thread that holds the lock has made a step since it got the lock, and makes one
//! before it gives the lock up. Steps are read-modify-writes of one atomic, so each is ordered
//! after those before.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{self, LockResult, PoisonError, TryLockError, TryLockResult, WaitTimeoutResult};
use std::time::Duration;

/// [`std::sync::Mutex`].
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized> {
    steps: AtomicU64,
    inner: sync::Mutex<T>,
}

/// [`std::sync::MutexGuard`].
#[derive(Debug)]
pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    /// `None` only inside of [`Condvar`].
    guard: Option<sync::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    /// The same as the standard library's.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex { steps: AtomicU64::new(0), inner: sync::Mutex::new(value) }
    }

    /// The same as the standard library's.
    pub fn into_inner(self) -> LockResult<T> {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// The same as the standard library's.
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        match self.inner.lock() {
            Ok(guard) => Ok(self.held(guard)),
            Err(poison) => Err(PoisonError::new(self.held(poison.into_inner()))),
        }
    }

    /// The same as the standard library's.
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        match self.inner.try_lock() {
            Ok(guard) => Ok(self.held(guard)),
            Err(TryLockError::Poisoned(poison)) => {
                Err(TryLockError::Poisoned(PoisonError::new(self.held(poison.into_inner()))))
            }
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
        }
    }

    /// The same as the standard library's.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.inner.get_mut()
    }

    fn held<'a>(&'a self, guard: sync::MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.step();
        MutexGuard { mutex: self, guard: Some(guard) }
    }

    fn step(&self) {
        // AcqRel pairs with itself, so that the sanitizer orders what comes before a step before
        // what comes after the next one.
        self.steps.fetch_add(1, Ordering::AcqRel);
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.mutex.step();
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.guard.as_deref().expect("only a condition variable takes it")
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.guard.as_deref_mut().expect("only a condition variable takes it")
    }
}

/// [`std::sync::Condvar`].
#[derive(Debug, Default)]
pub struct Condvar(sync::Condvar);

impl Condvar {
    /// The same as the standard library's.
    pub const fn new() -> Condvar {
        Condvar(sync::Condvar::new())
    }

    /// The same as the standard library's.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// The same as the standard library's.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }

    /// The same as the standard library's.
    pub fn wait<'a, T>(&self, mut guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        let (mutex, inner) = (guard.mutex, guard.guard.take());
        drop(guard); // the step
        match self.0.wait(inner.expect("only a condition variable takes it")) {
            Ok(inner) => Ok(mutex.held(inner)),
            Err(poison) => Err(PoisonError::new(mutex.held(poison.into_inner()))),
        }
    }

    /// The same as the standard library's.
    pub fn wait_timeout<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let (mutex, inner) = (guard.mutex, guard.guard.take());
        drop(guard); // the step
        let inner = inner.expect("only a condition variable takes it");
        match self.0.wait_timeout(inner, timeout) {
            Ok((inner, result)) => Ok((mutex.held(inner), result)),
            Err(poison) => {
                let (inner, result) = poison.into_inner();
                Err(PoisonError::new((mutex.held(inner), result)))
            }
        }
    }

    /// The same as the standard library's.
    pub fn wait_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<MutexGuard<'a, T>> {
        while condition(&mut guard) {
            guard = self.wait(guard)?;
        }
        Ok(guard)
    }

    /// The same as the standard library's, except that every wake-up before the time begins it
    /// anew.
    pub fn wait_timeout_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        timeout: Duration,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        loop {
            let held = condition(&mut guard);
            let time = if held { timeout } else { Duration::ZERO };
            let (again, result) = self.wait_timeout(guard, time)?;
            if !held || result.timed_out() {
                return Ok((again, result));
            }
            guard = again;
        }
    }
}

/// [`std::sync::OnceLock`].
#[derive(Debug)]
pub struct OnceLock<T> {
    value: sync::OnceLock<T>,
    /// Held while the value is made. A thread that finds the value there takes it once.
    gate: Mutex<()>,
}

impl<T> OnceLock<T> {
    /// The same as the standard library's.
    pub const fn new() -> OnceLock<T> {
        OnceLock { value: sync::OnceLock::new(), gate: Mutex::new(()) }
    }

    /// The same as the standard library's.
    pub fn get(&self) -> Option<&T> {
        let value = self.value.get()?;
        drop(self.gate());
        Some(value)
    }

    /// The same as the standard library's.
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        let _gate = self.gate();
        self.value.get_or_init(make)
    }

    /// The same as the standard library's.
    pub fn set(&self, value: T) -> Result<(), T> {
        let _gate = self.gate();
        self.value.set(value)
    }

    /// The same as the standard library's.
    pub fn take(&mut self) -> Option<T> {
        self.value.take()
    }

    fn gate(&self) -> MutexGuard<'_, ()> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> OnceLock<T> {
        OnceLock::new()
    }
}

/// [`std::sync::RwLock`], which waits by trying again and again.
#[derive(Debug, Default)]
pub struct RwLock<T: ?Sized>(sync::RwLock<T>);

pub use std::sync::{RwLockReadGuard, RwLockWriteGuard};

impl<T> RwLock<T> {
    /// The same as the standard library's.
    pub const fn new(value: T) -> RwLock<T> {
        RwLock(sync::RwLock::new(value))
    }
}

impl<T: ?Sized> RwLock<T> {
    /// The same as the standard library's, without sleeping.
    pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        until_free(|| self.0.try_read())
    }

    /// The same as the standard library's, without sleeping.
    pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        until_free(|| self.0.try_write())
    }

    /// The same as the standard library's.
    pub fn try_read(&self) -> TryLockResult<RwLockReadGuard<'_, T>> {
        self.0.try_read()
    }

    /// The same as the standard library's.
    pub fn try_write(&self) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        self.0.try_write()
    }
}

fn until_free<G>(mut attempt: impl FnMut() -> TryLockResult<G>) -> LockResult<G> {
    loop {
        match attempt() {
            Ok(guard) => return Ok(guard),
            Err(TryLockError::Poisoned(poison)) => return Err(poison),
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    }
}
