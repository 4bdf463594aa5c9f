//! The lock of the shared zone: std's, or a model's where allocators above are checked in one.

#[cfg(loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard};
#[cfg(shuttle)]
pub(crate) use shuttle::sync::{Mutex, MutexGuard};
pub(crate) use std::sync::PoisonError;
#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::sync::{Mutex, MutexGuard};
