//! Mounted file systems and mount namespaces: never both at a time.
//!
//! A new namespace has a copy of every mount. A file system that is unmounted elsewhere lives on
//! in it. A test that mounts the disk once more would then find a file system that is still written
//! to.
//!
//! Lock: one, around the counts.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// How many there are of each.
static COUNTS: Mutex<[usize; 3]> = Mutex::new([0; 3]);
static ENDED: Condvar = Condvar::new();

/// What cannot be while there is one of the other kind.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Space {
    Mount,
    Names,
    /// A mount and a namespace that has a copy of it: nothing else is beside them.
    Alone,
}

/// One of them, until dropped.
pub(crate) struct Entered(Space);

impl Space {
    /// Waits until there is none of the other kind. A thread may hold several mounts: while it has
    /// one, no other thread may wait before it.
    pub(crate) fn enter(self) -> Entered {
        let others: &[Space] = match self {
            Space::Mount => &[Space::Names, Space::Alone],
            Space::Names => &[Space::Mount, Space::Alone],
            Space::Alone => &[Space::Mount, Space::Names, Space::Alone],
        };
        let occupied = |counts: &mut [usize; 3]| others.iter().any(|&it| counts[it as usize] > 0);
        let counts = ENDED.wait_while(counts(), occupied);
        counts.unwrap_or_else(PoisonError::into_inner)[self as usize] += 1;
        Entered(self)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        counts()[self.0 as usize] -= 1;
        ENDED.notify_all();
    }
}

/// Whole whenever the lock is free: a test that fails drops what it entered.
fn counts() -> MutexGuard<'static, [usize; 3]> {
    COUNTS.lock().unwrap_or_else(PoisonError::into_inner)
}
