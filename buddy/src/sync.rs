//! The lock of the shared zone, named in one place so that a model checker can stand in for it.

pub(crate) use std::sync::{Mutex, MutexGuard, PoisonError};
