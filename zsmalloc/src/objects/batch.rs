//! Freeing many handles under one lock hold for each class.
//!
//! ```text
//!   handles --> entries (512), cells prefetched
//!   moves counted; each found without a lock     --> a list for each lock that was found
//!   for each lock                                    those first that nobody holds
//!     class lock; moves counted: as before?      --> else each is looked for again
//!     slots and entries back
//!   strays, one by one; then all emptied zspages
//! ```
//!
//! A *stray* is an object that moved, or whose zspage changed its shard, while the batch was
//! sorted.
//!
//! Source: the drain of study S3.
//!
//! Invariants: those of `free`. A list ends with [`END`].
//!
//! Locks: one class at a time.

use host::LockGuard;

use crate::class::{Class, State};
use crate::numbers::CellNumber;
use crate::pool::Leaving;
use crate::pool::Pool;
use crate::pool::Tables;
use crate::zspages::{DescriptorId, LOCKS_NAMED, Zspage};

/// Handles sorted together: what fits on a stack.
pub(crate) const BATCH: usize = if cfg!(loom) { 4 } else { 512 };
/// The end of a list.
const END: u16 = u16::MAX;
const _: () = assert!(BATCH < END as usize, "a position in a batch is no end");

/// The place at which an object of a batch was found.
#[derive(Clone, Copy)]
struct Seen {
    descriptor: DescriptorId,
    entry: CellNumber,
    /// The position in the batch of the next one in its list.
    next: u16,
    object: u16,
}

/// A batch, as a list for each lock.
struct Sorted {
    seen: [Seen; BATCH],
    /// By lock: where its list begins.
    heads: [u16; LOCKS_NAMED],
    /// Locks whose list is, or was, not empty.
    locks: [u16; BATCH],
    locks_len: usize,
    /// Moves that were counted before the first look.
    moves: u64,
}

impl Sorted {
    /// No list yet; `moves` were counted before the first look.
    #[inline(always)]
    fn new(moves: u64) -> Sorted {
        // All zeros, which is soon written.
        let nothing =
            Seen { descriptor: DescriptorId::NONE, entry: CellNumber::NONE, next: 0, object: 0 };
        Sorted {
            seen: [nothing; BATCH],
            heads: [END; LOCKS_NAMED],
            locks: [0; BATCH],
            locks_len: 0,
            moves,
        }
    }

    /// Finds the objects of entries that the caller owns.
    #[inline(always)]
    fn find(&mut self, tables: Tables<'_>, entries: &[CellNumber]) {
        let mut len = 0;
        for (position, (&entry, seen)) in entries.iter().zip(&mut self.seen).enumerate() {
            let found = tables.find(tables.handle_cell(entry));
            let next = std::mem::replace(&mut self.heads[found.lock], position as u16);
            // There is no branch, because it could not be predicted whether a list is new.
            self.locks[len] = found.lock as u16;
            len += usize::from(next == END);
            let (descriptor, object) = (found.zspage.id, found.object.into());
            *seen = Seen { descriptor, entry, next, object };
        }
        self.locks_len = len;
    }

    /// Takes the list of a lock.
    fn take(&mut self, lock: usize) -> u16 {
        std::mem::replace(&mut self.heads[lock], END)
    }
}

/// What a lock hold leaves to be done.
struct Rest {
    /// Zspages that were emptied.
    leaving: Leaving,
    /// Entries whose object is no longer under the lock.
    strays: Vec<CellNumber>,
}

impl Pool {
    /// Frees the objects of at most [`BATCH`] entries that the caller owns.
    pub(crate) fn free_entries(&self, entries: &[CellNumber]) {
        // It is not one of a pair, because a pair would be put together elsewhere and copied here.
        let mut sorted = Sorted::new(self.moves());
        let tables = self.tables();
        sorted.find(tables, entries);
        self.free_sorted(&tables, &mut sorted);
    }

    /// Frees the objects of a batch, list by list.
    ///
    /// A list's lock may be one that the pool has not made: it was read in the header of a frame's
    /// next life. Then another lock is held instead, and its objects are looked for again.
    #[inline(always)]
    fn free_sorted(&self, tables: &Tables<'_>, sorted: &mut Sorted) {
        let mut rest = Rest { leaving: Leaving::NONE, strays: Vec::new() };
        // The locks that are free come first.
        let mut busy = false;
        for index in 0..sorted.locks_len {
            let lock = usize::from(sorted.locks[index]);
            let class = self.classes.at(lock);
            if let Some(&next) = sorted.locks[..sorted.locks_len].get(index + 1) {
                self.classes.at(usize::from(next)).prefetch();
            }
            match self.try_lock(class) {
                Some(state) => self.free_list((class, lock), state, tables, sorted, &mut rest),
                None => busy = true,
            }
        }
        for index in 0..if busy { sorted.locks_len } else { 0 } {
            let lock = usize::from(sorted.locks[index]);
            let class = self.classes.at(lock);
            if sorted.heads[lock] != END {
                self.free_list((class, lock), self.lock(class), tables, sorted, &mut rest);
            }
        }
        // One by one, each where it is found: asked for again, it could be a stray again.
        rest.strays.into_iter().for_each(|entry| self.free_entry(entry));
        self.release_any(rest.leaving);
        self.stir();
    }

    /// Frees the objects of a batch that were found under one lock. The class is that of the lock,
    /// if the pool has made it, and its state is given up. Objects that moved are left, and so are
    /// those whose zspage went to another shard.
    fn free_list(
        &self,
        (class, lock): (&Class, usize),
        mut state: LockGuard<'_, State>,
        tables: &Tables<'_>,
        sorted: &mut Sorted,
        rest: &mut Rest,
    ) {
        let (of, mut position) = (tables.descriptors(class), sorted.take(lock));
        if self.moves() != sorted.moves || class.number != lock {
            position = self.find_list_again(class, tables, position, sorted, rest);
        }
        let mut freed = 0;
        while position != END {
            let Seen { descriptor, entry, next, object } = sorted.seen[usize::from(position)];
            position = next;
            let header = tables.header(descriptor);
            let in_use = header.give(object.into());
            state.entries.give(entry, tables.handle_cell(entry), &self.stocks.handles);
            freed += 1;
            // They are freed one by one, although several may be of one zspage, because it could
            // not be predicted how many.
            if state.drain_one(&of, Zspage { id: descriptor, header }, in_use) {
                rest.leaving.push(&self.memory, descriptor);
            }
        }
        state.count_freed_handles(freed);
        class.hint_partial(state.fullness.fullest_with_room().is_some());
        self.unlock(state, &mut rest.leaving);
    }

    /// Looks for the objects of a list again, with its lock held: where they are found now they
    /// stay. Gives the list without those that are no longer there.
    #[cold]
    fn find_list_again(
        &self,
        class: &Class,
        tables: &Tables<'_>,
        mut position: u16,
        sorted: &mut Sorted,
        rest: &mut Rest,
    ) -> u16 {
        let mut there = END;
        while position != END {
            let seen = &mut sorted.seen[usize::from(position)];
            let (at, entry) = (position, seen.entry);
            position = seen.next;
            let Some(found) = self.find_again(class, tables.handle_cell(entry)) else {
                rest.strays.push(entry);
                continue;
            };
            let (descriptor, object) = (found.zspage.id, found.object.into());
            *seen = Seen { descriptor, entry, next: there, object };
            there = at;
        }
        there
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;
    use crate::{Memory, MemoryConfig, Pool, PoolConfig};

    /// What a look without a lock may find: the header of a frame's next life, which names a shard
    /// that this pool has not made. Such objects were once lost.
    #[test]
    fn objects_found_under_a_lock_that_is_not_there_are_freed() {
        let config = MemoryConfig { worker: false, ..MemoryConfig::for_disk(16 << 20) };
        let pool = Pool::new(Memory::new(config).expect("address space"), PoolConfig::default());
        let pool = pool.expect("a pool");
        let handles: Vec<_> = (0..9).map(|_| pool.alloc(&[7; 1000]).expect("room")).collect();
        let entries: Vec<CellNumber> = handles.into_iter().map(|it| it.entry()).collect();
        let mut sorted = Sorted::new(pool.moves());
        sorted.find(pool.tables(), &entries);
        assert_eq!(sorted.locks_len, 1);
        let found = usize::from(sorted.locks[0]);
        let head = sorted.take(found);
        sorted.heads[LOCKS_NAMED - 1] = head;
        sorted.locks[0] = (LOCKS_NAMED - 1) as u16;
        pool.free_sorted(&pool.tables(), &mut sorted);
        let report = pool.check().expect("it is sound");
        assert_eq!((pool.stats().objects, report.in_flight), (0, 0));
    }
}
