//! Prefix codes from the lengths of their words, and the best lengths for some weights.
//!
//! ```text
//!   lengths   a 2   b 1   c 3   d 3      words in order of length, then of symbol:
//!   words     b 0   a 10  c 110 d 111    each is the one before, plus one
//!   table     b b b b a a c d            by the next bits: a look-up finds symbol and length
//! ```
//!
//! Invariant: a code is complete, so that any bits begin with a word. [`is_complete`] is asked of
//! all lengths from outside. Locks: none.

/// Whether words of these lengths leave no bits without a meaning, and none with two. Length zero
/// is a symbol that has no word.
pub(super) const fn is_complete(lengths: &[u8], bits_max: u32) -> bool {
    let (mut room, mut symbol) = (0_u64, 0);
    while symbol < lengths.len() {
        let len = lengths[symbol] as u32;
        if len > bits_max {
            return false;
        }
        if len > 0 {
            room += 1 << (bits_max - len);
        }
        symbol += 1;
    }
    room == 1 << bits_max
}

/// The next symbol in the order of words, from `after` = (length, symbol) on.
const fn next_word(lengths: &[u8], mut len: u32, mut symbol: usize, bits_max: u32) -> (u32, usize) {
    while len <= bits_max {
        while symbol < lengths.len() {
            if lengths[symbol] as u32 == len {
                return (len, symbol);
            }
            symbol += 1;
        }
        (len, symbol) = (len + 1, 0);
    }
    (0, 0)
}

/// Calls out the words of a code in order, as a value that says the next one.
#[derive(Clone, Copy)]
pub(super) struct Words {
    /// The word that is told now: its length, its symbol, its bits.
    pub(super) len: u32,
    pub(super) symbol: usize,
    pub(super) word: u32,
}

impl Words {
    pub(super) const fn first(lengths: &[u8], bits_max: u32) -> Self {
        let (len, symbol) = next_word(lengths, 1, 0, bits_max);
        Self { len, symbol, word: 0 }
    }

    /// The word after it; its length is zero at the end.
    pub(super) const fn next(self, lengths: &[u8], bits_max: u32) -> Self {
        let (len, symbol) = next_word(lengths, self.len, self.symbol + 1, bits_max);
        let word = if len == 0 { 0 } else { (self.word + 1) << (len - self.len) };
        Self { len, symbol, word }
    }
}

/// The lengths of the best code whose words have at most `bits_max` bits, for symbols of these
/// weights: package-merge (Larmore and Hirschberg, 1990). There are at least two symbols, and at
/// most `2^bits_max`.
pub(super) fn best_lengths(weights: &[u64], bits_max: u32) -> Vec<u8> {
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by_key(|&symbol| (weights[symbol], symbol));
    let levels = packages(&order, weights, bits_max);
    let mut lengths = vec![0; weights.len()];
    let mut taken = 2 * weights.len() - 2;
    for level in levels.iter().rev() {
        let single = level[..taken.min(level.len())].iter().filter(|is_symbol| **is_symbol).count();
        order[..single].iter().for_each(|&symbol| lengths[symbol] += 1);
        taken = 2 * (taken - single);
    }
    lengths
}

/// For each level, which of its items in order of weight are symbols; the others are packages of
/// two items of the level before.
fn packages(order: &[usize], weights: &[u64], bits_max: u32) -> Vec<Vec<bool>> {
    let mut packed: Vec<u64> = Vec::new();
    let level = |_| {
        let symbols = order.iter().map(|&symbol| (weights[symbol], true));
        let mut items: Vec<(u64, bool)> =
            symbols.chain(packed.iter().map(|&weight| (weight, false))).collect();
        items.sort_by_key(|&(weight, is_symbol)| (weight, !is_symbol));
        packed = items.chunks_exact(2).map(|pair| pair[0].0 + pair[1].0).collect();
        items.into_iter().map(|(_, is_symbol)| is_symbol).collect()
    };
    (0..bits_max).map(level).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(lengths: &[u8], bits_max: u32) -> Vec<(usize, u32, u32)> {
        let first = Words::first(lengths, bits_max);
        let all = std::iter::successors(Some(first), |words| Some(words.next(lengths, bits_max)));
        all.take_while(|words| words.len > 0).map(|w| (w.symbol, w.len, w.word)).collect()
    }

    #[test]
    fn words_are_those_of_the_picture() {
        let expected = [(1, 1, 0), (0, 2, 0b10), (2, 3, 0b110), (3, 3, 0b111)];
        assert_eq!(words(&[2, 1, 3, 3], 3), expected);
        assert_eq!(words(&[2, 0, 1, 2], 3), [(2, 1, 0), (0, 2, 0b10), (3, 2, 0b11)]);
    }

    #[test]
    fn a_code_with_a_gap_or_an_overlap_is_not_complete() {
        assert!(is_complete(&[2, 1, 3, 3], 3));
        for lengths in [&[2, 1, 3][..], &[1, 1, 1], &[4, 1, 2, 4, 4], &[], &[0, 0]] {
            assert!(!is_complete(lengths, 3), "{lengths:?}");
        }
    }

    proptest! {
        /// Without a limit Huffman's algorithm gives the least cost.
        #[test]
        fn lengths_are_complete_and_as_good_as_huffmans(
            weights in proptest::collection::vec(1..1000_u64, 2..60),
        ) {
            let lengths = best_lengths(&weights, 30);
            prop_assert!(is_complete(&lengths, 30));
            let cost = |lengths: &[u8]| -> u64 {
                weights.iter().zip(lengths).map(|(weight, &len)| weight * u64::from(len)).sum()
            };
            let mut heap = weights.clone();
            let mut huffman = 0;
            while heap.len() > 1 {
                heap.sort_unstable_by(|a, b| b.cmp(a));
                let two = heap.pop().unwrap_or(0) + heap.pop().unwrap_or(0);
                huffman += two;
                heap.push(two);
            }
            prop_assert_eq!(cost(&lengths), huffman);
            let limited = best_lengths(&weights, 6);
            prop_assert!(is_complete(&limited, 6));
            prop_assert!(cost(&limited) >= huffman);
        }
    }
}
