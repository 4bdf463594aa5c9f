//! Zspage descriptors: what is needed to allocate in a zspage, free from it and move its objects,
//! so that none of it touches the objects themselves.
//!
//! ```text
//!   word 0   PFN of the first frame
//!   word 1   | class 8 | unused 8 | shard 3 | list 4 | objects in use 9 |
//!   word 2   previous zspage of the fullness list (descriptor number, 0 = none)
//!   word 3   next zspage
//!   word 4   the pool, by its id
//!   then     one bit per slot: in use                     ceil(objects / 32) words
//!   then     one word per slot: the entry that owns it    objects words, 0 = not published
//! ```
//!
//! A descriptor of 17 objects is 92 bytes, of which 68 are back references. Its words are atomics
//! of a shared table only so that plain references to them are sound; they are read and written
//! under the class lock, with two exceptions: a publisher stores the back reference of an object
//! that it alone knows (see `publish`), and the shard is read to find the lock.
//!
//! Invariants
//! - I1 objects in use = set bits = slots that are allocated.
//! - I2 the back reference of a slot in use is 0, or the number of the entry whose word names this
//!   slot, or of one that is locked by whoever is about to make that true or false, or of a
//!   handle's entry that names nothing because the object is still being written.
//!
//! Lock: the class lock of the descriptor's class, taken by the caller.

use host::sync::atomic::{AtomicU32, Ordering};

use crate::geometry::{ClassIndex, OBJECTS_MAX, Shape};
use crate::pool::SHARDS_MAX;

const PFN: usize = 0;
const STATE: usize = 1;
const PREV: usize = 2;
const NEXT: usize = 3;
const POOL: usize = 4;
/// Words before the bitmap.
pub(crate) const HEADER_WORDS: usize = 5; // 20 bytes

const IN_USE_BITS: u32 = OBJECTS_MAX.ilog2() + 1; // 9: 0..=256
const GROUP_BITS: u32 = 4; // 12 groups
const CLASS_BITS: u32 = 8;
const GROUP_SHIFT: u32 = IN_USE_BITS; // 9
const SHARD_BITS: u32 = SHARDS_MAX.ilog2(); // 3
const SHARD_SHIFT: u32 = GROUP_SHIFT + GROUP_BITS; // 13
const CLASS_SHIFT: u32 = u32::BITS - CLASS_BITS; // 24
const _: () = assert!(SHARD_SHIFT + SHARD_BITS <= CLASS_SHIFT, "state fields do not overlap");

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

/// What every descriptor begins with.
#[derive(Clone, Copy)]
pub(crate) struct Header<'a>(&'a [AtomicU32; HEADER_WORDS]);

impl<'a> Header<'a> {
    /// The header at the start of a descriptor's words.
    #[inline]
    pub(crate) fn new(words: &'a [AtomicU32]) -> Header<'a> {
        Header(words.first_chunk().expect("a descriptor has a header"))
    }

    pub(crate) fn pfn(self) -> u32 {
        self.get(PFN)
    }

    pub(crate) fn set_pfn(self, pfn: u32) {
        self.set(PFN, pfn);
    }

    pub(crate) fn class(self) -> ClassIndex {
        ClassIndex((self.get(STATE) >> CLASS_SHIFT) as u8)
    }

    /// Which shard of its class the zspage belongs to. Constant while one of its objects is pinned
    /// or locked, but for compaction, which holds the locks of both shards.
    #[inline]
    pub(crate) fn shard(self) -> usize {
        ((self.get(STATE) >> SHARD_SHIFT) & ((1 << SHARD_BITS) - 1)) as usize
    }

    pub(crate) fn set_shard(self, shard: usize) {
        let kept = self.get(STATE) & !(((1 << SHARD_BITS) - 1) << SHARD_SHIFT);
        self.set(STATE, kept | (shard as u32) << SHARD_SHIFT);
    }

    #[inline]
    pub(crate) fn in_use(self) -> usize {
        (self.get(STATE) & ((1 << IN_USE_BITS) - 1)) as usize
    }

    #[inline]
    pub(crate) fn group(self) -> usize {
        ((self.get(STATE) >> GROUP_SHIFT) & ((1 << GROUP_BITS) - 1)) as usize
    }

    #[inline]
    pub(crate) fn prev(self) -> DescriptorId {
        DescriptorId(self.get(PREV))
    }

    #[inline]
    pub(crate) fn next(self) -> DescriptorId {
        DescriptorId(self.get(NEXT))
    }

    #[inline]
    pub(crate) fn set_prev(self, id: DescriptorId) {
        self.set(PREV, id.0);
    }

    #[inline]
    pub(crate) fn set_next(self, id: DescriptorId) {
        self.set(NEXT, id.0);
    }

    /// Files the zspage under a group, between two others.
    #[inline]
    pub(crate) fn set_links(self, group: usize, prev: DescriptorId, next: DescriptorId) {
        let kept = self.get(STATE) & !(((1 << GROUP_BITS) - 1) << GROUP_SHIFT);
        self.set(STATE, kept | (group as u32) << GROUP_SHIFT);
        self.set_prev(prev);
        self.set_next(next);
    }

    /// The pool of the zspage; 0 from when it departs. Whoever finds a pool's id holding the lock
    /// of the class that the header names knows that both hold still, if objects are in use.
    pub(crate) fn pool(self) -> u32 {
        // Pairs with the Release in `set_pool`.
        self.0[POOL].load(Ordering::Acquire)
    }

    pub(crate) fn set_pool(self, pool: u32) {
        // Pairs with the Acquire in `pool`: who sees the pool sees the header of its zspage.
        self.0[POOL].store(pool, Ordering::Release);
    }

    #[inline]
    fn get(self, word: usize) -> u32 {
        // relaxed: the class lock orders every access.
        self.0[word].load(Ordering::Relaxed)
    }

    #[inline]
    fn set(self, word: usize, value: u32) {
        // relaxed: the class lock orders every access.
        self.0[word].store(value, Ordering::Relaxed);
    }
}

/// One descriptor, borrowed from the table.
#[derive(Clone, Copy)]
pub(crate) struct Descriptor<'a> {
    header: Header<'a>,
    /// The bitmap, then the back references.
    slots: &'a [AtomicU32],
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
    #[inline]
    pub(crate) fn new(words: &'a [AtomicU32], shape: Shape) -> Descriptor<'a> {
        debug_assert_eq!(words.len(), words_of(shape));
        let slots = &words[HEADER_WORDS..];
        Descriptor { header: Header::new(words), slots, objects: shape.objects as usize }
    }

    /// Describes a zspage without objects.
    pub(crate) fn reset(&self, pfn: u32, class: ClassIndex, shard: usize, pool: u32) {
        for index in 0..bitmap_words(self.objects) {
            self.set_bits(index, 0);
        }
        self.set_pfn(pfn);
        self.set(STATE, u32::from(class.0) << CLASS_SHIFT | (shard as u32) << SHARD_SHIFT);
        self.set_pool(pool);
    }

    /// Takes the lowest free slot for an entry, or for one not known yet (0); `None` when the
    /// zspage is full.
    #[inline]
    pub(crate) fn take_lowest(&self, owner: u32) -> Option<usize> {
        for index in 0..bitmap_words(self.objects) {
            let bits = self.bits(index);
            let slot = index * 32 + bits.trailing_ones() as usize;
            if bits != u32::MAX && slot < self.objects {
                self.set_bits(index, bits | 1 << (slot % 32));
                self.set(STATE, self.get(STATE) + 1);
                // relaxed: the class lock orders it; the slot's publisher stores after that.
                self.back_reference(slot).store(owner, Ordering::Relaxed);
                return Some(slot);
            }
        }
        None
    }

    /// Gives a slot back. Its back reference stays until the slot is taken again, so that a free
    /// leaves that cache line alone.
    pub(crate) fn give(&self, slot: usize) {
        debug_assert!(self.is_in_use(slot), "slot {slot} freed twice");
        self.set_bits(slot / 32, self.bits(slot / 32) & !(1 << (slot % 32)));
        self.set(STATE, self.get(STATE) - 1);
    }

    pub(crate) fn is_in_use(&self, slot: usize) -> bool {
        self.bits(slot / 32) >> (slot % 32) & 1 == 1
    }

    /// The slots in use, lowest first.
    pub(crate) fn used_slots(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.objects).filter(|&slot| self.is_in_use(slot))
    }

    /// The entry that owns the object in `slot`; 0 while the object is not published.
    pub(crate) fn owner(&self, slot: usize) -> u32 {
        // Pairs with the Release in `publish`, so that whoever finds an owner finds its cell
        // locked or naming this slot.
        self.back_reference(slot).load(Ordering::Acquire)
    }

    /// Names the entry that owns the object in `slot`; the caller holds that entry's lock.
    pub(crate) fn publish(&self, slot: usize, entry: u32) {
        // Pairs with the Acquire in `owner`: the mover may see the entry from here on.
        self.back_reference(slot).store(entry, Ordering::Release);
    }

    #[inline]
    fn back_reference(&self, slot: usize) -> &'a AtomicU32 {
        &self.slots[bitmap_words(self.objects) + slot]
    }

    #[inline]
    fn bits(&self, index: usize) -> u32 {
        // relaxed: the class lock orders every access.
        self.slots[index].load(Ordering::Relaxed)
    }

    #[inline]
    fn set_bits(&self, index: usize, bits: u32) {
        // relaxed: the class lock orders every access.
        self.slots[index].store(bits, Ordering::Relaxed);
    }
}
