//! Locking a class of a pool.
//!
//! Invariant: a class that is locked for a zspage is the one that the zspage's header names.
//!
//! Lock: a shard's of a class. With the feature `study` it is the pool's and then the shard's, or
//! the pool's alone.

use host::LockGuard;

use super::{Leaving, Moving, Pool};
use crate::class::{Class, State};
use crate::zspages::DescriptorId;

impl Pool {
    /// Locks a class to give slots of it back. To take some, its own lock is enough.
    #[inline]
    pub(crate) fn lock<'p>(&'p self, class: &'p Class) -> LockGuard<'p, State> {
        self.locks.lock(class)
    }

    /// As [`Pool::lock`], if no other thread holds it.
    #[inline]
    pub(crate) fn try_lock<'p>(&'p self, class: &'p Class) -> Option<LockGuard<'p, State>> {
        self.locks.try_lock(class)
    }

    /// Locks a class to move its objects.
    pub(crate) fn lock_moving<'p>(&'p self, class: &'p Class) -> Moving<'p> {
        self.locks.lock_moving(class)
    }

    /// Runs `pin`, which reads a word and marks it as in use.
    #[inline(always)]
    pub(crate) fn pinning<R>(&self, pin: impl FnOnce() -> R) -> R {
        self.locks.pinning(&self.classes, pin)
    }

    /// Unlocks a class that the zspages of `leaving` left. The caller gives back those that are in
    /// it afterwards.
    #[inline(always)]
    pub(crate) fn unlock(&self, state: LockGuard<'_, State>, leaving: &mut Leaving) {
        let left = || self.release_any(std::mem::replace(leaving, Leaving::NONE));
        self.locks.unlock(state, left);
    }

    /// Locks the shard that a zspage belongs to. The caller keeps an object of it from moving.
    #[inline]
    pub(crate) fn lock_zspage(&self, id: DescriptorId) -> (&Class, LockGuard<'_, State>) {
        let header = self.memory.descriptors.header(id);
        loop {
            let class = self.classes.at(header.lock());
            let state = self.lock(class);
            // Compaction may have given it to another shard before the lock was there.
            if header.lock() == class.number {
                return (class, state);
            }
        }
    }
}
