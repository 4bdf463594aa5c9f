//! The word of a cell: where an object is now, how long it is, and the client's bits.
//!
//! ```text
//!   63      58 57        47 46            17 16     9 8       1   0
//!  +----------+------------+----------------+--------+---------+------+
//!  | client 6 |  slack 11  |     PFN 30     | class  | object  | lock |   class > 0: an object
//!  |          |            |                | + 1, 8 | index 8 |  1   |
//!  +----------+------------+----------------+--------+---------+------+
//!  | client 6 |          value 41           |   0    |  tag 8  | lock |   class = 0: no object
//!  +----------+-----------------------------+--------+---------+------+
//! ```
//!
//! `[PFN | class | object]` is the object word of study S0: the class is read from it without a
//! lock. A move rewrites PFN and object index, and class and slack too if the object joins those of
//! a larger class, all at once. PFN is the first frame of the zspage, which is contiguous. `slack`
//! is class size minus length, so a reader knows the exact length without another access. A word of
//! zeros is an empty cell, because a freshly touched table is zeros.
//!
//! Invariants
//! - I1 the fields do not overlap and fill the word: each shift is the sum of the widths below.
//! - I2 every class, object index, PFN and slack of every geometry fits its field.

use host::Pfn;

use super::geometry::{CLASSES, ClassIndex, OBJECTS_MAX, SIZE_MAX};

const LOCK_BITS: u32 = 1;
const OBJECT_BITS: u32 = OBJECTS_MAX.ilog2(); // 8
const CLASS_BITS: u32 = (CLASSES + 1).ilog2(); // 8
/// Bits of a frame number: the largest arena has 2^30 frames, 4 TiB.
pub(crate) const PFN_BITS: u32 = 30;
pub(crate) const SLACK_BITS: u32 = (SIZE_MAX / 2).ilog2(); // 11
/// Bits that belong to the client of a cell.
pub(crate) const CLIENT_BITS: u32 = 6;
/// Bits of a value kept in place of an object.
pub const VALUE_BITS: u32 = PFN_BITS + SLACK_BITS; // 41

const OBJECT_SHIFT: u32 = LOCK_BITS; // 1
const CLASS_SHIFT: u32 = OBJECT_SHIFT + OBJECT_BITS; // 9
const PFN_SHIFT: u32 = CLASS_SHIFT + CLASS_BITS; // 17
const SLACK_SHIFT: u32 = PFN_SHIFT + PFN_BITS; // 47
const CLIENT_SHIFT: u32 = SLACK_SHIFT + SLACK_BITS; // 58

const _: () = assert!(CLIENT_SHIFT + CLIENT_BITS == u64::BITS, "the fields fill the word exactly");
const _: () = assert!(CLASSES < 1 << CLASS_BITS, "class index + 1 must fit; 0 means no object");
const _: () = assert!(OBJECTS_MAX <= 1 << OBJECT_BITS, "every object index must fit");
const _: () = assert!(
    SIZE_MAX - SIZE_MAX / 2 <= 1 << SLACK_BITS,
    "an object is longer than half the largest class below its own, so slack < SIZE_MAX / 2"
);

/// The lock bit of a cell's word.
pub(crate) const LOCKED: u64 = 1;
/// One reader of a handle's object: the client's bits of a handle's cell count them.
pub(crate) const PIN: u64 = 1 << CLIENT_SHIFT;
/// Readers of one object at once, at most.
pub(crate) const PINS_MAX: u8 = (1 << CLIENT_BITS) - 1; // 63

const fn field(word: u64, shift: u32, bits: u32) -> u64 {
    (word >> shift) & ((1 << bits) - 1)
}

const fn mask(shift: u32, bits: u32) -> u64 {
    ((1 << bits) - 1) << shift
}

/// Which slot: of the zspage that begins with frame `pfn`, number `object`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) pfn: Pfn,
    pub(crate) object: u8,
}

/// Where an object is and how much of its slot it leaves unused: a word's content, without lock and
/// client's bits. The default is none.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Place(u64);

impl Place {
    #[inline]
    pub(crate) fn new(slot: Slot, class: ClassIndex, slack: u16) -> Place {
        debug_assert!(u64::from(slot.pfn.get()) < 1 << PFN_BITS);
        debug_assert!(u64::from(slack) < 1 << SLACK_BITS);
        Place(
            u64::from(slot.object) << OBJECT_SHIFT
                | (u64::from(class.0) + 1) << CLASS_SHIFT
                | u64::from(slot.pfn.get()) << PFN_SHIFT
                | u64::from(slack) << SLACK_SHIFT,
        )
    }

    /// First frame of the zspage.
    #[inline]
    pub(crate) fn pfn(self) -> Pfn {
        Pfn::new(field(self.0, PFN_SHIFT, PFN_BITS) as u32)
    }

    /// The size class of the zspage, which the object may be too short for.
    #[inline]
    pub(crate) fn class(self) -> ClassIndex {
        ClassIndex((field(self.0, CLASS_SHIFT, CLASS_BITS) as u8).wrapping_sub(1))
    }

    /// Slot in the zspage.
    #[inline]
    pub(crate) fn object(self) -> u8 {
        field(self.0, OBJECT_SHIFT, OBJECT_BITS) as u8
    }

    /// Which slot that is.
    #[inline]
    pub(crate) fn slot(self) -> Slot {
        Slot { pfn: self.pfn(), object: self.object() }
    }

    /// Class size minus length, in bytes.
    #[inline]
    pub(crate) fn slack(self) -> u16 {
        field(self.0, SLACK_SHIFT, SLACK_BITS) as u16
    }
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (class, slack) = (self.class().0, self.slack());
        write!(f, "Place({}, class {class}, object {}, slack {slack})", self.pfn(), self.object())
    }
}

/// A word, taken apart and put together. It is never shared: the table holds the atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Word(pub(crate) u64);

impl Word {
    /// The object, if there is one.
    #[inline]
    pub(crate) fn place(self) -> Option<Place> {
        let content = self.0 & !(mask(CLIENT_SHIFT, CLIENT_BITS) | LOCKED);
        (field(content, CLASS_SHIFT, CLASS_BITS) != 0).then_some(Place(content))
    }

    /// Replaces object or value, keeps the client's bits and the lock.
    #[inline]
    #[must_use]
    pub(crate) fn with_place(self, place: Place) -> Word {
        Word(self.without_content().0 | place.0)
    }

    /// The value kept in place of an object: tag and value, (0, 0) when empty.
    pub(crate) fn value(self) -> (u8, u64) {
        let tag = field(self.0, OBJECT_SHIFT, OBJECT_BITS) as u8;
        (tag, field(self.0, PFN_SHIFT, VALUE_BITS))
    }

    /// Replaces object or value by a value, keeps the client's bits and the lock.
    #[must_use]
    pub(crate) fn with_value(self, tag: u8, value: u64) -> Word {
        debug_assert!(value < 1 << VALUE_BITS);
        Word(self.without_content().0 | u64::from(tag) << OBJECT_SHIFT | value << PFN_SHIFT)
    }

    /// The client's bits.
    pub(crate) fn client(self) -> u8 {
        field(self.0, CLIENT_SHIFT, CLIENT_BITS) as u8
    }

    /// Readers of the object, in a handle's cell.
    pub(crate) fn pins(self) -> u8 {
        self.client()
    }

    /// Replaces the client's bits; bits above the field are dropped.
    #[must_use]
    pub(crate) fn with_client(self, bits: u8) -> Word {
        let kept = self.0 & !mask(CLIENT_SHIFT, CLIENT_BITS);
        Word(kept | field(u64::from(bits), 0, CLIENT_BITS) << CLIENT_SHIFT)
    }

    fn without_content(self) -> Word {
        Word(self.0 & (mask(CLIENT_SHIFT, CLIENT_BITS) | LOCKED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Each field comes back as it was put in, and none disturbs another.
        #[test]
        fn fields_round_trip(
            pfn in 0u32..1 << PFN_BITS, class in 0u8..255, object: u8,
            slack in 0u16..1 << SLACK_BITS, client in 0u8..1 << CLIENT_BITS, locked: bool,
        ) {
            let pfn = Pfn::new(pfn);
            let place = Place::new(Slot { pfn, object }, ClassIndex(class), slack);
            let word = Word(u64::from(locked)).with_client(client).with_place(place);
            prop_assert_eq!(word.place(), Some(place));
            let fields = (place.pfn(), place.class().0, place.object(), place.slack());
            prop_assert_eq!(fields, (pfn, class, object, slack));
            prop_assert_eq!(word.client(), client);
            prop_assert_eq!(word.0 & LOCKED, u64::from(locked));
        }

        #[test]
        fn values_round_trip(tag: u8, value in 0u64..1 << VALUE_BITS, client in 0u8..64) {
            let word = Word::default().with_client(client).with_value(tag, value);
            prop_assert_eq!(word.place(), None);
            prop_assert_eq!(word.value(), (tag, value));
            prop_assert_eq!(word.client(), client);
        }
    }

    #[test]
    fn slack_of_every_geometry_fits() {
        use crate::numbers::{ChainSize, Geometry, Rule};
        for rule in Rule::ALL {
            for chain in (1..=16).filter_map(ChainSize::new) {
                let geometry = Geometry::new(rule, chain);
                for len in 1..=SIZE_MAX {
                    let class = geometry.class_of(len).expect("1..=4096 has a class");
                    let slack = geometry.shape(class).size as usize - len;
                    assert!(slack < 1 << SLACK_BITS, "{rule} {chain:?} {len}: slack {slack}");
                }
            }
        }
    }
}
