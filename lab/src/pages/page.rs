//! A page: how long it is, and whether it repeats one word.

/// The unit of every store here.
pub(crate) const PAGE_SIZE: usize = 4096;

/// Whether a page repeats one 8-byte word, so that a store keeps nothing of it.
pub(crate) fn is_same_filled(page: &[u8]) -> bool {
    page[8..] == page[..page.len() - 8]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn same_filled_is_one_word_repeated(word: [u8; 8], at in 0..PAGE_SIZE, flip in 0u8..) {
            let mut page = word.repeat(PAGE_SIZE / 8);
            prop_assert!(is_same_filled(&page));
            page[at] ^= flip;
            let naive = page.chunks(8).all(|chunk| chunk == &page[..8]);
            prop_assert_eq!(is_same_filled(&page), naive);
        }
    }
}
