//! Ranges that the server may still change, although no request waits for it.
//!
//! Invariant: ranges neither overlap nor touch. So there are at most as many as half the disk's
//! blocks, however many are added.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of bytes: where each range of them begins, and where it ends.
#[derive(Debug, Default)]
pub(super) struct Unsettled(BTreeMap<u64, u64>);

impl Unsettled {
    pub(super) fn add(&mut self, range: Range<u64>) {
        let Range { mut start, mut end } = range;
        while let Some((&first, &last)) = self.0.range(..=end).next_back() {
            if last < start {
                break;
            }
            self.0.remove(&first);
            (start, end) = (start.min(first), end.max(last));
        }
        self.0.insert(start, end);
    }

    /// Whether a byte of the range is in the set.
    pub(super) fn overlaps(&self, range: &Range<u64>) -> bool {
        let last = self.0.range(..range.end).next_back();
        !range.is_empty() && last.is_some_and(|(_, &end)| end > range.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compares with a list of the bytes.
        #[test]
        fn a_byte_is_in_the_set_if_it_was_added(
            added in prop::collection::vec((0u64..60, 1u64..12), 0..12),
        ) {
            let (mut set, mut bytes) = (Unsettled::default(), [false; 80]);
            for (start, len) in added {
                set.add(start..start + len);
                bytes[start as usize..(start + len) as usize].fill(true);
                let pieces = bytes.chunk_by(|one, next| one == next).filter(|piece| piece[0]);
                prop_assert_eq!(set.0.len(), pieces.count(), "ranges that touch are one");
            }
            for start in 0..80 {
                for end in start..80 {
                    let expected = bytes[start..end].contains(&true);
                    prop_assert_eq!(set.overlaps(&(start as u64..end as u64)), expected);
                }
            }
        }
    }
}
