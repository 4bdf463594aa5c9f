//! Where descriptors live: a slab allocator over one lazily touched table.
//!
//! Descriptors of different classes differ in length (92 bytes for 17 objects, 548 for 128), so
//! the table is cut into slabs of 2048 bytes, each holding descriptors of one length.
//! Lengths are multiples of 16 bytes; a number is the offset in such units.
//!
//! ```text
//!   table   | slab 0 (unused) | slab 1: 92+4 bytes x 21 | slab 2: 548+12 bytes x 3 | ...
//!                                    |
//!   Slab    units, used, next fresh descriptor, list of freed ones (through their first word)
//! ```
//!
//! Invariants
//! - I1 a slab is in the partial list of its shard and length exactly when it has a free descriptor
//!   and at least one in use.
//! - I2 an empty slab belongs to no length; beyond [`EMPTY_SLABS_HELD`] of them, whole pages of
//!   such slabs are returned to the system.
//!
//! Lock: one leaf lock; zspages come and go far less often than objects.

use std::sync::Arc;

use host::sync::atomic::{AtomicU32, Ordering};
use host::{FailureInjector, HostError, Lock, PAGE_SIZE, Rank, Table};

use crate::descriptor::{Descriptor, DescriptorId, HEADER_WORDS, Header, words_of};
use crate::error::AllocError;
use crate::geometry::Shape;
use crate::pool::SHARDS_MAX;

/// Bytes that descriptor lengths are rounded up to.
const UNIT_BYTES: usize = 16;
const UNIT_WORDS: usize = UNIT_BYTES / size_of::<u32>(); // 4
/// Bytes of a slab: half a page, as half of one is empty on average, for each of some 35 lengths.
/// Under loom, where each word costs, room for four short descriptors.
const SLAB_BYTES: usize = if cfg!(loom) { 128 } else { PAGE_SIZE / 2 };
const SLAB_UNITS: usize = SLAB_BYTES / UNIT_BYTES; // 128
const SLAB_WORDS: usize = SLAB_BYTES / size_of::<u32>(); // 512
/// Units of the longest descriptor: 256 objects.
const UNITS_MAX: usize = (HEADER_WORDS + 8 + 256).div_ceil(UNIT_WORDS); // 67
/// Empty slabs kept touched before they are returned together: one call for many pages.
const EMPTY_SLABS_HELD: usize = 64;
/// End of a slab's list of freed descriptors.
const END: u16 = u16::MAX;
/// Slabs at most: a number counts units, in 32 bits.
const SLABS_MAX: usize = (u32::MAX as usize + 1) / SLAB_UNITS - 1;
const _: () = assert!(cfg!(loom) || UNITS_MAX <= SLAB_UNITS, "the longest descriptor fits a slab");

/// All descriptors of one memory.
pub(crate) struct DescriptorHeap {
    words: Table<AtomicU32>,
    state: Lock<State>,
}

/// Apart from the table, which every operation reads.
#[repr(align(128))]
struct State {
    slabs: Vec<Slab>,
    /// First partial slab by shard and length in units; 0 = none. Shards have slabs of their own,
    /// so that two CPUs do not write to descriptors on one cache line.
    partial: [[u32; UNITS_MAX + 1]; SHARDS_MAX],
    /// Empty slabs whose page is touched, and those whose page was returned, unless a neighbour
    /// in use kept it.
    empty: Vec<u32>,
    returned: Vec<u32>,
}

#[derive(Clone, Copy, Default)]
struct Slab {
    shard: u8,
    units: u16,
    used: u16,
    /// Descriptors handed out at least once; the rest of the page was never touched.
    fresh: u16,
    freed: u16,
    prev: u32,
    next: u32,
}

impl Slab {
    fn capacity(&self) -> u16 {
        SLAB_UNITS as u16 / self.units
    }
}

impl DescriptorHeap {
    /// Room for at most `slabs` slabs of descriptors; nothing is touched yet.
    pub(crate) fn reserve(
        slabs: usize,
        faults: Option<Arc<FailureInjector>>,
    ) -> Result<DescriptorHeap, HostError> {
        let state = State {
            slabs: vec![Slab::default()], // slab 0 is never used: descriptor number 0 means none
            partial: [[0; UNITS_MAX + 1]; SHARDS_MAX],
            empty: Vec::new(),
            returned: Vec::new(),
        };
        let words = Table::with_faults((slabs.min(SLABS_MAX - 1) + 1) * SLAB_WORDS, faults)?;
        Ok(DescriptorHeap { words, state: Lock::new(Rank::Leaf, state) })
    }

    /// A descriptor for a zspage of this shape, made by a shard; its words hold whatever they held.
    pub(crate) fn alloc(&self, shape: Shape, shard: usize) -> Result<DescriptorId, AllocError> {
        let units = words_of(shape).div_ceil(UNIT_WORDS);
        let mut state = self.state.lock();
        let slab = match state.partial[shard][units] {
            0 => self.start_slab(&mut state, units as u16, shard as u8)?,
            slab => slab,
        };
        Ok(self.take(&mut state, slab))
    }

    /// Gives descriptors back.
    pub(crate) fn free(&self, ids: &[DescriptorId]) {
        let mut state = self.state.lock();
        ids.iter().for_each(|&id| self.free_one(&mut state, id));
    }

    fn free_one(&self, state: &mut State, id: DescriptorId) {
        let slab = id.0 / SLAB_UNITS as u32;
        let offset = (id.0 % SLAB_UNITS as u32) as u16;
        let entry = state.slabs[slab as usize];
        let was_full = entry.used == entry.capacity();
        self.set_link(id, entry.freed);
        let entry = &mut state.slabs[slab as usize];
        entry.freed = offset;
        entry.used -= 1;
        let empty = entry.used == 0;
        match (was_full, empty) {
            (true, false) => state.link(slab),
            (false, true) => state.unlink(slab),
            (true, true) | (false, false) => {}
        }
        if empty {
            self.retire(state, slab);
        }
    }

    /// Keeps every descriptor from being freed or handed out.
    pub(crate) fn hold(&self) -> impl Sized + '_ {
        self.state.lock()
    }

    /// The descriptor `id` of a zspage of this shape, which makes it `words` long.
    #[inline]
    pub(crate) fn get(&self, id: DescriptorId, shape: Shape, words: usize) -> Descriptor<'_> {
        let start = id.0 as usize * UNIT_WORDS;
        Descriptor::new(self.words.slice(start..start + words), shape)
    }

    /// What all descriptors begin with.
    #[inline]
    pub(crate) fn header(&self, id: DescriptorId) -> Header<'_> {
        let start = id.0 as usize * UNIT_WORDS;
        Header::new(self.words.slice(start..start + HEADER_WORDS))
    }

    /// Bytes held: touched slab pages and the list that describes them.
    pub(crate) fn held_bytes(&self) -> u64 {
        let state = self.state.lock();
        let lists = state.slabs.capacity() * size_of::<Slab>()
            + (state.empty.capacity() + state.returned.capacity()) * size_of::<u32>();
        self.words.held_bytes() + self.words.heap_bytes() + lists as u64
    }

    /// The part of [`DescriptorHeap::held_bytes`] that lies in the table.
    pub(crate) fn mapped_bytes(&self) -> u64 {
        self.words.held_bytes()
    }

    /// The address ranges reserved for descriptors.
    pub(crate) fn range(&self) -> std::ops::Range<usize> {
        self.words.range()
    }

    fn start_slab(&self, state: &mut State, units: u16, shard: u8) -> Result<u32, AllocError> {
        self.words.extend().map_err(|_| AllocError::OutOfDescriptors)?;
        let slab = match state.empty.pop().or_else(|| state.returned.pop()) {
            Some(slab) => slab,
            None if state.slabs.len() * SLAB_WORDS < self.words.len() => {
                state.slabs.push(Slab::default());
                state.slabs.len() as u32 - 1
            }
            None => return Err(AllocError::OutOfDescriptors),
        };
        let first = slab as usize * SLAB_WORDS;
        self.words.touch(first..first + SLAB_WORDS);
        state.slabs[slab as usize] = Slab { shard, units, freed: END, ..Slab::default() };
        state.link(slab);
        Ok(slab)
    }

    fn take(&self, state: &mut State, slab: u32) -> DescriptorId {
        let entry = &mut state.slabs[slab as usize];
        let base = slab * SLAB_UNITS as u32;
        let id = if entry.freed == END {
            entry.fresh += 1;
            DescriptorId(base + u32::from((entry.fresh - 1) * entry.units))
        } else {
            let id = DescriptorId(base + u32::from(entry.freed));
            entry.freed = self.link(id);
            id
        };
        entry.used += 1;
        if entry.used == entry.capacity() {
            state.unlink(slab);
        }
        id
    }

    fn retire(&self, state: &mut State, slab: u32) {
        state.empty.push(slab);
        if state.empty.len() > EMPTY_SLABS_HELD {
            state.empty.sort_unstable();
            for run in state.empty.chunk_by(|a, b| a + 1 == *b) {
                let first = run[0] as usize * SLAB_WORDS;
                // Refused by the system, the pages stay held and are used again as they are.
                let _ = self.words.discard(first..first + run.len() * SLAB_WORDS);
            }
            let returned = std::mem::take(&mut state.empty);
            state.returned.extend(returned);
        }
    }

    fn link(&self, id: DescriptorId) -> u16 {
        // relaxed: freed descriptors are read and written under the heap lock only.
        self.words[id.0 as usize * UNIT_WORDS].load(Ordering::Relaxed) as u16
    }

    fn set_link(&self, id: DescriptorId, next: u16) {
        // relaxed: freed descriptors are read and written under the heap lock only.
        self.words[id.0 as usize * UNIT_WORDS].store(u32::from(next), Ordering::Relaxed);
    }
}

impl State {
    /// Puts a slab at the head of the partial list of its length.
    fn link(&mut self, slab: u32) {
        let Slab { shard, units, .. } = self.slabs[slab as usize];
        let first = &mut self.partial[usize::from(shard)][usize::from(units)];
        let head = std::mem::replace(first, slab);
        self.slabs[slab as usize].prev = 0;
        self.slabs[slab as usize].next = head;
        if head != 0 {
            self.slabs[head as usize].prev = slab;
        }
    }

    fn unlink(&mut self, slab: u32) {
        let Slab { shard, units, prev, next, .. } = self.slabs[slab as usize];
        match prev {
            0 => self.partial[usize::from(shard)][usize::from(units)] = next,
            prev => self.slabs[prev as usize].next = next,
        }
        if next != 0 {
            self.slabs[next as usize].prev = prev;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SLABS_PER_PAGE: usize = PAGE_SIZE / SLAB_BYTES;

    fn shape(objects: u16) -> Shape {
        Shape { size: 32, frames: 1, objects }
    }

    fn units(objects: u16) -> u32 {
        words_of(shape(objects)).div_ceil(UNIT_WORDS) as u32
    }

    /// The naive twin: who owns each unit of the table.
    #[derive(Default)]
    struct Twin {
        owners: std::collections::HashMap<u32, u16>,
        live: Vec<(DescriptorId, u16)>,
    }

    impl Twin {
        fn add(&mut self, id: DescriptorId, objects: u16) {
            assert!(id.0 >= SLAB_UNITS as u32, "slab 0 is never used");
            for unit in id.0..id.0 + units(objects) {
                assert_eq!(self.owners.insert(unit, objects), None, "unit {unit} has two owners");
                assert_eq!(unit / SLAB_UNITS as u32, id.0 / SLAB_UNITS as u32, "in one slab");
            }
            self.live.push((id, objects));
        }

        fn remove(&mut self, which: usize) -> DescriptorId {
            let (id, objects) = self.live.swap_remove(which % self.live.len());
            for unit in id.0..id.0 + units(objects) {
                assert_eq!(self.owners.remove(&unit), Some(objects));
            }
            id
        }

        /// Slabs that cannot be empty.
        fn slabs(&self) -> usize {
            let slabs = self.live.iter().map(|(id, _)| id.0 / SLAB_UNITS as u32);
            slabs.collect::<std::collections::HashSet<_>>().len()
        }
    }

    proptest! {
        /// No unit has two owners, and what is held is what is used, but for the slabs kept.
        #[test]
        fn descriptors_never_overlap(
            steps in prop::collection::vec((any::<bool>(), 1u16..=256, any::<usize>()), 1..600),
        ) {
            let heap = DescriptorHeap::reserve(600, None).expect("address space");
            let mut twin = Twin::default();
            for (add, objects, which) in steps {
                if add || twin.live.is_empty() {
                    let shard = usize::from(objects) % 2;
                    twin.add(heap.alloc(shape(objects), shard).expect("room"), objects);
                } else {
                    heap.free(&[twin.remove(which)]);
                }
                let pages = heap.mapped_bytes() as usize / PAGE_SIZE;
                let most = twin.slabs() + EMPTY_SLABS_HELD + 1;
                prop_assert!(pages * SLABS_PER_PAGE >= twin.slabs() && pages <= most);
            }
            while !twin.live.is_empty() {
                heap.free(&[twin.remove(0)]);
            }
            prop_assert!(heap.mapped_bytes() as usize <= (EMPTY_SLABS_HELD + 1) * PAGE_SIZE);
        }
    }

    #[test]
    fn a_full_table_is_an_error_and_recovers() {
        let heap = DescriptorHeap::reserve(1, None).expect("address space");
        let mut ids = Vec::new();
        let error = loop {
            match heap.alloc(shape(256), 0) {
                Ok(id) => ids.push(id),
                Err(error) => break error,
            }
        };
        assert_eq!((error, ids.len()), (AllocError::OutOfDescriptors, SLAB_UNITS / UNITS_MAX));
        heap.free(&[ids[0]]);
        assert_eq!(heap.alloc(shape(256), 0), Ok(ids[0]));
    }
}
