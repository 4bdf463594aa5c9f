//! Arithmetic of bit maps that are kept in 64-bit words: pure functions without storage.
//!
//! ```text
//!    bit    60 61 62 63 | 64 65 66 ...
//!    word 0 ............|............ word 1
//!    run        [62 .. 66)            spans: (0, bits 62..64), (1, bits 0..2)
//! ```
//!
//! Invariant: the masks of `spans` cover each bit of the run once and no other. Lock: none.

/// Bits in a word, as a shift.
const WORD_SHIFT: u32 = u64::BITS.trailing_zeros(); // 6
/// Position of a bit inside its word.
const WORD_MASK: usize = u64::BITS as usize - 1; // 63

const _: () = assert!(1 << WORD_SHIFT == WORD_MASK + 1, "the shift and the mask split one index");

/// Words that hold `bits` bits.
pub(crate) const fn words_for(bits: usize) -> usize {
    bits.div_ceil(u64::BITS as usize)
}

/// The word that holds bit `index`.
pub(crate) const fn word_of(index: usize) -> usize {
    index >> WORD_SHIFT
}

/// The bit of `index` inside its word.
pub(crate) const fn mask_of(index: usize) -> u64 {
    1 << (index & WORD_MASK)
}

/// The words that `start..end` reaches, in ascending order, each with a mask of its bits in the
/// range.
pub(crate) fn spans(start: usize, end: usize) -> impl DoubleEndedIterator<Item = (usize, u64)> {
    let words = if start < end { word_of(start)..word_of(end - 1) + 1 } else { 0..0 };
    let (first, last) = (words.start, words.end.wrapping_sub(1));
    words.map(move |word| {
        let from = if word == first { mask_from(start) } else { u64::MAX };
        let to = if word == last { mask_to(end - 1) } else { u64::MAX };
        (word, from & to)
    })
}

/// The bit of `index` and those above it in its word.
const fn mask_from(index: usize) -> u64 {
    u64::MAX << (index & WORD_MASK)
}

/// The bit of `index` and those below it in its word.
const fn mask_to(index: usize) -> u64 {
    u64::MAX >> (WORD_MASK - (index & WORD_MASK))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 8 } else { 256 }))]

        #[test]
        fn spans_cover_exactly_the_run(start in 0_usize..300, len in 0_usize..300) {
            let mut covered = Vec::new();
            for (word, mask) in spans(start, start + len) {
                prop_assert!(mask != 0, "word {word} is named without a bit");
                let bits = (0..64).filter(|bit| mask >> bit & 1 == 1);
                covered.extend(bits.map(|bit| word * 64 + bit));
            }
            prop_assert_eq!(covered, (start..start + len).collect::<Vec<_>>());
        }

        #[test]
        fn a_bit_is_a_run_of_one(index in 0_usize..1 << 40) {
            let expected = (word_of(index), mask_of(index));
            prop_assert_eq!(spans(index, index + 1).collect::<Vec<_>>(), [expected]);
        }
    }
}
