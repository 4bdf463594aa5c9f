//! Pages of a group as the bits of a word.

use crate::terms::GROUP_PAGES;

const _: () = assert!(GROUP_PAGES == u64::BITS as usize, "a bit of a word for each page");

/// The bits of `count` pages from `first` on.
pub(crate) fn bits(first: usize, count: usize) -> u64 {
    debug_assert!(first + count <= GROUP_PAGES, "pages of the group");
    match count {
        0 => 0,
        _ => u64::MAX >> (GROUP_PAGES - count) << first,
    }
}

/// Runs of set bits: first page and length, from the lowest on.
pub(crate) fn runs(mut pages: u64) -> impl Iterator<Item = (usize, usize)> {
    std::iter::from_fn(move || {
        if pages == 0 {
            return None;
        }
        let first = pages.trailing_zeros() as usize;
        let count = (pages >> first).trailing_ones() as usize;
        pages &= !bits(first, count);
        Some((first, count))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn runs_are_the_bits(pages: u64) {
            let back = runs(pages).fold(0, |all, (first, count)| {
                assert_eq!(all & bits(first, count), 0, "runs do not overlap");
                all | bits(first, count)
            });
            prop_assert_eq!(back, pages);
            let joined = runs(pages).zip(runs(pages).skip(1)).any(|(a, b)| a.0 + a.1 == b.0);
            prop_assert!(!joined, "a run is as long as it can be");
        }
    }
}
