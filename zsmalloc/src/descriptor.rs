//! Zspage descriptors: what is needed to allocate in a zspage, free from it and move its objects,
//! so that none of it touches the objects themselves.
//!
//! ```text
//!   word 0   PFN of the first frame
//!   word 1   | class 8 | unused 11 | fullness group 4 | objects in use 9 |
//!   word 2   previous zspage of the fullness list (descriptor number, 0 = none)
//!   word 3   next zspage
//!   then     one bit per slot: in use                     ceil(objects / 32) words
//!   then     one word per slot: the entry that owns it    objects words, 0 = not published
//! ```
//!
//! A descriptor of 17 objects is 88 bytes, of which 68 are back references. Its words are atomics
//! of a shared table only so that plain references to them are sound; they are read and written
//! under the class lock, with one exception: a publisher stores the back reference of an object
//! that it alone knows (see `publish`).
//!
//! Invariants
//! - I1 objects in use = set bits = slots that are allocated.
//! - I2 a back reference is 0, or the number of the entry whose word names this slot, or of one
//!   that is locked by whoever is about to make that true or false.
//!
//! Lock: the class lock of the descriptor's class, taken by the caller.

use host::sync::atomic::{AtomicU32, Ordering};

use crate::geometry::{ClassIndex, OBJECTS_MAX, Shape};

const PFN: usize = 0;
const STATE: usize = 1;
const PREV: usize = 2;
const NEXT: usize = 3;
/// Words before the bitmap.
const HEADER_WORDS: usize = 4; // 16 bytes

const IN_USE_BITS: u32 = OBJECTS_MAX.ilog2() + 1; // 9: 0..=256
const GROUP_BITS: u32 = 4; // 12 groups
const CLASS_BITS: u32 = 8;
const GROUP_SHIFT: u32 = IN_USE_BITS; // 9
const CLASS_SHIFT: u32 = u32::BITS - CLASS_BITS; // 24
const _: () = assert!(GROUP_SHIFT + GROUP_BITS <= CLASS_SHIFT, "state fields do not overlap");

/// Number of a descriptor: its offset in 16-byte units; 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct DescriptorId(pub(crate) u32);

impl DescriptorId {
    pub(crate) const NONE: DescriptorId = DescriptorId(0);

    pub(crate) fn some(self) -> Option<DescriptorId> {
        (self.0 != 0).then_some(self)
    }
}

/// Words of a descriptor for zspages of this shape.
pub(crate) const fn words_of(shape: Shape) -> usize {
    HEADER_WORDS + bitmap_words(shape.objects as usize) + shape.objects as usize
}

const fn bitmap_words(objects: usize) -> usize {
    objects.div_ceil(32)
}

/// One descriptor, borrowed from the table.
#[derive(Clone, Copy)]
pub(crate) struct Descriptor<'a> {
    words: &'a [AtomicU32],
    objects: usize,
}

impl<'a> Descriptor<'a> {
    pub(crate) fn new(words: &'a [AtomicU32], shape: Shape) -> Descriptor<'a> {
        debug_assert_eq!(words.len(), words_of(shape));
        Descriptor { words, objects: shape.objects as usize }
    }

    /// Describes a zspage without objects.
    pub(crate) fn reset(&self, pfn: u32, class: ClassIndex) {
        for index in 0..self.words.len() {
            self.set(index, 0);
        }
        self.set(PFN, pfn);
        self.set(STATE, u32::from(class.0) << CLASS_SHIFT);
    }

    pub(crate) fn pfn(&self) -> u32 {
        self.get(PFN)
    }

    pub(crate) fn class(&self) -> ClassIndex {
        ClassIndex((self.get(STATE) >> CLASS_SHIFT) as u8)
    }

    pub(crate) fn in_use(&self) -> usize {
        (self.get(STATE) & ((1 << IN_USE_BITS) - 1)) as usize
    }

    pub(crate) fn group(&self) -> usize {
        ((self.get(STATE) >> GROUP_SHIFT) & ((1 << GROUP_BITS) - 1)) as usize
    }

    pub(crate) fn set_group(&self, group: usize) {
        let kept = self.get(STATE) & !(((1 << GROUP_BITS) - 1) << GROUP_SHIFT);
        self.set(STATE, kept | (group as u32) << GROUP_SHIFT);
    }

    pub(crate) fn prev(&self) -> DescriptorId {
        DescriptorId(self.get(PREV))
    }

    pub(crate) fn next(&self) -> DescriptorId {
        DescriptorId(self.get(NEXT))
    }

    pub(crate) fn set_prev(&self, id: DescriptorId) {
        self.set(PREV, id.0);
    }

    pub(crate) fn set_next(&self, id: DescriptorId) {
        self.set(NEXT, id.0);
    }

    /// Takes the lowest free slot; `None` when the zspage is full.
    pub(crate) fn take_lowest(&self) -> Option<usize> {
        for index in 0..bitmap_words(self.objects) {
            let bits = self.get(HEADER_WORDS + index);
            let slot = index * 32 + bits.trailing_ones() as usize;
            if bits != u32::MAX && slot < self.objects {
                self.set(HEADER_WORDS + index, bits | 1 << (slot % 32));
                self.set(STATE, self.get(STATE) + 1);
                return Some(slot);
            }
        }
        None
    }

    /// Gives a slot back.
    pub(crate) fn give(&self, slot: usize) {
        debug_assert!(self.is_in_use(slot), "slot {slot} freed twice");
        let word = HEADER_WORDS + slot / 32;
        self.set(word, self.get(word) & !(1 << (slot % 32)));
        self.set(self.owner_word(slot), 0);
        self.set(STATE, self.get(STATE) - 1);
    }

    pub(crate) fn is_in_use(&self, slot: usize) -> bool {
        self.get(HEADER_WORDS + slot / 32) >> (slot % 32) & 1 == 1
    }

    /// The slots in use, lowest first.
    pub(crate) fn used_slots(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.objects).filter(|&slot| self.is_in_use(slot))
    }

    /// The entry that owns the object in `slot`; 0 while the object is not published.
    pub(crate) fn owner(&self, slot: usize) -> u32 {
        // Pairs with the Release in `publish`, so that whoever finds an owner finds its cell
        // locked or naming this slot.
        self.words[self.owner_word(slot)].load(Ordering::Acquire)
    }

    /// Names the entry that owns the object in `slot`; the caller holds that entry's lock.
    pub(crate) fn publish(&self, slot: usize, entry: u32) {
        // Pairs with the Acquire in `owner`: the mover may see the entry from here on.
        self.words[self.owner_word(slot)].store(entry, Ordering::Release);
    }

    fn owner_word(&self, slot: usize) -> usize {
        HEADER_WORDS + bitmap_words(self.objects) + slot
    }

    fn get(&self, word: usize) -> u32 {
        // relaxed: the class lock orders every access.
        self.words[word].load(Ordering::Relaxed)
    }

    fn set(&self, word: usize, value: u32) {
        // relaxed: the class lock orders every access.
        self.words[word].store(value, Ordering::Relaxed);
    }
}
