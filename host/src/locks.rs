//! Locks of one futex word each, their order, and places to sleep.
//!
//! Each works in a signal handler: none allocates, and a lock may be taken in one. The order of
//! ranks is asserted in debug builds.

mod bitlock;
mod event;
mod futex;
mod lock;
mod rank;

pub use bitlock::BitLockWaiters;
pub use event::Event;
pub use lock::{Lock, LockGuard, LockWord};
pub use rank::{Held, Rank};
