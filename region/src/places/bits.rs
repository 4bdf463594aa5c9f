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

/// All pages of the aligned blocks of `size` pages that `pages` lie in. A size divides the pages of
/// a group.
pub(crate) fn blocks_of(pages: u64, size: usize) -> u64 {
    let blocks = (0..GROUP_PAGES).step_by(size).map(|first| bits(first, size));
    blocks.filter(|block| block & pages != 0).fold(0, |all, block| all | block)
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
        fn blocks_have_each_page_and_the_pages_beside_it(pages: u64, size in 0u32..=6) {
            let size = 1usize << size;
            let naive = (0..GROUP_PAGES).filter(|page| {
                let block = page - page % size..page - page % size + size;
                block.into_iter().any(|page| pages >> page & 1 == 1)
            });
            prop_assert_eq!(blocks_of(pages, size), naive.fold(0, |all, page| all | 1 << page));
        }

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
