//! A lock for threads of the program, which use nothing of a C library.
//!
//! ```text
//!   0 free    1 taken    2 taken, and somebody may sleep
//! ```
//!
//! Invariant: one thread has the turn from `take` to `give`. Lock: this is one.

#[cfg(not(loom))]
use super::call;
use host::sync::atomic::{AtomicU32, Ordering};

/// The word of the lock.
#[derive(Debug)]
#[cfg_attr(not(loom), expect(unreachable_pub, reason = "a model uses it from outside"))]
pub struct Turn(AtomicU32);

#[cfg_attr(not(loom), expect(unreachable_pub, reason = "a model uses it from outside"))]
impl Turn {
    /// A lock that is free.
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Turn {
        Turn(AtomicU32::new(0))
    }

    /// A lock that is free, in a model.
    #[cfg(loom)]
    #[expect(clippy::new_without_default, reason = "outside models it is a constant")]
    pub fn new() -> Turn {
        Turn(AtomicU32::new(0))
    }

    /// Waits for the turn, and takes it.
    pub fn take(&self) {
        // Acquire pairs with the Release in `give`.
        while self.0.swap(2, Ordering::Acquire) != 0 {
            self.sleep();
        }
    }

    /// Takes the turn if it is free.
    pub fn try_take(&self) -> bool {
        // Acquire pairs with the Release in `give`. relaxed: a failure reads nothing.
        self.0.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Gives the turn up.
    pub fn give(&self) {
        // Release pairs with the Acquire of the next owner.
        if self.0.swap(0, Ordering::Release) == 2 {
            self.wake();
        }
    }

    #[cfg(not(loom))]
    fn sleep(&self) {
        call::wait(&self.0, 2, 1000);
    }

    #[cfg(not(loom))]
    fn wake(&self) {
        call::wake(&self.0);
    }

    /// A sleeper looks again by itself, so a model needs no more.
    #[cfg(loom)]
    fn sleep(&self) {
        host::sync::thread::yield_now();
    }

    #[cfg(loom)]
    fn wake(&self) {}
}
