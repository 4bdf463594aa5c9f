//! The lock of the shared zone: std's, or loom's where allocators above are model-checked.

#[cfg(loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard};
pub(crate) use std::sync::PoisonError;
#[cfg(not(loom))]
pub(crate) use std::sync::{Mutex, MutexGuard};
