//! Zspage descriptors: what is needed to allocate in a zspage, free from it and move its objects,
//! so that none of it touches the objects themselves.
//!
//! ```text
//!   header   word 0   | unused 11 | touched 1 | lock 11 | objects in use 9 |
//!            word 1   one bit per slot: in use; slots 0 to 31
//!            word 2   where the class keeps its number; on the way out, the next one's number
//!            word 3   the number of the body
//!   body     word 0   PFN of the first frame
//!            word 1   the pool, by its id
//!            then     the bits of the other slots        objects / 32 words, rounded up, less one
//!            then     one word per slot: the cell that owns it    objects words, 0 = not published
//! ```
//!
//! A descriptor of 17 objects is 92 bytes, of which 68 are back references. Its words are atomics
//! of a shared table only so that plain references to them are sound. They are read and written
//! under the class lock, with two exceptions. A publisher stores the back reference of an object
//! that it alone knows (see `publish`). The number of the lock is read to find the lock.
//!
//! Invariants
//! - I1 objects in use = set bits = slots that are allocated. Touched = every frame is known to be,
//!   and stays so while the zspage has these frames.
//! - I2 the back reference of a slot in use is 0 or the number of a cell. The word of that cell
//!   names this slot, with two exceptions. The cell may be locked by a thread that is about to make
//!   that true or false. A handle's entry names nothing while the object is being written.
//!
//! Lock: the class lock of the descriptor's class, taken by the caller.

use host::Pfn;
use host::sync::atomic::{AtomicU32, Ordering};

use crate::numbers::{CLASSES, CellNumber, OBJECTS_MAX, SHARDS_MAX, Shape, Slot};

// The header.
const STATE: usize = 0;
const BITS: usize = 1;
const POSITION: usize = 2;
const BODY: usize = 3;
/// Words of a header.
pub(crate) const HEADER_WORDS: usize = 4; // 16 bytes

// The body.
const PFN: usize = 0;
const POOL: usize = 1;
/// Words of a body before the bits.
pub(crate) const FIXED_WORDS: usize = 2;
/// Words of the shortest body.
pub(crate) const BODY_WORDS_MIN: usize = FIXED_WORDS + 1; // 3
/// Words of the longest body.
pub(crate) const BODY_WORDS_MAX: usize = FIXED_WORDS + more_bits(OBJECTS_MAX) + OBJECTS_MAX; // 265

/// Slots whose bits are in one word.
const WORD_SLOTS: usize = u32::BITS as usize;

const IN_USE_BITS: u32 = OBJECTS_MAX.ilog2() + 1; // 9: 0..=256
const IN_USE_MASK: u32 = (1 << IN_USE_BITS) - 1; // 511
const LOCK_BITS: u32 = (CLASSES * SHARDS_MAX - 1).ilog2() + 1; // 11
/// Locks that a header can name: no fewer than a pool has.
pub(crate) const LOCKS_NAMED: usize = 1 << LOCK_BITS; // 2048
const LOCK_SHIFT: u32 = IN_USE_BITS; // 9
const LOCK_MASK: u32 = ((1 << LOCK_BITS) - 1) << LOCK_SHIFT; // 0xF_FE00
const TOUCHED_SHIFT: u32 = LOCK_SHIFT + LOCK_BITS; // 20
const TOUCHED: u32 = 1 << TOUCHED_SHIFT; // 0x10_0000
const _: () = assert!(TOUCHED_SHIFT < u32::BITS, "the fields of the state fit");
const _: () = assert!(OBJECTS_MAX as u32 <= IN_USE_MASK, "as many objects as there can be");

/// Number of a descriptor, which is its header's; 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct DescriptorId(pub(crate) u32);

impl DescriptorId {
    pub(crate) const NONE: DescriptorId = DescriptorId(0);

    pub(crate) fn some(self) -> Option<DescriptorId> {
        (self.0 != 0).then_some(self)
    }
}

/// Words of the body of a descriptor for zspages of this shape.
pub(crate) const fn body_words(shape: Shape) -> usize {
    FIXED_WORDS + more_bits(shape.objects as usize) + shape.objects as usize
}

/// Words of bits beyond the header's.
const fn more_bits(objects: usize) -> usize {
    objects.div_ceil(WORD_SLOTS) - 1
}

/// The tables of all headers and bodies.
#[derive(Clone, Copy)]
pub(crate) struct Headers<'a> {
    pub(crate) words: &'a [[AtomicU32; HEADER_WORDS]],
    pub(crate) bodies: &'a [AtomicU32],
}

impl<'a> Headers<'a> {
    /// What a descriptor begins with.
    #[inline]
    pub(crate) fn get(self, id: DescriptorId) -> Header<'a> {
        Header { words: &self.words[id.0 as usize], bodies: self.bodies }
    }
}

/// What every descriptor begins with, and what its body begins with.
#[derive(Clone, Copy)]
pub(crate) struct Header<'a> {
    words: &'a [AtomicU32; HEADER_WORDS],
    bodies: &'a [AtomicU32],
}

/// A zspage: the number of its descriptor, and its header, which most of what is done to it needs.
#[derive(Clone, Copy)]
pub(crate) struct Zspage<'a> {
    pub(crate) id: DescriptorId,
    pub(crate) header: Header<'a>,
}

impl<'a> Header<'a> {
    /// The number of the body.
    #[inline]
    pub(crate) fn body(self) -> u32 {
        self.get(BODY)
    }

    /// Starts loading the header itself.
    pub(crate) fn prefetch(self) {
        host::prefetch(&self.words[STATE]);
    }

    /// Starts loading the body.
    pub(crate) fn prefetch_body(self) {
        host::prefetch(self.in_body(PFN));
    }

    pub(crate) fn set_body(self, body: u32) {
        self.set(BODY, body);
    }

    pub(crate) fn pfn(self) -> Pfn {
        // relaxed: the class lock orders every access.
        Pfn::new(self.in_body(PFN).load(Ordering::Relaxed))
    }

    pub(crate) fn set_pfn(self, pfn: Pfn) {
        // relaxed: the class lock orders every access.
        self.in_body(PFN).store(pfn.get(), Ordering::Relaxed);
    }

    /// One of its slots.
    #[inline]
    pub(crate) fn slot(self, object: usize) -> Slot {
        Slot { pfn: self.pfn(), object: object as u8 }
    }

    /// Which lock the zspage is under: the number of its class's shard among all of the pool's. It
    /// changes for another shard of the class, under the locks of both.
    #[inline]
    pub(crate) fn lock(self) -> usize {
        // Acquire pairs with the Release in `set_state`, so that a thread that sees the lock of a
        // descriptor's next life sees what ended the last.
        ((self.words[STATE].load(Ordering::Acquire) & LOCK_MASK) >> LOCK_SHIFT) as usize
    }

    pub(crate) fn set_lock(self, lock: usize) {
        self.set_state(self.get(STATE) & !LOCK_MASK | (lock as u32) << LOCK_SHIFT);
    }

    #[inline]
    pub(crate) fn in_use(self) -> usize {
        (self.get(STATE) & IN_USE_MASK) as usize
    }

    /// Whether every frame of the zspage is touched: a slot of it costs nothing then.
    #[inline]
    pub(crate) fn is_touched(self) -> bool {
        self.get(STATE) & TOUCHED != 0
    }

    /// Slots in use, and whether every frame is touched, looked at once.
    #[inline]
    pub(crate) fn use_and_touched(self) -> (u16, bool) {
        let state = self.get(STATE);
        ((state & IN_USE_MASK) as u16, state & TOUCHED != 0)
    }

    /// Says whether every frame is touched.
    pub(crate) fn set_touched(self, touched: bool) {
        self.set_state(self.get(STATE) & !TOUCHED | u32::from(touched) << TOUCHED_SHIFT);
    }

    #[inline]
    fn set_state(self, state: u32) {
        // Release pairs with the Acquire in `lock`, so that a thread that sees the lock of a
        // descriptor's next life sees what ended the last.
        self.words[STATE].store(state, Ordering::Release);
    }

    /// Gives a slot back. Its back reference stays until the slot is taken again, so that a free
    /// leaves that cache line alone. Gives how many slots are in use then.
    #[inline]
    pub(crate) fn give(self, slot: usize) -> usize {
        let (bits, bit) = (self.bits(slot / WORD_SLOTS), 1 << (slot % WORD_SLOTS));
        // relaxed: the class lock orders every access.
        let before = bits.load(Ordering::Relaxed);
        debug_assert!(before & bit != 0, "slot {slot} freed twice");
        // relaxed: as above.
        bits.store(before & !bit, Ordering::Relaxed);
        let state = self.get(STATE) - 1;
        self.set_state(state);
        (state & IN_USE_MASK) as usize
    }

    /// Counts a slot too many, for a test of a recount.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(crate) fn miscount(self) {
        self.set_state(self.get(STATE) + 1);
    }

    /// The bits of 32 slots.
    #[inline]
    fn bits(self, index: usize) -> &'a AtomicU32 {
        match index {
            0 => &self.words[BITS],
            more => self.in_body(FIXED_WORDS + more - 1),
        }
    }

    /// Where the class keeps the zspage's number.
    #[inline]
    pub(crate) fn position(self) -> u32 {
        self.get(POSITION)
    }

    #[inline]
    pub(crate) fn set_position(self, position: u32) {
        self.set(POSITION, position);
    }

    /// The zspage that goes back after this one, which is out of its class.
    pub(crate) fn next(self) -> DescriptorId {
        DescriptorId(self.get(POSITION))
    }

    pub(crate) fn set_next(self, id: DescriptorId) {
        self.set(POSITION, id.0);
    }

    /// The pool of the zspage; 0 from when it departs. If a thread holds the lock of the class that
    /// the header names, finds a pool's id here, and objects are in use, neither changes while it
    /// holds the lock.
    pub(crate) fn pool(self) -> u32 {
        // Acquire pairs with the Release in `set_pool`, so that a thread that sees the pool sees
        // the header of its zspage.
        self.in_body(POOL).load(Ordering::Acquire)
    }

    pub(crate) fn set_pool(self, pool: u32) {
        // Release pairs with the Acquire in `pool`, so that a thread that sees the pool sees the
        // header of its zspage.
        self.in_body(POOL).store(pool, Ordering::Release);
    }

    #[inline]
    fn in_body(self, word: usize) -> &'a AtomicU32 {
        &self.bodies[self.body() as usize + word]
    }

    #[inline]
    fn get(self, word: usize) -> u32 {
        // relaxed: the class lock orders every access.
        self.words[word].load(Ordering::Relaxed)
    }

    #[inline]
    fn set(self, word: usize, value: u32) {
        // relaxed: the class lock orders every access.
        self.words[word].store(value, Ordering::Relaxed);
    }
}

/// One descriptor, borrowed from the tables.
#[derive(Clone, Copy)]
pub(crate) struct Descriptor<'a> {
    header: Header<'a>,
    objects: usize,
}

impl<'a> std::ops::Deref for Descriptor<'a> {
    type Target = Header<'a>;

    #[inline]
    fn deref(&self) -> &Header<'a> {
        &self.header
    }
}

impl<'a> Descriptor<'a> {
    /// A header, of a zspage of this shape.
    #[inline]
    pub(crate) fn new(header: Header<'a>, shape: Shape) -> Descriptor<'a> {
        Descriptor { header, objects: usize::from(shape.objects) }
    }

    /// Describes a zspage without objects, of frames of which nothing is known.
    pub(crate) fn reset(&self, pfn: Pfn, lock: usize, pool: u32) {
        for index in 0..=more_bits(self.objects) {
            self.bits(index).store(0, Ordering::Relaxed); // relaxed: nobody else knows of it yet.
        }
        self.set_pfn(pfn);
        self.set_state((lock as u32) << LOCK_SHIFT);
        self.set_pool(pool);
    }

    /// Takes the lowest free slot for a cell, or for one that is not known yet (`NONE`). `None` if
    /// the zspage is full.
    #[inline(always)]
    pub(crate) fn take_lowest(&self, owner: CellNumber) -> Option<usize> {
        let mut index = 0;
        // relaxed: the class lock orders every access.
        let mut bits = self.get(BITS);
        while bits == u32::MAX && index < more_bits(self.objects) {
            index += 1;
            // relaxed: as above.
            bits = self.bits(index).load(Ordering::Relaxed);
        }
        let slot = index * WORD_SLOTS + bits.trailing_ones() as usize;
        if slot >= self.objects {
            return None;
        }
        let back_reference = self.back_reference(slot);
        // relaxed: as above.
        self.bits(index).store(bits | (bits + 1), Ordering::Relaxed);
        self.set_state(self.get(STATE) + 1);
        // relaxed: the class lock orders it; the slot's publisher stores after that.
        back_reference.store(owner.get(), Ordering::Relaxed);
        Some(slot)
    }

    /// The slot that [`Descriptor::take_lowest`] would take.
    pub(crate) fn lowest_free(&self) -> Option<usize> {
        (0..self.objects).find(|&slot| !self.is_in_use(slot))
    }

    pub(crate) fn is_in_use(&self, slot: usize) -> bool {
        // relaxed: the class lock orders every access.
        let bits = self.bits(slot / WORD_SLOTS).load(Ordering::Relaxed);
        bits >> (slot % WORD_SLOTS) & 1 == 1
    }

    /// The slots in use, lowest first.
    pub(crate) fn used_slots(&self) -> impl DoubleEndedIterator<Item = usize> + '_ {
        (0..self.objects).filter(|&slot| self.is_in_use(slot))
    }

    /// The cell that owns the object in `slot`; `NONE` while the object is not published.
    pub(crate) fn owner(&self, slot: usize) -> CellNumber {
        // Acquire pairs with the Release in `publish`, so that a thread that finds an owner finds
        // its cell locked or naming this slot.
        CellNumber::new(self.back_reference(slot).load(Ordering::Acquire))
    }

    /// Names the cell that owns the object in `slot`; the caller holds that cell's lock.
    pub(crate) fn publish(&self, slot: usize, owner: CellNumber) {
        // Release pairs with the Acquire in `owner`, so that the mover, which may see the owner
        // from here on, finds it locked or naming this slot.
        self.back_reference(slot).store(owner.get(), Ordering::Release);
    }

    #[inline]
    fn back_reference(&self, slot: usize) -> &'a AtomicU32 {
        debug_assert!(slot < self.objects, "slot {slot} of {}", self.objects);
        self.in_body(FIXED_WORDS + more_bits(self.objects) + slot)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// So many slots that their bits are in three words.
    #[test]
    fn the_lowest_free_slot_is_taken_in_whichever_word_it_is() {
        const OBJECTS: u16 = 70;
        let shape = Shape { size: 48, frames: 1, objects: OBJECTS };
        let words = [0; HEADER_WORDS].map(AtomicU32::new);
        let bodies: Vec<_> = (0..body_words(shape)).map(|_| AtomicU32::new(0)).collect();
        let zspage = Descriptor::new(Header { words: &words, bodies: &bodies }, shape);
        let take = || zspage.take_lowest(CellNumber::new(1));
        let all = 0..usize::from(OBJECTS);
        assert!(all.clone().all(|slot| take() == Some(slot)), "one after the other");
        assert_eq!((take(), zspage.in_use()), (None, all.len()), "full");
        [69, 32, 40, 31].into_iter().for_each(|slot| _ = zspage.give(slot));
        assert_eq!([take(), take(), take(), take()], [31, 32, 40, 69].map(Some));
        assert_eq!((take(), zspage.used_slots().count()), (None, all.len()));
    }

    proptest! {
        #[test]
        fn a_state_has_its_fields_back(
            in_use in 0..=OBJECTS_MAX,
            locks in [0..LOCKS_NAMED, 0..LOCKS_NAMED],
            touched: [bool; 2],
        ) {
            let words = [0; HEADER_WORDS].map(AtomicU32::new);
            let header = Header { words: &words, bodies: &[] };
            header.set_state(in_use as u32);
            for (lock, touched) in locks.into_iter().zip(touched) {
                header.set_lock(lock);
                header.set_touched(touched);
                prop_assert_eq!((header.lock(), header.in_use()), (lock, in_use));
                prop_assert_eq!(header.is_touched(), touched);
                prop_assert_eq!(header.use_and_touched(), (in_use as u16, touched));
            }
        }
    }
}
