//! A range of a disk in pieces that fit a buffer.
//!
//! Invariant: the pieces cover the range in order, and none is longer than `PIECE`. All except the
//! last end on a page boundary. Locks: none.

use crate::terms::limits::{PAGE, PIECE};

/// Offsets and lengths of the pieces of a range. All but the last end on a page boundary, so that
/// no page is decoded or compressed twice.
pub(crate) fn pieces(offset: u64, len: u64) -> impl Iterator<Item = (u64, usize)> {
    let end = offset + len;
    let mut at = offset;
    std::iter::from_fn(move || {
        let most = PIECE as u64 - at % PAGE as u64;
        let (from, len) = (at, most.min(end - at));
        at += len;
        (len > 0).then_some((from, len as usize))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_cover_a_range_and_end_on_pages(
            offset in 0..1_u64 << 40,
            len in 0..2_000_000_u64,
        ) {
            let (mut at, end) = (offset, offset + len);
            for (from, len) in pieces(offset, len) {
                prop_assert_eq!(from, at);
                prop_assert!((1..=PIECE).contains(&len));
                at += len as u64;
                let is_last = at == end;
                prop_assert!(is_last || at.is_multiple_of(PAGE as u64), "it ends within a page");
            }
            prop_assert_eq!(at, offset + len, "the whole range");
        }
    }
}
