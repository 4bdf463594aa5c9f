//! Numbers of cells and of leaves, and the arithmetic between them.
//!
//! ```text
//!    31                      9 8             0
//!    [          leaf          |  cell in it   ]      leaf 0 is never used: 0 is no cell's number
//! ```
//!
//! Invariant: a number says nothing about the cell. Whose it is, is asked at each use.

/// Cells in a leaf: 4096 bytes, 2 MiB of a disk.
pub const LEAF_CELLS: usize = if cfg!(loom) { 2 } else { 512 };

/// Number of a leaf; 0 is never one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeafId(u32);

impl LeafId {
    /// The leaf's cell `index`; `None` past the last cell there can be.
    pub(crate) fn cell(self, index: usize) -> Option<CellNumber> {
        self.0.checked_mul(LEAF_CELLS as u32)?.checked_add(index as u32).map(CellNumber)
    }

    /// The number, for keeping it in a word of one's own.
    pub fn get(self) -> u32 {
        self.0
    }

    /// A leaf by number; `None` for 0. Whether it is the caller's is found out at each access.
    pub fn new(number: u32) -> Option<LeafId> {
        (number != 0).then_some(LeafId(number))
    }

    /// Its index in a table with an item for each leaf.
    #[inline]
    pub(crate) fn table_index(self) -> usize {
        self.0 as usize
    }
}

/// The number of a cell in its memory: 512 to a leaf. Like a leaf's, any code may write it down,
/// and none can misuse it. A cell behind a handle is an entry, and this is its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CellNumber(u32);

impl CellNumber {
    /// No cell.
    pub(crate) const NONE: CellNumber = CellNumber(0);

    /// A cell by number.
    #[inline]
    pub const fn new(number: u32) -> CellNumber {
        CellNumber(number)
    }

    /// The number.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The leaf it is in; `None` for the numbers below the first leaf's.
    pub fn leaf(self) -> Option<LeafId> {
        LeafId::new(self.0 / LEAF_CELLS as u32)
    }

    /// Which cell of its leaf it is.
    pub fn index(self) -> usize {
        self.0 as usize % LEAF_CELLS
    }

    /// The cell, unless it is [`CellNumber::NONE`].
    #[inline]
    pub(crate) fn some(self) -> Option<CellNumber> {
        (self != CellNumber::NONE).then_some(self)
    }

    /// The cell, and none is left behind.
    #[inline]
    pub(crate) fn take(&mut self) -> CellNumber {
        std::mem::replace(self, CellNumber::NONE)
    }

    /// The cell so many further up, which the caller knows to be in the same leaf.
    #[inline]
    pub(crate) const fn plus(self, cells: u32) -> CellNumber {
        CellNumber(self.0 + cells)
    }

    /// Its index in a table with an item for each cell.
    #[inline]
    pub(crate) const fn table_index(self) -> usize {
        self.0 as usize
    }

    /// The index of its leaf in a table with an item for each leaf.
    #[inline]
    pub(crate) const fn leaf_table_index(self) -> usize {
        self.0 as usize / LEAF_CELLS
    }
}

impl std::fmt::Display for CellNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_cell_is_the_one_of_its_leaf(
            leaf in 1..u32::MAX / LEAF_CELLS as u32, index in 0..LEAF_CELLS,
        ) {
            let leaf = LeafId::new(leaf).expect("not 0");
            let cell = leaf.cell(index).expect("there are so many");
            prop_assert_eq!((cell.leaf(), cell.index()), (Some(leaf), index));
            prop_assert_eq!(cell.leaf_table_index(), leaf.table_index());
            prop_assert_eq!(cell.table_index(), leaf.table_index() * LEAF_CELLS + index);
            prop_assert_eq!(leaf.cell(0).map(|first| first.plus(index as u32)), Some(cell));
        }
    }

    #[test]
    fn no_leaf_has_number_0_nor_cells_past_the_last_number() {
        assert_eq!((LeafId::new(0), CellNumber::NONE.leaf()), (None, None));
        let last = LeafId::new(u32::MAX).expect("not 0");
        assert_eq!(last.cell(0), None);
        let mut cell = CellNumber::new(7);
        assert_eq!((cell.take(), cell), (CellNumber::new(7), CellNumber::NONE));
        assert_eq!((cell.some(), CellNumber::new(7).some()), (None, Some(CellNumber::new(7))));
    }
}
