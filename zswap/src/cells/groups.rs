//! Groups: the kernel's memory cgroups, without a hierarchy. Each has a limit of its own, and may
//! forbid that its pages go to disk.
//!
//! ```text
//!   cell 4711 -> | 0 | 3 | 3 | 0 | ...     the group of each entry: a byte, 0 = no other
//!   group 3   -> current 81920, limit 1 MiB, write-back allowed
//! ```
//!
//! Invariant: a group's `current` is the sum of the objects of its entries. Entries in detached
//! leaves are included until they are drained.
//!
//! Locks: none. Only the thread that has a cell locked uses the cell's byte.

use host::Table;
use host::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use host::sync::unmodelled::OnceLock;
use zsmalloc::{CellNumber, MemoryError, Pool};

use crate::terms::GroupId;

/// What a group holds, and what it may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupStat {
    /// The group.
    pub id: GroupId,
    /// Bytes of compressed and raw objects; not counted for group 0.
    pub current: u64,
    /// The most bytes it may have; `u64::MAX` = no limit.
    pub limit: u64,
    /// Whether its pages may go to disk.
    pub writeback: bool,
    /// Pages of the group that were written to disk so far.
    pub written_back_pages: u64,
}

#[derive(Debug)]
struct Group {
    id: GroupId,
    current: AtomicU64,
    limit: AtomicU64,
    writeback: AtomicBool,
    written_back: AtomicU64,
}

impl Group {
    fn new(id: GroupId, limit: u64, writeback: bool) -> Group {
        Group {
            id,
            current: AtomicU64::new(0),
            limit: AtomicU64::new(limit),
            writeback: AtomicBool::new(writeback),
            written_back: AtomicU64::new(0),
        }
    }
}

/// All groups of a cache. Group 0 has the entries that are in no other, and no limit.
pub(crate) struct Groups {
    list: Box<[OnceLock<Group>]>,
    /// The group of each cell's entry.
    of: Table<AtomicU8>,
}

impl Groups {
    pub(crate) fn new(pool: &Pool) -> Result<Groups, MemoryError> {
        let list = (0..GroupId::COUNT).map(|_| OnceLock::new()).collect();
        let groups = Groups { list, of: pool.table(pool.memory().cells_max())? };
        groups.add(u64::MAX, true);
        Ok(groups)
    }

    /// Adds a group. `None` if there are as many as there can be.
    pub(crate) fn add(&self, limit: u64, writeback: bool) -> Option<GroupId> {
        let added = |(index, slot): (usize, &OnceLock<Group>)| {
            let id = GroupId(index as u8);
            slot.set(Group::new(id, limit, writeback)).is_ok().then_some(id)
        };
        self.list.iter().enumerate().find_map(added)
    }

    fn get(&self, id: GroupId) -> Option<&Group> {
        self.list[id.index()].get()
    }

    /// True for a group of this cache. The number of another cache's group must not be charged,
    /// because the charge would be taken off the group that gets the number later.
    #[inline]
    pub(crate) fn has(&self, id: GroupId) -> bool {
        id == GroupId::ROOT || self.get(id).is_some()
    }

    /// The groups there are.
    pub(crate) fn ids(&self) -> impl Iterator<Item = GroupId> {
        self.list.iter().map_while(OnceLock::get).map(|group| group.id)
    }

    /// The group of the entry in a locked cell.
    pub(crate) fn of(&self, cell: CellNumber) -> GroupId {
        let number = self.number_of(cell);
        self.list[usize::from(number)].get().map_or(GroupId::ROOT, |group| group.id)
    }

    fn number_of(&self, cell: CellNumber) -> u8 {
        // relaxed: written and read with the cell locked.
        self.of[cell.get() as usize].load(Ordering::Relaxed)
    }

    /// An object of `bytes` came into a locked cell.
    pub(crate) fn charge(&self, cell: CellNumber, group: GroupId, bytes: usize) {
        let (index, number) = (cell.get() as usize, group.index() as u8);
        if self.number_of(cell) != number {
            self.of.touch(index..index + 1);
            // relaxed: as in `number_of`.
            self.of[index].store(number, Ordering::Relaxed);
        }
        if let Some(group) = self.counted(group) {
            // relaxed: an independent total.
            group.current.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }

    /// The object of a cell is gone.
    pub(crate) fn uncharge(&self, cell: CellNumber, bytes: usize) {
        if self.number_of(cell) == 0 {
            return;
        }
        if let Some(group) = self.counted(self.of(cell)) {
            // relaxed: an independent total.
            group.current.fetch_sub(bytes as u64, Ordering::Relaxed);
        }
    }

    /// The group, if it counts what it has. Group 0 does not: every store would change it, so every
    /// CPU would contend for its cache line.
    fn counted(&self, id: GroupId) -> Option<&Group> {
        if id == GroupId::ROOT { None } else { self.get(id) }
    }

    /// True when a group has as much as it may.
    pub(crate) fn is_full(&self, id: GroupId) -> bool {
        self.counted(id).is_some_and(|group| {
            // relaxed: racing threads may exceed the limit by a page each.
            group.current.load(Ordering::Relaxed) >= group.limit.load(Ordering::Relaxed)
        })
    }

    /// Whether the pages of a group may go to disk.
    pub(crate) fn may_write_back(&self, id: GroupId) -> bool {
        // relaxed: an independent value.
        self.get(id).is_none_or(|group| group.writeback.load(Ordering::Relaxed))
    }

    pub(crate) fn set_limit(&self, id: GroupId, bytes: u64) {
        if let Some(group) = self.get(id) {
            // relaxed: an independent value.
            group.limit.store(bytes, Ordering::Relaxed);
        }
    }

    pub(crate) fn set_writeback(&self, id: GroupId, allowed: bool) {
        if let Some(group) = self.get(id) {
            // relaxed: an independent value.
            group.writeback.store(allowed, Ordering::Relaxed);
        }
    }

    /// A page of a group was written to disk.
    pub(crate) fn wrote_back(&self, id: GroupId) {
        if let Some(group) = self.counted(id) {
            // relaxed: an independent total.
            group.written_back.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What every group holds.
    pub(crate) fn stats(&self) -> Vec<GroupStat> {
        self.ids().filter_map(|id| self.stat(id)).collect()
    }

    pub(crate) fn stat(&self, id: GroupId) -> Option<GroupStat> {
        let group = self.get(id)?;
        // relaxed: independent totals.
        let read = |word: &AtomicU64| word.load(Ordering::Relaxed);
        Some(GroupStat {
            id,
            current: read(&group.current),
            limit: read(&group.limit),
            // relaxed: an independent value.
            writeback: group.writeback.load(Ordering::Relaxed),
            written_back_pages: read(&group.written_back),
        })
    }

    /// Bytes held.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.of.held_bytes() + self.of.heap_bytes() + size_of_val(&*self.list) as u64
    }
}
