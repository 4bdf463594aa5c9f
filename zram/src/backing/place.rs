//! Where a page is on the backing disk, in the form that its cell keeps.
//!
//! ```text
//!   40            12 11          0
//!   | block 29      | length - 1  |   a value of a cell
//! ```
//!
//! Such a page needs no memory besides its cell. The length is that of the object it was in memory.
//! If pages are written back compressed, the block holds that many bytes. A length of 4096 says
//! that the page was huge.
//!
//! Invariant: the fields fill the 41 bits of a value.

use host::PAGE_SIZE;
use zsmalloc::VALUE_BITS;

const LEN_BITS: u32 = PAGE_SIZE.ilog2(); // 12
/// Bits of a block's number: the rest of a value.
const BLOCK_BITS: u32 = VALUE_BITS - LEN_BITS; // 29
/// Blocks that can be named: 2 TiB.
pub(crate) const BLOCKS_MAX: u64 = 1 << BLOCK_BITS; // 2^29 blocks, 2 TiB
const _: () = assert!(BLOCK_BITS < u32::BITS, "a block's number is a u32");

/// Where a page is on the backing disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The block of 4096 bytes.
    pub(crate) block: u32,
    /// Bytes of the object that it was in memory, 1 to 4096.
    pub(crate) len: usize,
}

impl Place {
    /// The value of the cell.
    pub(crate) fn value(self) -> u64 {
        debug_assert!((1..=PAGE_SIZE).contains(&self.len), "an object is not empty");
        u64::from(self.block) << LEN_BITS | (self.len as u64 - 1)
    }

    /// The place that a cell's value names.
    pub(crate) fn from_value(value: u64) -> Place {
        let len = (value & ((1 << LEN_BITS) - 1)) as usize + 1;
        Place { block: (value >> LEN_BITS) as u32, len }
    }

    /// Whether the page was stored uncompressed.
    pub(crate) fn is_huge(self) -> bool {
        self.len == PAGE_SIZE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_place_comes_back_from_its_cell(
            block in 0..BLOCKS_MAX as u32,
            len in 1..=PAGE_SIZE,
        ) {
            let place = Place { block, len };
            prop_assert!(place.value() >> VALUE_BITS == 0);
            prop_assert_eq!(Place::from_value(place.value()), place);
        }
    }
}
