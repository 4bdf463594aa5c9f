//! The standard library's synchronisation, or loom's or shuttle's under the same names.
//!
//! Code with an atomic protocol takes its atomics, mutexes and threads from here and nowhere else.
//!
//! ```text
//!   cfg(loom)      a scenario explores every interleaving of a small part of the code that ships
//!   cfg(shuttle)   a scenario explores random interleavings of the whole
//!   cfg(tsan)      the locks are those whose every step ThreadSanitizer sees
//! ```
//!
//! Invariant: each name is the same type in meaning under every configuration. Lock: none of its
//! own.

pub mod fork;
#[cfg(tsan)]
mod seen;
#[cfg(tsan)]
pub use seen::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

#[cfg(not(any(loom, shuttle, tsan)))]
pub use std::sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(any(loom, shuttle)))]
pub use std::{hint, sync::atomic, thread};

#[cfg(loom)]
pub use loom::sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(loom)]
pub use loom::{hint, sync::atomic, thread};

#[cfg(shuttle)]
pub mod atomic;
#[cfg(shuttle)]
pub use shuttle::sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(shuttle)]
pub use shuttle::{hint, thread};

/// Locks of code that no model runs. They are the standard library's under loom and shuttle too.
pub mod unmodelled {
    #[cfg(tsan)]
    pub use crate::sync::seen::{Condvar, Mutex, MutexGuard, OnceLock};
    #[cfg(tsan)]
    pub use crate::sync::seen::{RwLock, RwLockReadGuard, RwLockWriteGuard};
    #[cfg(not(tsan))]
    pub use std::sync::{Condvar, Mutex, MutexGuard, OnceLock};
    #[cfg(not(tsan))]
    pub use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
}

/// A full barrier that only loom needs, between a SeqCst read-modify-write and a SeqCst load.
///
/// In the C++ memory model those two are already ordered. Loom treats SeqCst accesses as
/// acquire-release and models SeqCst in fences alone. The barrier that the operations imply must
/// therefore be written out for it.
#[inline]
pub(crate) fn fence_for_loom() {
    #[cfg(loom)]
    atomic::fence(atomic::Ordering::SeqCst);
}

#[cfg(not(loom))]
mod cell {
    /// Storage whose exclusive access a lock ensures. Loom's variant checks that it does.
    #[derive(Debug)]
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) const fn new(value: T) -> UnsafeCell<T> {
            UnsafeCell(std::cell::UnsafeCell::new(value))
        }

        pub(crate) fn get_mut(&self) -> MutPtr<T> {
            MutPtr(self.0.get())
        }

        pub(crate) fn into_inner(self) -> T {
            self.0.into_inner()
        }
    }

    /// The right to the content of the cell, for as long as this value lives.
    #[derive(Debug)]
    pub(crate) struct MutPtr<T>(*mut T);

    impl<T> MutPtr<T> {
        /// Passes the address of the content to `access`.
        pub(crate) fn with<R>(&self, access: impl FnOnce(*mut T) -> R) -> R {
            access(self.0)
        }
    }
}

#[cfg(not(loom))]
pub(crate) use cell::{MutPtr, UnsafeCell};

#[cfg(loom)]
pub(crate) use loom::cell::{MutPtr, UnsafeCell};
