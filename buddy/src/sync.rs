//! The lock of the shared zone and the counts beside it: std's, or a model's where this crate or
//! an allocator above it is checked in one.
//!
//! Shuttle gets std's counts. They order nothing, so to be interrupted at each of them would only
//! make the histories of a pool longer.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
pub(crate) use std::sync::{Arc, PoisonError, TryLockError};
#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::sync::{Mutex, MutexGuard};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard};

#[cfg(shuttle)]
pub(crate) use shuttle::sync::{Mutex, MutexGuard};
