//! What a pool can say about itself: totals, and the kernel's `classes` table.
//!
//! ```text
//!  class  size  10%  20% ...  100%  obj_allocated  obj_used  pages_used  pages_per_zspage freeable
//! ```
//!
//! `10%` is the number of zspages with 1 to 9 percent of their slots in use, and so on; `99%` is 90
//! to 99, `100%` full ones. `obj_allocated` are all slots, `obj_used` those in use, `pages_used`
//! the frames of the class's zspages, `freeable` the frames that compaction could free. Source:
//! `/sys/kernel/debug/zsmalloc/POOL/classes`.
//!
//! Invariant: when nothing is in flight, each total is what a recount finds. `check` compares four
//! of them. Reading changes nothing, except that objects whose free lags are flushed first.
//!
//! Locks: one class lock after the other; rows are exact, their sum is not a snapshot.

use std::fmt;

use host::PAGE_SIZE;
use host::sync::atomic::Ordering;

use crate::class::Class;
use crate::class::GROUPS;
use crate::memory::Memory;
use crate::numbers::Word;
use crate::pool::{Pool, Shards};
use crate::zspages::Descriptor;

/// Totals of a pool; bytes unless the name says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolStats {
    /// All frames of zspages.
    pub mem_used_total: u64,
    /// The most that ever was.
    pub mem_used_max: u64,
    /// Touched frames of zspages.
    pub object_bytes_resident: u64,
    /// Frames freed by compaction so far.
    pub pages_compacted: u64,
    /// Times that compaction gave the lock of a class up early, because a thread waited for it.
    pub compaction_yields: u64,
    /// Objects: slots in use.
    pub objects: u64,
    /// Bytes of the slots in use. An object takes a slot of the smallest class that holds it, or of
    /// one a little larger, so this is what is stored and up to a slot's rest for each object;
    /// [`Pool::stored_bytes`] has the lengths themselves.
    pub slot_bytes: u64,
    /// Objects that were freed and are pending, and their bytes, which lie in touched frames: a
    /// part of `objects` and of `object_bytes_resident`.
    pub pending_objects: u64,
    /// See `pending_objects`.
    pub pending_bytes: u64,
    /// Leaves of cells in clients' tables.
    pub leaves: u64,
    /// Leaves behind single handles.
    pub handle_leaves: u64,
    /// The pool's own structures: classes and their locks.
    pub class_bytes: u64,
}

/// A row of the `classes` table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ClassRow {
    /// Nominal index of the class.
    pub class: usize,
    /// Bytes per slot.
    pub size: usize,
    /// Zspages by fullness group; group 0, empty ones, is not shown.
    pub zspages: [u64; GROUPS],
    /// Slots.
    pub obj_allocated: u64,
    /// Slots in use.
    pub obj_used: u64,
    /// Frames.
    pub pages_used: u64,
    /// Frames per zspage.
    pub pages_per_zspage: usize,
    /// Frames that compaction could free.
    pub freeable: u64,
}

/// The `classes` table: `Display` is the kernel's text, column for column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassTable {
    /// One row per class that has zspages of its own, smallest size first.
    pub rows: Vec<ClassRow>,
}

/// Totals as they are at the moment, without a lock.
impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // relaxed: independent totals.
        let frames = self.counters.frames.load(Ordering::Relaxed);
        // relaxed: as above.
        let resident = self.counters.resident.load(Ordering::Relaxed);
        let mut pool = f.debug_struct("Pool");
        pool.field("id", &self.id).field("frames", &frames).field("resident_frames", &resident);
        pool.finish_non_exhaustive()
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (frames, held) = (self.arena.frames(), self.free_bytes_held());
        let mut memory = f.debug_struct("Memory");
        memory.field("frames", &frames).field("free_bytes_held", &held).finish_non_exhaustive()
    }
}

impl Pool {
    /// The totals. Takes each class's lock in turn, to count its objects.
    pub fn stats(&self) -> PoolStats {
        self.flush_lagging();
        // relaxed: independent totals, each exact when nothing is in flight.
        let read = |counter: &host::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        let deferred = self.deferred();
        let (objects, slot_bytes) = self.slots_in_use();
        PoolStats {
            mem_used_total: read(&counters.frames) * PAGE_SIZE as u64,
            mem_used_max: read(&counters.frames_max) * PAGE_SIZE as u64,
            object_bytes_resident: read(&counters.resident) * PAGE_SIZE as u64,
            pages_compacted: read(&counters.compacted),
            compaction_yields: read(&counters.yields),
            objects,
            slot_bytes,
            pending_objects: deferred.pending_values,
            pending_bytes: deferred.pending_bytes,
            leaves: read(&counters.leaves),
            handle_leaves: self.stocks.leaves(),
            class_bytes: (size_of_val(self) + self.classes.heap_bytes() + self.stocks.heap_bytes())
                as u64
                + read(&counters.position_bytes)
                + deferred.heap_bytes
                + self.lag.heap_bytes() as u64,
        }
    }

    /// Objects, and bytes of their slots.
    fn slots_in_use(&self) -> (u64, u64) {
        self.classes.iter().fold((0, 0), |(objects, bytes), class| {
            let here = u64::from(class.lock().objects);
            (objects + here, bytes + here * u64::from(class.shape.size))
        })
    }

    /// Bytes of all objects by the lengths they were stored with, pending ones included as far as
    /// their cells still name them. An object whose cell names none yet counts 0.
    ///
    /// Looks at every object, a class at a time with its lock held: for a report now and then.
    /// [`PoolStats::slot_bytes`] is close, and costs next to nothing.
    pub fn stored_bytes(&self) -> u64 {
        self.flush_lagging();
        self.classes.iter().map(|class| self.stored_bytes_of(class)).sum()
    }

    fn stored_bytes_of(&self, class: &Class) -> u64 {
        let (of, state) = (self.descriptors(class), class.lock());
        let zspages = state.fullness.zspages().iter().map(|&id| of.get(id));
        zspages.map(|zspage| self.stored_bytes_in(class, zspage)).sum()
    }

    /// Bytes of the objects of a zspage, whose lock the caller holds, that their cells name.
    pub(crate) fn stored_bytes_in(&self, class: &Class, zspage: Descriptor<'_>) -> u64 {
        let length = |slot| {
            let owner = zspage.owner(slot).some()?;
            // Acquire pairs with the unlocking swap in `CellGuard`, so that the word is seen whole.
            let word = self.memory.leaves.cell(owner)?.load(Ordering::Acquire);
            let place = Word(word).place()?;
            // Otherwise it is the place of another object, because this one was freed and is
            // pending.
            let here = place.pfn() == zspage.pfn() && usize::from(place.object()) == slot;
            here.then(|| u64::from(class.shape.size - place.slack()))
        };
        zspage.used_slots().filter_map(length).sum()
    }

    /// Touched frames of zspages, in bytes, at the cost of a load: [`PoolStats`] has it among much
    /// else.
    pub fn object_bytes_resident(&self) -> u64 {
        self.flush_lagging();
        // relaxed: an independent total.
        self.counters.resident.load(Ordering::Relaxed) * PAGE_SIZE as u64
    }

    /// Makes the present `mem_used_total` the most that ever was.
    pub fn reset_mem_used_max(&self) {
        self.flush_lagging();
        // relaxed: an independent total.
        let frames = self.counters.frames.load(Ordering::Relaxed);
        // relaxed: an independent total.
        self.counters.frames_max.store(frames, Ordering::Relaxed);
    }

    /// The `classes` table.
    pub fn class_table(&self) -> ClassTable {
        self.flush_lagging();
        ClassTable { rows: self.classes.each().map(class_row).collect() }
    }

    /// Frames that [`Pool::shrink`] could free, by the counts of each class: whole zspages' worth
    /// of free slots. Source: `zs_shrinker_count`.
    ///
    /// ```
    /// # use ramfold_zsmalloc::{Memory, MemoryConfig, Pool, PoolConfig};
    /// # let memory = Memory::new(MemoryConfig::for_disk(16 << 20))?;
    /// # let pool = Pool::new(memory, PoolConfig::default())?;
    /// let handles: Vec<_> = (0..64).map(|_| pool.alloc(&[7; 1500])).collect::<Result<_, _>>()?;
    /// for (at, handle) in handles.into_iter().enumerate() {
    ///     if at % 4 > 0 {
    ///         pool.free_handle(handle)?;
    ///     }
    /// }
    /// let freeable = pool.freeable_frames();
    /// assert!(freeable > 0 && pool.shrink(freeable) >= freeable);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn freeable_frames(&self) -> u64 {
        self.flush_lagging();
        self.classes.each().map(|shards| class_row(shards).freeable).sum()
    }
}

/// The row of a class, summed over its shards.
fn class_row(shards: Shards<'_>) -> ClassRow {
    let shape = shards.first.shape;
    let (objects, frames) = (u64::from(shape.objects), u64::from(shape.frames));
    let mut row = ClassRow {
        class: shards.first.index.get(),
        size: usize::from(shape.size),
        pages_per_zspage: usize::from(shape.frames),
        ..ClassRow::default()
    };
    for class in shards.iter() {
        let state = class.lock();
        for (zspages, count) in row.zspages.iter_mut().zip(state.fullness.counts(class.layout())) {
            *zspages += u64::from(count);
        }
        let zspages = state.fullness.zspages().len() as u64;
        row.obj_allocated += zspages * objects;
        row.obj_used += u64::from(state.objects);
        row.pages_used += zspages * frames;
    }
    row.freeable = (row.obj_allocated - row.obj_used) / objects * frames;
    row
}

impl ClassTable {
    /// The `Total` row: sums; class, size and frames per zspage mean nothing there.
    pub fn total(&self) -> ClassRow {
        let sum = |get: fn(&ClassRow) -> u64| self.rows.iter().map(get).sum();
        let group = |group: usize| self.rows.iter().map(|row| row.zspages[group]).sum();
        ClassRow {
            zspages: std::array::from_fn(group),
            obj_allocated: sum(|row| row.obj_allocated),
            obj_used: sum(|row| row.obj_used),
            pages_used: sum(|row| row.pages_used),
            freeable: sum(|row| row.freeable),
            ..ClassRow::default()
        }
    }
}

impl fmt::Display for ClassTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {:>5} {:>5}", "class", "size")?;
        for name in ["10%", "20%", "30%", "40%", "50%", "60%", "70%", "80%", "90%", "99%", "100%"] {
            write!(f, " {name:>9}")?;
        }
        writeln!(
            f,
            " {:>13} {:>10} {:>10} {:>16} {:>8}",
            "obj_allocated", "obj_used", "pages_used", "pages_per_zspage", "freeable"
        )?;
        for row in &self.rows {
            let names = [row.class.to_string(), row.size.to_string()];
            write_row(f, [&names[0], &names[1]], row, &row.pages_per_zspage.to_string())?;
        }
        writeln!(f)?;
        write_row(f, ["Total", ""], &self.total(), "")
    }
}

fn write_row(
    f: &mut fmt::Formatter<'_>,
    names: [&str; 2],
    row: &ClassRow,
    chain: &str,
) -> fmt::Result {
    write!(f, " {:>5} {:>5}", names[0], names[1])?;
    for count in &row.zspages[1..] {
        write!(f, " {count:>9}")?;
    }
    writeln!(
        f,
        " {:>13} {:>10} {:>10} {chain:>16} {:>8}",
        row.obj_allocated, row.obj_used, row.pages_used, row.freeable
    )
}
