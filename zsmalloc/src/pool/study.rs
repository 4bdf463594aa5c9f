//! The three lock designs of the studies, the two times to give frames back, and all that differs
//! between them. Without the feature `study` the file `locks` is in the place of this one: it has
//! the class design alone.
//!
//! ```text
//!                   hierarchical                  pool              class
//!   take            class                         the pool's lock   class
//!   give            pool rwlock (read), class     the pool's lock   class
//!   pin             pool rwlock (read)            the pool's lock   nothing
//!   move, migrate   pool rwlock (write), class    the pool's lock   class
//! ```
//!
//! In the class design (study S0) the class of an object is read from its word without a lock. A
//! move may change it, and moves are counted. A free pins nothing. It takes the lock that word and
//! zspage named. If the count is as before, the lookup stands; if not, all of it is repeated.
//!
//! The hierarchical design is the base of that study. A free takes the
//! pool's lock for reading, so that nothing moves, until it holds the class lock. A thread that
//! takes a slot looks nothing up, and knows its class. It is the way for words that are too small
//! to hold a class.
//!
//! The pool design (study S4) has one lock instead of all; its classes share a lock word.
//!
//! Invariant: a thread that holds the guard of a class is alone in that class, and no object of it
//! moves. Nothing else in this crate asks which design a pool has.
//!
//! Locks: the pool rwlock, of rank Pool, before the class locks.
//!
//! ```
//! # use ramfold_zsmalloc::{Memory, MemoryConfig, MemoryError, Pool, PoolConfig};
//! use ramfold_zsmalloc::study::LockDesign;
//!
//! # let memory = MemoryConfig {
//! #     arena_frames: 1 << 12,
//! #     entries_max: 1 << 12,
//! #     expected_bytes: 1 << 20,
//! #     worker: false,
//! # };
//! let config = PoolConfig { study: LockDesign::Pool.into(), ..PoolConfig::default() };
//! let pool = Pool::new(Memory::new(memory)?, config)?;
//! assert_eq!(pool.shards(), 1);
//! # Ok::<(), MemoryError>(())
//! ```

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::str::FromStr;
use std::sync::Arc;

use host::{Lock, LockGuard, LockWord, Rank, RankedReadGuard, RankedRwLock, RankedWriteGuard};

use super::Classes;
use crate::class::{Class, State};

/// How a pool differs from what it is without the feature `study`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Study {
    /// Which locks there are.
    pub design: LockDesign,
    /// When the frames of emptied zspages go back.
    pub release: Release,
}

impl From<LockDesign> for Study {
    fn from(design: LockDesign) -> Study {
        Study { design, ..Study::default() }
    }
}

impl From<Release> for Study {
    fn from(release: Release) -> Study {
        Study { release, ..Study::default() }
    }
}

/// Which locks a pool has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LockDesign {
    /// A pool-wide readers-writer lock before the class locks. A class has one shard.
    Hierarchical,
    /// One lock for the pool. A class has one shard.
    Pool,
    /// Class locks alone; the class is found without a lock.
    #[default]
    Class,
}

/// When the frames of an emptied zspage go back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Release {
    /// While the class lock is held, as before study S0: for comparison.
    Inside,
    /// After it.
    #[default]
    Outside,
}

impl LockDesign {
    /// Every design.
    pub const ALL: [LockDesign; 3] =
        [LockDesign::Hierarchical, LockDesign::Pool, LockDesign::Class];

    /// Its name in options and reports.
    pub fn name(self) -> &'static str {
        match self {
            LockDesign::Hierarchical => "hierarchical",
            LockDesign::Pool => "pool",
            LockDesign::Class => "class",
        }
    }
}

impl Release {
    /// Both.
    pub const ALL: [Release; 2] = [Release::Inside, Release::Outside];

    /// Its name in options and reports.
    pub fn name(self) -> &'static str {
        match self {
            Release::Inside => "inside",
            Release::Outside => "outside",
        }
    }
}

impl fmt::Display for LockDesign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for LockDesign {
    type Err = String;

    fn from_str(name: &str) -> Result<LockDesign, String> {
        let found = LockDesign::ALL.into_iter().find(|design| design.name() == name);
        found.ok_or_else(|| format!("unknown design \"{name}\": hierarchical, pool or class"))
    }
}

impl FromStr for Release {
    type Err = String;

    fn from_str(name: &str) -> Result<Release, String> {
        let found = Release::ALL.into_iter().find(|release| release.name() == name);
        found.ok_or_else(|| format!("unknown release \"{name}\": inside or outside"))
    }
}

/// The locks of a pool above its classes' own.
pub(crate) struct Locks {
    /// Objects are looked up without a lock: the class design.
    free_lookup: bool,
    /// In the hierarchical design: held for reading to look an object up, for writing to move one.
    lookup: Option<RankedRwLock<()>>,
    /// In the pool design: the word that every class uses.
    shared: Option<Arc<LockWord>>,
    /// Frames go back while the class lock is held.
    inside: bool,
}

impl Locks {
    pub(super) fn new(Study { design, release }: Study) -> Locks {
        Locks {
            free_lookup: design == LockDesign::Class,
            lookup: (design == LockDesign::Hierarchical).then(|| RankedRwLock::new(Rank::Pool, ())),
            shared: (design == LockDesign::Pool).then(Arc::default),
            inside: release == Release::Inside,
        }
    }

    /// Shards of each class, where there might be so many.
    pub(super) fn shards(&self, most: usize) -> usize {
        if self.free_lookup { most } else { 1 }
    }

    /// The lock of one shard of a class.
    pub(super) fn of_class(&self) -> Lock<State> {
        match &self.shared {
            Some(word) => Lock::sharing(Arc::clone(word), Rank::Class, State::default()),
            None => Lock::new(Rank::Class, State::default()),
        }
    }

    /// Locks a class to give slots of it back.
    #[inline]
    pub(super) fn lock<'c>(&self, class: &'c Class) -> LockGuard<'c, State> {
        if self.free_lookup { class.lock() } else { self.lock_looked_up(class) }
    }

    #[inline(never)]
    fn lock_looked_up<'c>(&self, class: &'c Class) -> LockGuard<'c, State> {
        let looked_up = self.look_up();
        let state = class.lock();
        drop(looked_up);
        state
    }

    /// As [`Locks::lock`], if no other thread holds it.
    #[inline]
    pub(super) fn try_lock<'c>(&self, class: &'c Class) -> Option<LockGuard<'c, State>> {
        if self.free_lookup { class.try_lock() } else { self.try_lock_looked_up(class) }
    }

    #[inline(never)]
    fn try_lock_looked_up<'c>(&self, class: &'c Class) -> Option<LockGuard<'c, State>> {
        let looked_up = self.look_up();
        let state = class.try_lock();
        drop(looked_up);
        state
    }

    /// Locks a class to move its objects.
    pub(super) fn lock_moving<'c>(&'c self, class: &'c Class) -> Moving<'c> {
        let stopped = self.stop();
        Moving { state: class.lock(), _stopped: stopped }
    }

    /// Runs `pin`, which reads a word and marks it as in use, as the design demands. `classes`
    /// are those of the pool.
    #[inline(always)]
    pub(super) fn pinning<R>(&self, classes: &Classes, pin: impl FnOnce() -> R) -> R {
        if self.free_lookup { pin() } else { self.pinning_locked(classes, pin) }
    }

    #[inline(never)]
    fn pinning_locked<R>(&self, classes: &Classes, pin: impl FnOnce() -> R) -> R {
        let _looked_up = self.look_up();
        let _alone = self.shared.is_some().then(|| classes.first(0).lock());
        pin()
    }

    /// Unlocks a class. `release` gives back what left it.
    #[inline(always)]
    pub(super) fn unlock(&self, state: LockGuard<'_, State>, release: impl FnOnce()) {
        if self.inside {
            release();
        }
        drop(state);
    }

    #[inline]
    fn look_up(&self) -> Option<RankedReadGuard<'_, ()>> {
        self.lookup.as_ref().map(RankedRwLock::read)
    }

    fn stop(&self) -> Option<RankedWriteGuard<'_, ()>> {
        self.lookup.as_ref().map(RankedRwLock::write)
    }
}

/// A class, locked, while objects of it move.
pub(crate) struct Moving<'p> {
    state: LockGuard<'p, State>,
    /// The pool's lock, held so that no thread looks an object up.
    _stopped: Option<RankedWriteGuard<'p, ()>>,
}

impl Moving<'_> {
    /// As of the guard. Threads that wait for the pool's lock in the hierarchical design are not
    /// seen.
    pub(crate) fn is_contended(&self) -> bool {
        self.state.is_contended()
    }
}

impl Deref for Moving<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Moving<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::HeldRank;

    #[cfg(debug_assertions)]
    fn hierarchical() -> Locks {
        Locks::new(LockDesign::Hierarchical.into())
    }

    /// A thread that moves objects holds the pool's lock and waits for the class.
    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "R1: waiting for a lock of rank Pool")]
    fn the_pools_lock_under_a_class_is_caught() {
        let locks = hierarchical();
        let _class = HeldRank::enter(Rank::Class);
        drop(locks.look_up());
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "R1: waiting for a lock of rank Pool")]
    fn moving_while_looking_up_is_caught() {
        let locks = hierarchical();
        let _looked_up = locks.look_up();
        drop(locks.stop());
    }

    /// As in the study's base. In debug builds a wait for the pool's lock would panic here.
    #[test]
    #[cfg(not(any(loom, shuttle)))]
    fn an_allocation_does_not_wait_for_the_pools_lock() {
        let memory = crate::MemoryConfig {
            arena_frames: 1 << 12,
            entries_max: 1 << 12,
            expected_bytes: 1 << 20,
            worker: false,
        };
        let config =
            crate::PoolConfig { study: LockDesign::Hierarchical.into(), ..Default::default() };
        let pool = crate::Pool::new(crate::Memory::new(memory).unwrap(), config).unwrap();
        let moving = pool.locks.stop();
        assert!(moving.is_some(), "objects may be moved");
        let handles: Vec<_> = (0..100).map(|_| pool.alloc(&[7; 1000]).unwrap()).collect();
        drop(moving);
        pool.free_batch(handles).unwrap();
        assert_eq!(pool.check().unwrap().objects, 0);
    }

    #[test]
    fn names_are_read_back() {
        for design in LockDesign::ALL {
            assert_eq!(design.name().parse(), Ok(design));
        }
        for release in Release::ALL {
            assert_eq!(release.name().parse(), Ok(release));
        }
        assert!("rcu".parse::<LockDesign>().is_err() && "both".parse::<Release>().is_err());
    }
}
