//! Offsets, which are how far back a match begins, and their classes.
//!
//! ```text
//!   class   0      1       2        3         4        5         6         7
//!   offset  last   1..16   1..256   1..4096   8..256   8..4096   4..1024   16..4096
//!   by             1       1        1         8        8         4         16
//!   bits    0      4       8        12        5        9         8         8
//! ```
//!
//! The raw bits are one less than the offset in units of the class. So each of their values is an
//! offset, and none is zero.
//!
//! Invariant: [`class_of`] gives a class that has the offset. Locks: none.

/// The raw bits of each class, and the power of two that is its unit.
pub(super) const CLASSES: [(u32, u32); 8] =
    [(0, 0), (4, 0), (8, 0), (12, 0), (5, 3), (9, 3), (8, 2), (8, 4)];
/// The class of the last offset.
pub(super) const LAST: usize = 0;
/// The offset that is last before the first sequence.
pub(super) const FIRST: usize = 1;

/// The largest unit of a class, as a power of two.
const UNIT_MAX: u32 = 4;

/// Classes by the unit of an offset and by the bits of the offset less one.
const BY_FORM: [[u8; 13]; UNIT_MAX as usize + 1] = by_form();

const _: () = assert!(UNIT_MAX < 64, "a bit of a word");

/// The smallest class in raw bits; the first of equals.
const fn by_form() -> [[u8; 13]; UNIT_MAX as usize + 1] {
    let mut table = [[0; 13]; UNIT_MAX as usize + 1];
    let mut unit = 0;
    while unit <= UNIT_MAX {
        let mut len = 0;
        while len < 13 {
            table[unit as usize][len as usize] = smallest(unit, len);
            len += 1;
        }
        unit += 1;
    }
    table
}

const fn smallest(unit: u32, len: u32) -> u8 {
    let (mut best, mut class) = (3, 1);
    while class < CLASSES.len() {
        let (bits, scale) = CLASSES[class];
        // An offset by 16 is one by 8 too. Its bits count from the first byte.
        if scale <= unit && len <= bits + scale && bits < CLASSES[best].0 {
            best = class;
        }
        class += 1;
    }
    best as u8
}

/// The class of an offset that is not the last one.
#[inline(always)]
pub(super) fn class_of(offset: usize) -> usize {
    let unit = (offset | 1 << UNIT_MAX).trailing_zeros() as usize;
    let len = (usize::BITS - (offset - 1).leading_zeros()) as usize;
    usize::from(BY_FORM[unit.min(UNIT_MAX as usize)][len.min(12)])
}

/// The raw bits of an offset in a class that has it.
#[inline(always)]
pub(super) fn raw(offset: usize, class: usize) -> u64 {
    (offset as u64 >> CLASSES[class & 7].1).wrapping_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_offset_has_a_class_that_has_it() {
        for offset in 1..=4096 {
            let class = class_of(offset);
            let (bits, scale) = CLASSES[class];
            let raw = raw(offset, class);
            assert!(raw < 1 << bits, "{offset} in class {class}");
            assert_eq!((raw + 1) << scale, offset as u64, "class {class}");
            let fewer = CLASSES[1..].iter().filter(|(fewer, _)| *fewer < bits);
            let has = |&(bits, scale): &(u32, u32)| {
                offset % (1 << scale) == 0 && offset >> scale <= 1 << bits
            };
            assert!(!fewer.copied().any(|class| has(&class)), "{offset}: a smaller class has it");
        }
    }
}
