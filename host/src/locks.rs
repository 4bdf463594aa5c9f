//! Locks of one futex word each, their order, and places where threads sleep.
//!
//! Invariant: taking or waking one of them allocates nothing, so a signal handler may do it. Debug
//! builds assert the order of ranks.

mod bitlock;
mod event;
mod futex;
#[expect(unsafe_code, reason = "lends the value to the one thread that has the lock")]
mod lock;
mod rank;
mod ranked;

pub use bitlock::BitLockWaiters;
pub use event::Event;
pub use lock::{Lock, LockGuard, LockWord};
pub use rank::{HeldRank, Rank};
pub use ranked::unmodelled;
pub use ranked::{RankedMutex, RankedMutexGuard, RankedReadGuard, RankedRwLock, RankedWriteGuard};
