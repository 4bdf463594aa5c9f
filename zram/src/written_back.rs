//! A written-back page as its cell keeps it.
//!
//! ```text
//!   40            12 11          0
//!   | block 29      | length - 1  |   value of a cell with the tag WRITTEN_BACK
//! ```
//!
//! Such a page needs no memory beside its cell. The length is that of the object it was: of what
//! the block holds if pages are written back compressed, and 4096 says that it was huge.
//!
//! Invariant: the fields fill the 41 bits of a value.

use zsmalloc::{Content, PAGE_SIZE};

/// Tag of a cell whose page is on the backing disk; those below are same-filled pages'.
const TAG: u8 = 3;
const LEN_BITS: u32 = PAGE_SIZE.ilog2(); // 12
/// Bits of a block's number.
const BLOCK_BITS: u32 = 29;
/// Blocks that can be named: 2 TiB.
pub(crate) const BLOCKS_MAX: u64 = 1 << BLOCK_BITS;
const _: () = assert!(BLOCK_BITS + LEN_BITS == 41, "a cell's value has 41 bits");

/// Where a page is on the backing disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WrittenBack {
    /// The block of 4096 bytes.
    pub(crate) block: u32,
    /// Bytes of the object it was, 1 to 4096.
    pub(crate) len: usize,
}

impl WrittenBack {
    /// Where the page of a cell is; `None` where it is not on the backing disk.
    pub(crate) fn of(content: Content) -> Option<WrittenBack> {
        match content {
            Content::Value { tag: TAG, value } => Some(WrittenBack {
                block: (value >> LEN_BITS) as u32,
                len: (value & ((1 << LEN_BITS) - 1)) as usize + 1,
            }),
            _ => None,
        }
    }

    /// Tag and value of the cell.
    pub(crate) fn to_cell(self) -> (u8, u64) {
        debug_assert!((1..=PAGE_SIZE).contains(&self.len), "an object is not empty");
        (TAG, u64::from(self.block) << LEN_BITS | (self.len as u64 - 1))
    }

    /// It was stored uncompressed.
    pub(crate) fn is_huge(self) -> bool {
        self.len == PAGE_SIZE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use codec::same::Words;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_place_comes_back_from_its_cell(
            block in 0..BLOCKS_MAX as u32,
            len in 1..=PAGE_SIZE,
        ) {
            let place = WrittenBack { block, len };
            let (tag, value) = place.to_cell();
            prop_assert!(value >> 41 == 0);
            prop_assert_eq!(WrittenBack::of(Content::Value { tag, value }), Some(place));
        }
    }

    #[test]
    fn a_same_filled_page_is_not_on_the_backing_disk() {
        let words = Words::default();
        for word in [0, u64::MAX, 0x1234_5678_9abc_def0] {
            let same = words.intern(word).expect("the table is empty");
            let content = Content::Value { tag: same.tag, value: same.value };
            assert_eq!(WrittenBack::of(content), None);
        }
        assert_eq!(WrittenBack::of(Content::Empty), None);
    }
}
