//! Pages of a group as bits of a word: blocks and runs of them.
//!
//! ```text
//!   bit 63                          0
//!       . . x x x . . . . . x . x x      runs from below: 0..2, 3..4, 9..12
//! ```

use super::terms::{GROUP_PAGES, PAGE};

const _: () = assert!(GROUP_PAGES == u64::BITS as usize, "a page of a group is a bit");

/// The number of a page in its group.
pub(crate) fn page_in_group(address: usize) -> usize {
    address / PAGE % GROUP_PAGES
}

/// `count` pages from `first` on, which are in one group.
pub(crate) fn bits(first: usize, count: usize) -> u64 {
    debug_assert!(first + count <= GROUP_PAGES, "pages of one group");
    if count == 0 { 0 } else { u64::MAX >> (GROUP_PAGES - count) << first }
}

/// The aligned `count` pages around a page. `count` is a power of two.
pub(crate) fn aligned(page: usize, count: usize) -> u64 {
    bits(page / count * count, count)
}

/// The pages, one by one.
pub(crate) fn ones(pages: u64) -> impl Iterator<Item = usize> {
    runs(pages).flat_map(|(first, count)| first..first + count)
}

/// The runs of pages: the first page and the number of pages of each.
pub(crate) fn runs(mut pages: u64) -> impl Iterator<Item = (usize, usize)> {
    std::iter::from_fn(move || {
        let first = pages.trailing_zeros() as usize;
        let count = (pages.checked_shr(first as u32)?).trailing_ones() as usize;
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
        fn runs_are_whole_and_apart(pages: u64) {
            let mut again = 0;
            let mut end = None;
            for (first, count) in runs(pages) {
                prop_assert!(count > 0 && end.is_none_or(|end| end < first));
                again |= bits(first, count);
                end = Some(first + count);
            }
            prop_assert_eq!(again, pages);
            let each: Vec<usize> =
                (0..GROUP_PAGES).filter(|at| pages >> at & 1 == 1).collect();
            prop_assert_eq!(ones(pages).collect::<Vec<_>>(), each);
        }
    }

    #[test]
    fn blocks_are_aligned() {
        assert_eq!(aligned(5, 4), 0xf0);
        assert_eq!(aligned(63, 16), 0xffff << 48);
        assert_eq!((aligned(9, 1), aligned(9, 64)), (1 << 9, u64::MAX));
        assert_eq!((bits(0, 64), bits(3, 0)), (u64::MAX, 0));
    }
}
