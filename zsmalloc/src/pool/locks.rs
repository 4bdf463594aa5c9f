//! The locks of a pool above those of its classes: there are none. Each shard of a class has a lock
//! of its own, and an object is looked up without a lock.
//!
//! With the feature `study` the file of that name is in the place of this one, because it has other
//! designs too.
//!
//! Source: study S0. The class of an object is read from its word. A move may change it, and moves
//! are counted. A free takes the lock that word and zspage named. If the count is as before, the
//! lookup stands; if not, all of it is repeated.
//!
//! Invariant: a thread that holds the guard of a class is alone in that class, and no object of it
//! moves.
//!
//! Lock: a shard's, of rank `Class`. The caller has it for as long as it keeps the guard.

use host::{Lock, LockGuard, Rank};

use super::Classes;
use crate::class::{Class, State};

/// No locks.
pub(crate) struct Locks;
const _: () = assert!(size_of::<Locks>() == 0, "class locks are the only design");

/// A class, locked, while objects of it move.
pub(crate) type Moving<'p> = LockGuard<'p, State>;

impl Locks {
    /// The shards of each class, of which there may be so many.
    pub(super) fn shards(&self, most: usize) -> usize {
        most
    }

    /// The lock of one shard of a class.
    pub(super) fn of_class(&self) -> Lock<State> {
        Lock::new(Rank::Class, State::default())
    }

    /// Locks a class to give slots of it back.
    #[inline]
    pub(super) fn lock<'c>(&self, class: &'c Class) -> LockGuard<'c, State> {
        class.lock()
    }

    /// As [`Locks::lock`], if no other thread holds it.
    #[inline]
    pub(super) fn try_lock<'c>(&self, class: &'c Class) -> Option<LockGuard<'c, State>> {
        class.try_lock()
    }

    /// Locks a class to move its objects.
    pub(super) fn lock_moving<'c>(&self, class: &'c Class) -> Moving<'c> {
        class.lock()
    }

    /// Runs `pin`, which reads a word and marks it as in use. That needs no lock.
    #[inline(always)]
    pub(super) fn pinning<R>(&self, _: &Classes, pin: impl FnOnce() -> R) -> R {
        pin()
    }

    /// Unlocks a class. The caller gives back what left it afterwards.
    #[inline(always)]
    pub(super) fn unlock(&self, state: LockGuard<'_, State>, _: impl FnOnce()) {
        drop(state);
    }
}
