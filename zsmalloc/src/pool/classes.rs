//! The classes of a pool: the first shard of each, and the others once several CPUs store objects.
//!
//! ```text
//!   number   0 ..    first shards, one for each class, smallest size first
//!            n ..    the others, those of one class side by side; made together, at most once
//! ```
//!
//! A pool that no two threads meet in has first shards alone. The others would be two hundredths of
//! a pool of 2 MiB, with two CPUs.
//!
//! Invariants
//! - I1 a shard has one number for good, which headers of zspages name.
//! - I2 a thread that finds the number of another shard in a live zspage's header sees that shard:
//!   it came to the header through the object's word, or counted the move, and both were published
//!   after the shard was made.
//!
//! Lock: none.

use host::sync::unmodelled::OnceLock;

use crate::class::Class;

/// See the module documentation.
pub(crate) struct Classes {
    first: Vec<Class>,
    others: OnceLock<Vec<Class>>,
    /// Of each class, once all are made.
    shards: usize,
}

/// The shards of one class that there are.
#[derive(Clone, Copy)]
pub(crate) struct Shards<'c> {
    pub(crate) first: &'c Class,
    pub(crate) others: &'c [Class],
}

impl<'c> Shards<'c> {
    pub(crate) fn iter(self) -> impl Iterator<Item = &'c Class> {
        std::iter::once(self.first).chain(self.others)
    }
}

impl Classes {
    /// Classes with their first shards.
    pub(super) fn new(first: Vec<Class>, shards: usize) -> Classes {
        Classes { first, others: OnceLock::new(), shards }
    }

    /// Makes the other shards, unless they are there; `make` gets a class's first, and a shard's
    /// number in the class and among all. False where there is no memory for them.
    pub(super) fn make_others(&self, make: impl Fn(&Class, (usize, usize)) -> Class) -> bool {
        if self.shards == 1 || self.others.get().is_some() {
            return true;
        }
        let mut others = Vec::new();
        if others.try_reserve_exact(self.first.len() * (self.shards - 1)).is_err() {
            return false;
        }
        for first in &self.first {
            for shard in 1..self.shards {
                others.push(make(first, (shard, self.first.len() + others.len())));
            }
        }
        // Those of a thread that was sooner are as good.
        let _ = self.others.set(others);
        true
    }

    /// How many there are once all are made.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.first.len() * self.shards
    }

    /// The first shard at a position among the classes.
    #[inline]
    pub(crate) fn first(&self, position: usize) -> &Class {
        &self.first[position]
    }

    /// A shard of the class at a position; the first where the others are not there yet.
    #[inline]
    pub(super) fn shard(&self, position: usize, shard: usize) -> &Class {
        if shard == 0 {
            return &self.first[position];
        }
        self.of(position).others.get(shard - 1).unwrap_or(&self.first[position])
    }

    /// The shard of a number. A number that is not there was read in the header of a frame's next
    /// life, in another pool: any shard will do, because the caller looks again under its lock.
    #[inline]
    pub(crate) fn at(&self, number: usize) -> &Class {
        match self.first.get(number) {
            Some(class) => class,
            None => self.others().get(number - self.first.len()).unwrap_or(&self.first[0]),
        }
    }

    /// Every shard that there is, by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Class> {
        self.first.iter().chain(self.others())
    }

    /// The classes, each as its shards, smallest size first.
    pub(crate) fn each(&self) -> impl DoubleEndedIterator<Item = Shards<'_>> {
        (0..self.first.len()).map(|position| self.of(position))
    }

    /// The first shards of the classes after a position, the next larger one first.
    pub(crate) fn after(&self, position: usize) -> impl Iterator<Item = &Class> {
        self.first[position + 1..].iter()
    }

    /// The shards of the class at a position.
    pub(crate) fn of(&self, position: usize) -> Shards<'_> {
        let each = self.shards - 1;
        let others = self.others().get(position * each..(position + 1) * each).unwrap_or_default();
        Shards { first: &self.first[position], others }
    }

    /// Bytes of those that are made.
    pub(crate) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.first) + size_of_val(self.others())
    }

    fn others(&self) -> &[Class] {
        self.others.get().map_or(&[], Vec::as_slice)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::{Memory, MemoryConfig, Pool, PoolConfig};
    use std::sync::Arc;

    fn pool(shards: Option<usize>) -> Arc<Pool> {
        let config = MemoryConfig { worker: false, ..MemoryConfig::for_disk(1 << 20) };
        let memory = Memory::new(config).expect("address space");
        Pool::new(memory, PoolConfig { shards, ..PoolConfig::default() }).expect("a pool")
    }

    #[test]
    fn a_shard_is_found_by_its_number() {
        let pool = pool(Some(3));
        let (classes, n) = (&pool.classes, pool.geometry().classes().count());
        assert_eq!(
            (classes.len(), classes.iter().count(), classes.each().count()),
            (3 * n, 3 * n, n)
        );
        assert!(classes.iter().enumerate().all(|(number, class)| class.number == number));
        for (position, shards) in classes.each().enumerate() {
            for (shard, class) in shards.iter().enumerate() {
                assert_eq!((class.shard, class.index), (shard, shards.first.index));
                assert!(std::ptr::eq(class, classes.at(class.number)));
                assert!(std::ptr::eq(class, classes.shard(position, shard)));
            }
        }
    }

    /// They are as large as the first ones, together.
    #[test]
    fn other_shards_are_made_when_threads_meet() {
        let pool = pool(None);
        let (classes, n) = (&pool.classes, pool.geometry().classes().count());
        assert_eq!(classes.iter().count(), n);
        let missing = [classes.at(n), classes.shard(7, 1)];
        if pool.shards() == 1 {
            return;
        }
        assert!(std::ptr::eq(missing[0], classes.first(0)), "any will do, and is looked at again");
        assert!(std::ptr::eq(missing[1], classes.first(7)));
        let held = pool.alloc(&[1; 100]).expect("room");
        let before = pool.stats().class_bytes;
        pool.spread();
        assert_eq!(classes.iter().count(), classes.len());
        let others = (pool.shards() - 1) * n * size_of::<Class>();
        assert_eq!(pool.stats().class_bytes - before, others as u64);
        pool.free_handle(held).expect("ours");
        pool.check().expect("no defect");
    }
}
