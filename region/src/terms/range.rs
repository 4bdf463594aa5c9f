//! Ranges of bytes that are whole pages.

use super::error::RegionError;
use host::PAGE_SIZE;
use std::ops::{Bound, Range, RangeBounds};

/// How ranges of bytes become ranges of pages.
pub(crate) struct PageRange;

impl PageRange {
    /// The pages of a range whose bounds are bounds of pages.
    pub(crate) fn whole(range: Range<usize>, len: usize) -> Result<Range<usize>, RegionError> {
        let Range { start, end } = range;
        if start > end || end > len {
            return Err(RegionError::OutOfRange { start, end, len });
        }
        match [start, end].into_iter().find(|byte| !byte.is_multiple_of(PAGE_SIZE)) {
            Some(byte) => Err(RegionError::Unaligned { byte }),
            None => Ok(start / PAGE_SIZE..end / PAGE_SIZE),
        }
    }

    /// The two ends of a range, which may be backwards or past `len`. An open range ends at `len`.
    pub(crate) fn bounds(range: &impl RangeBounds<usize>, len: usize) -> Range<usize> {
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&last) => last.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => len,
        };
        start..end
    }

    /// The pages that a range touches.
    pub(crate) fn touched(range: &Range<usize>) -> Range<usize> {
        range.start / PAGE_SIZE..range.end.div_ceil(PAGE_SIZE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_those_of_pages() {
        assert_eq!(PageRange::whole(4096..8192, 16384).ok(), Some(1..2));
        assert_eq!(PageRange::whole(0..0, 16384).ok(), Some(0..0));
        let refused = |range| PageRange::whole(range, 16384).unwrap_err().to_string();
        assert!(refused(1..4096).starts_with("byte 1 "));
        assert!(refused(0..4097).starts_with("byte 4097 "));
        assert!(refused(0..20480).contains("16384 bytes"));
        #[expect(clippy::reversed_empty_ranges, reason = "what is to be refused")]
        let backwards = 8192..4096;
        assert!(refused(backwards).contains("8192..4096"));
        assert_eq!(PageRange::touched(&(4095..4097)), 0..2);
    }

    #[test]
    fn open_ends_are_those_of_the_whole() {
        assert_eq!(PageRange::bounds(&.., 9), 0..9);
        assert_eq!(PageRange::bounds(&(2..), 9), 2..9);
        assert_eq!(PageRange::bounds(&(..=4), 9), 0..5);
        let after_two = (Bound::Excluded(2), Bound::Included(usize::MAX));
        assert_eq!(PageRange::bounds(&after_two, 9), 3..usize::MAX);
    }
}
