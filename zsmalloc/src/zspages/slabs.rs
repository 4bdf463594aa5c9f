//! A slab allocator of numbers over one lazily touched table: where descriptors live.
//!
//! ```text
//!   table   | part 0                                                     | part 1 ...
//!           | slab 0 (unused) | slab 1: 25 words x 20 | slab 2: 131 x 3 |.. | slab 0 (unused) ..
//!                                |
//!   Slab    units, used, next fresh item, list of freed ones (through their first word)
//! ```
//!
//! The table is cut into parts, each with a `State` of its own. A part is cut into slabs of 2048
//! bytes. The items of a slab have lengths of which equally many fit. While a part has
//! few slabs, an item may be in one of longer items. A number is the offset of an
//! item in units of `UNIT` words; 0 is none.
//!
//! Invariants
//! - I1 a slab is in the partial list of its capacity exactly when it has a free item and at least
//!   one in use.
//! - I2 an empty slab has no capacity; at a release, or beyond [`EMPTY_SLABS_HELD`] of them,
//!   whole pages of such slabs are returned to the system.
//!
//! Locks: none of its own. The caller has the `State` of the part.

use std::sync::Arc;

use host::sync::atomic::{AtomicU32, Ordering};
use host::{FailureInjector, HostError, PAGE_SIZE, Table};

use crate::numbers::AllocError;

/// Bytes of a slab: half a page, as half of one is empty on average, for each of some 40
/// capacities. Room for the longest item, under loom too.
const SLAB_BYTES: usize = PAGE_SIZE / 2; // 2 KiB
/// Words of a slab.
pub(crate) const SLAB_WORDS: usize = SLAB_BYTES / size_of::<u32>(); // 512
/// Slabs of a part that is small: an item goes to a slab of longer ones there, rather than start a
/// slab that it has to itself.
const FEW_SLABS: usize = 32; // 64 KiB
/// Empty slabs kept touched between releases. A pool that ends leaves some hundred, scattered among
/// those of others: returned one page at a time, they would take longer than all else it does.
const EMPTY_SLABS_HELD: usize = 1024; // 2 MiB
/// End of a slab's list of freed items.
const END: u16 = u16::MAX;

/// A table of items that are multiples of `UNIT` words long.
pub(crate) struct Slabs<const UNIT: usize> {
    items: Table<[AtomicU32; UNIT]>,
    /// Slabs of a part, as a power of two.
    part_bits: u32,
}

/// What of a part is in use. Its slabs are counted from its beginning.
pub(crate) struct State {
    /// Which part.
    part: u32,
    slabs: Vec<Slab>,
    /// First partial slab by capacity; 0 = none.
    partial: Box<[u32]>,
    /// Empty slabs whose page is touched, and empty slabs whose page was returned, unless a
    /// neighbour in use kept it.
    empty: Vec<u32>,
    returned: Vec<u32>,
}

#[derive(Clone, Copy, Default)]
struct Slab {
    /// Items that fit.
    capacity: u16,
    used: u16,
    /// Items handed out at least once; the rest of the page was never touched.
    fresh: u16,
    freed: u16,
    prev: u32,
    next: u32,
}

impl<const UNIT: usize> Slabs<UNIT> {
    const SLAB_UNITS: usize = SLAB_WORDS / UNIT;
    /// A number counts units, in 32 bits.
    const SLABS_MAX: usize = (u32::MAX as usize + 1) / Self::SLAB_UNITS;

    /// Parts of at least so many slabs, or of as many as there are numbers for; nothing is touched
    /// yet.
    pub(crate) fn reserve(
        slabs: usize,
        parts: usize,
        faults: Option<Arc<FailureInjector>>,
    ) -> Result<Slabs<UNIT>, HostError> {
        let most = (Self::SLABS_MAX / parts.next_power_of_two()).ilog2();
        let part_bits = (slabs + 1).next_power_of_two().ilog2().min(most);
        let units = (parts << part_bits) * Self::SLAB_UNITS;
        Ok(Slabs { items: Table::in_steps(units, faults)?, part_bits })
    }

    /// Which part an item is of.
    #[inline]
    pub(crate) fn part_of(&self, number: u32) -> usize {
        ((number / Self::SLAB_UNITS as u32) >> self.part_bits) as usize
    }

    /// An item of `units` units, whose words hold what they held before.
    pub(crate) fn alloc(&self, state: &mut State, units: usize) -> Result<u32, AllocError> {
        let capacity = Self::SLAB_UNITS / units;
        let slab = match state.partial[capacity] {
            0 => match state.slab_of_longer(capacity) {
                Some(slab) => slab,
                None => self.start_slab(state, capacity as u16)?,
            },
            slab => slab,
        };
        Ok(self.take(state, slab))
    }

    /// Gives an item back to the part it is of.
    pub(crate) fn free(&self, state: &mut State, number: u32) {
        let slab = number / Self::SLAB_UNITS as u32 - (state.part << self.part_bits);
        let offset = (number % Self::SLAB_UNITS as u32) as u16;
        let entry = &mut state.slabs[slab as usize];
        let was_full = entry.used == entry.capacity;
        self.set_link(number, std::mem::replace(&mut entry.freed, offset));
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

    /// The first unit of a slab.
    fn first_unit(&self, state: &State, slab: u32) -> usize {
        ((state.part << self.part_bits) + slab) as usize * Self::SLAB_UNITS
    }

    /// The first unit of the item `number`.
    #[inline]
    fn unit(&self, number: u32) -> &[AtomicU32; UNIT] {
        &self.items[number as usize]
    }

    /// Every unit, by number.
    #[inline]
    pub(crate) fn units(&self) -> &[[AtomicU32; UNIT]] {
        self.items.slice(0..self.items.len())
    }

    /// Bytes held without those of the states: touched pages, and what is kept about them.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.mapped_bytes() + self.items.heap_bytes()
    }

    /// The part of [`Slabs::held_bytes`] that lies in the table.
    pub(crate) fn mapped_bytes(&self) -> u64 {
        self.items.held_bytes()
    }

    /// The addresses reserved.
    pub(crate) fn range(&self) -> std::ops::Range<usize> {
        self.items.range()
    }

    fn start_slab(&self, state: &mut State, capacity: u16) -> Result<u32, AllocError> {
        self.items.extend().map_err(|_| AllocError::OutOfDescriptors)?;
        let slab = match state.empty.pop().or_else(|| state.returned.pop()) {
            Some(slab) => slab,
            None if state.slabs.len() < 1 << self.part_bits => {
                state.slabs.push(Slab::default());
                state.slabs.len() as u32 - 1
            }
            None => return Err(AllocError::OutOfDescriptors),
        };
        let first = self.first_unit(state, slab);
        if self.items.open(first..first + Self::SLAB_UNITS).is_err() {
            // What is not open has no page.
            state.returned.push(slab);
            return Err(AllocError::NotOpened);
        }
        self.items.touch(first..first + Self::SLAB_UNITS);
        state.slabs[slab as usize] = Slab { capacity, freed: END, ..Slab::default() };
        state.link(slab);
        Ok(slab)
    }

    fn take(&self, state: &mut State, slab: u32) -> u32 {
        let base = self.first_unit(state, slab) as u32;
        let entry = &mut state.slabs[slab as usize];
        let number = if entry.freed == END {
            // The longest of like length.
            let units = Self::SLAB_UNITS as u32 / u32::from(entry.capacity);
            entry.fresh += 1;
            base + u32::from(entry.fresh - 1) * units
        } else {
            let number = base + u32::from(entry.freed);
            entry.freed = self.link(number);
            number
        };
        entry.used += 1;
        if entry.used == entry.capacity {
            state.unlink(slab);
        }
        number
    }

    fn retire(&self, state: &mut State, slab: u32) {
        state.empty.push(slab);
        if state.empty.len() > EMPTY_SLABS_HELD {
            self.give_back(state);
        }
    }

    /// Returns the pages of empty slabs to the system.
    pub(crate) fn give_back(&self, state: &mut State) {
        state.empty.sort_unstable();
        state.returned.sort_unstable();
        // The other half of a page may have been returned before, and the page not.
        let returned = |slab: u32| u32::from(state.returned.binary_search(&slab).is_ok());
        for run in state.empty.chunk_by(|a, b| a + 1 == *b) {
            let first = run[0] - returned(run[0].wrapping_sub(1));
            let last = run[0] + run.len() as u32 - 1;
            let end = last + 1 + returned(last + 1);
            // Refused by the system, the pages stay held and are used again as they are.
            let units = |slab: u32| self.first_unit(state, slab);
            let _ = self.items.discard(units(first)..units(end));
        }
        state.returned.append(&mut state.empty);
    }

    fn link(&self, number: u32) -> u16 {
        // relaxed: links of freed items are read and written with the state in hand.
        self.unit(number)[0].load(Ordering::Relaxed) as u16
    }

    fn set_link(&self, number: u32, next: u16) {
        // Release pairs with the Acquire in `Header::lock`, where a header is looked at that may be
        // gone, so that a thread that sees the link sees what ended the header's life.
        self.unit(number)[0].store(u32::from(next), Ordering::Release);
    }
}

impl State {
    /// A part with nothing in use, in whose slabs at most `capacity_max` items fit.
    pub(crate) fn new(part: usize, capacity_max: usize) -> State {
        State {
            part: part as u32,
            slabs: vec![Slab::default()], // slab 0 is never used: number 0 means none
            partial: vec![0; capacity_max + 1].into_boxed_slice(),
            empty: Vec::new(),
            returned: Vec::new(),
        }
    }

    /// Bytes of its lists.
    pub(crate) fn heap_bytes(&self) -> u64 {
        let numbers = self.empty.capacity() + self.returned.capacity() + self.partial.len();
        (self.slabs.capacity() * size_of::<Slab>() + numbers * size_of::<u32>()) as u64
    }

    /// A slab with room whose items are longer, and not twice as long, in a part with few slabs.
    fn slab_of_longer(&self, capacity: usize) -> Option<u32> {
        let longer = self.partial.get(capacity / 2 + 1..capacity)?;
        let with_room = longer.iter().rev().find(|&&slab| slab != 0);
        with_room.copied().filter(|_| self.slabs.len() <= FEW_SLABS)
    }

    /// Puts a slab at the head of the partial list of its capacity.
    fn link(&mut self, slab: u32) {
        let capacity = self.slabs[slab as usize].capacity;
        let head = std::mem::replace(&mut self.partial[usize::from(capacity)], slab);
        self.slabs[slab as usize].prev = 0;
        self.slabs[slab as usize].next = head;
        if head != 0 {
            self.slabs[head as usize].prev = slab;
        }
    }

    fn unlink(&mut self, slab: u32) {
        let Slab { capacity, prev, next, .. } = self.slabs[slab as usize];
        match prev {
            0 => self.partial[usize::from(capacity)] = next,
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
    const UNITS_MAX: usize = 267;
    const SLAB_UNITS: u32 = SLAB_WORDS as u32;

    /// The naive twin: who owns each unit of the table.
    #[derive(Default)]
    struct Twin {
        owners: std::collections::HashMap<u32, u32>,
        live: Vec<(u32, u32)>,
    }

    impl Twin {
        fn add(&mut self, number: u32, units: u32) {
            assert!(number >= SLAB_UNITS, "number 0 is none");
            for unit in number..number + units {
                assert_eq!(self.owners.insert(unit, units), None, "unit {unit} has two owners");
                assert_eq!(unit / SLAB_UNITS, number / SLAB_UNITS, "in one slab");
            }
            self.live.push((number, units));
        }

        fn remove(&mut self, which: usize) -> u32 {
            let (number, units) = self.live.swap_remove(which % self.live.len());
            for unit in number..number + units {
                assert_eq!(self.owners.remove(&unit), Some(units));
            }
            number
        }

        /// Slabs that cannot be empty.
        fn slabs(&self) -> usize {
            let slabs = self.live.iter().map(|(number, _)| number / SLAB_UNITS);
            slabs.collect::<std::collections::HashSet<_>>().len()
        }
    }

    proptest! {
        /// No unit has two owners, and the bytes held are those in use and those of the slabs kept.
        #[test]
        fn items_never_overlap(
            steps in prop::collection::vec(
                (any::<bool>(), 1usize..=UNITS_MAX, any::<usize>()), 1..600),
        ) {
            let slabs = Slabs::<1>::reserve(600, 2, None).expect("address space");
            let mut states = [0, 1].map(|part| State::new(part, SLAB_WORDS));
            let mut twin = Twin::default();
            for (add, units, which) in steps {
                if add || twin.live.is_empty() {
                    let number = slabs.alloc(&mut states[which % 2], units).expect("room");
                    prop_assert_eq!(slabs.part_of(number), which % 2);
                    twin.add(number, units as u32);
                } else {
                    let number = twin.remove(which);
                    slabs.free(&mut states[slabs.part_of(number)], number);
                }
                if which % 16 == 0 {
                    slabs.give_back(&mut states[which / 16 % 2]);
                }
                let pages = slabs.mapped_bytes() as usize / PAGE_SIZE;
                let most = twin.slabs() + 2 * (EMPTY_SLABS_HELD + 1);
                prop_assert!(pages * SLABS_PER_PAGE >= twin.slabs() && pages <= most);
            }
            while !twin.live.is_empty() {
                let number = twin.remove(0);
                slabs.free(&mut states[slabs.part_of(number)], number);
            }
            states.iter_mut().for_each(|state| slabs.give_back(state));
            prop_assert!(slabs.mapped_bytes() as usize <= 2 * 2 * PAGE_SIZE);
        }
    }

    /// Items that are not half as long as those of a slab go there while there are few slabs.
    #[test]
    fn a_small_part_shares_slabs() {
        let slabs = Slabs::<1>::reserve(600, 1, None).expect("address space");
        let mut state = State::new(0, SLAB_WORDS);
        let mut slab_of = |units| slabs.alloc(&mut state, units).expect("room") / SLAB_UNITS;
        let first = slab_of(60);
        assert_eq!([50, 40, 33].map(&mut slab_of), [first; 3]);
        let short = slab_of(25);
        assert_ne!(short, first, "it would take more than twice its length");
        let many = (0..FEW_SLABS).map(|_| slab_of(UNITS_MAX)).last();
        assert!(many > Some(FEW_SLABS as u32));
        assert!(![first, short].contains(&slab_of(50)), "many slabs: each length has its own");
    }

    #[test]
    fn a_full_table_is_an_error_and_recovers() {
        let slabs = Slabs::<4>::reserve(1, 1, None).expect("address space");
        let (mut state, mut numbers) = (State::new(0, SLAB_WORDS / 4), Vec::new());
        let error = loop {
            match slabs.alloc(&mut state, 1) {
                Ok(number) => numbers.push(number),
                Err(error) => break error,
            }
        };
        assert_eq!((error, numbers.len()), (AllocError::OutOfDescriptors, SLAB_WORDS / 4));
        slabs.free(&mut state, numbers[0]);
        assert_eq!(slabs.alloc(&mut state, 1), Ok(numbers[0]));
    }
}
