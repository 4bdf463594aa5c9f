//! Which pages are stored: all, or evenly spaced ones if all would not fit or take too long.
//!
//! ```text
//!   of = 10, stride = 3     x . . x . . x . . x      4 pages
//! ```
//!
//! Invariant: a thinner sample has a greater stride, so the search for one that fits ends.
//! Locks: none.

use crate::line::Failure;

/// The most pages that are stored: 1 GiB, so that all ways together take minutes. So large a sample
/// says as much as all pages would.
const PAGES_MAX: u64 = 1 << 18; // 262144 pages, 1 GiB

/// Every `stride`-th page of `of`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    of: u64,
    stride: u64,
    /// The source itself has only every so many of the pages that there were.
    source_stride: u64,
}

impl Sample {
    /// As many of `of` pages as may be stored. The source has every `source_stride`-th page.
    pub(super) fn of(of: u64, source_stride: u64) -> Sample {
        Sample { of, stride: of.div_ceil(PAGES_MAX).max(1), source_stride }
    }

    /// A sample that should fit. This one filled the memory after `stored` pages.
    pub(super) fn thinned(self, stored: u64) -> Result<Sample, Failure> {
        let stride = thinner(self.stride, self.pages(), stored);
        match stride.filter(|&stride| stride < self.of) {
            Some(stride) => Ok(Sample { stride, ..self }),
            None => Err(Failure::Failed("not enough memory is available for a sample".to_owned())),
        }
    }

    /// Pages in the sample.
    pub(super) fn pages(self) -> u64 {
        self.of.div_ceil(self.stride)
    }

    /// The numbers in the source of the sample's pages.
    pub(super) fn places(self) -> impl Iterator<Item = u64> {
        (0..self.pages()).map(move |index| index * self.stride)
    }

    /// Whether pages are left out.
    pub(super) fn is_partial(self) -> bool {
        self.every() > 1
    }

    /// One of so many pages that there were is in the sample.
    pub(super) fn every(self) -> u64 {
        self.stride * self.source_stride
    }
}

/// The stride at which all pages should fit, with a tenth to spare. At `stride` there were `pages`
/// pages, of which `stored` fitted. `None` if none fitted.
pub(super) fn thinner(stride: u64, pages: u64, stored: u64) -> Option<u64> {
    let wanted = u128::from(stride) * u128::from(pages) * 11;
    let wanted = wanted.div_ceil(u128::from(stored).checked_mul(10).filter(|&room| room > 0)?);
    u64::try_from(wanted).ok().map(|wanted| wanted.max(stride + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_sample_spans_what_there_is() {
        let all = Sample::of(10, 1);
        assert_eq!((all.pages(), all.is_partial()), (10, false));
        let some = all.thinned(4).unwrap();
        assert_eq!(some.places().collect::<Vec<_>>(), [0, 3, 6, 9], "10 * 1.1 / 4, rounded up");
        assert!(some.is_partial());
    }

    proptest! {
        /// As many pages as fitted at one stride also fit at the next, if they are as dense.
        #[test]
        fn the_thinner_sample_would_have_fitted(
            of in 2..1_u64 << 40, stride in 1..1000_u64, part in 0.0..1.0_f64,
        ) {
            let pages = of.div_ceil(stride);
            let stored = (pages as f64 * part) as u64;
            let Some(next) = thinner(stride, pages, stored) else {
                prop_assert_eq!(stored, 0, "only what fits nowhere cannot be thinned");
                return Ok(());
            };
            prop_assert!(next > stride);
            let rest = pages.saturating_mul(stride).div_ceil(next);
            prop_assert!(rest <= stored.max(1) + 1, "{rest} pages where {stored} fitted");
        }
    }

    #[test]
    fn each_thinning_makes_progress_or_ends() {
        let mut sample = Sample::of(1 << 40, 1);
        assert!(sample.pages() <= PAGES_MAX, "{}", sample.pages());
        for _ in 0..64 {
            let Ok(thinned) = sample.thinned(sample.pages() - 1) else { return };
            assert!(thinned.stride > sample.stride);
            sample = thinned;
            if sample.pages() == 1 {
                break;
            }
        }
        assert!(Sample::of(10, 1).thinned(0).is_err(), "nothing fits");
    }
}
