//! Sizes, and where a page is when it is not in memory.
//!
//! ```text
//!   word   0                     in memory, or never touched
//!          1 tray:25 place:6     on its way out, in a tray
//!          0 slot + 1            in the store
//!          all bits              where it was, but closed
//! ```
//!
//! Invariant: a word names one page's content, and no two words name the same place of a tray.

/// Bytes of a page.
pub(crate) const PAGE: usize = host::PAGE_SIZE;

/// Pages of a group, which is what leaves memory together.
pub(crate) const GROUP_PAGES: usize = 64;

/// Bytes of a group.
pub(crate) const GROUP: usize = GROUP_PAGES * PAGE; // 256 KiB

/// Smaller mappings do not fold.
pub(crate) const MAPPING_MIN: usize = 128 << 10; // 128 KiB
/// The same where the C library's heap is of many mappings, most of which are small.
#[cfg(all(target_arch = "x86_64", not(loom)))]
pub(crate) const SMALL_MIN: usize = 16 << 10; // 16 KiB

const STAGED: u32 = 1 << 31;

/// Bits of a place in a tray.
const PLACE_BITS: u32 = GROUP_PAGES.ilog2(); // 6

const _: () = assert!(GROUP_PAGES == 1 << PLACE_BITS, "every value of the bits is a place");

/// Trays that a word can name. A word of one more would say that a page is closed.
const TRAYS_MAX: u32 = (STAGED >> PLACE_BITS) - 1; // 33554431

/// A page that is not in memory, or no page: the content of the book's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Word(u32);

/// Where the content of a page is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In memory, or nowhere because it was never touched.
    Program,
    /// At a place of a tray.
    Tray(u32, usize),
    /// In the store.
    Slot(u32),
    /// Where it was, or nowhere because it was never touched; but no thread may touch it.
    Closed,
}

impl Word {
    pub(crate) const PROGRAM: Word = Word(0);
    pub(crate) const CLOSED: Word = Word(u32::MAX);

    pub(crate) fn tray(tray: u32, place: usize) -> Word {
        debug_assert!(place < GROUP_PAGES && tray < TRAYS_MAX, "a place of a tray");
        Word(STAGED | tray << PLACE_BITS | place as u32)
    }

    /// The most slots that words can name.
    pub(crate) const SLOTS_MAX: u32 = STAGED - 1;

    pub(crate) fn slot(slot: u32) -> Word {
        debug_assert!(slot < Word::SLOTS_MAX, "a slot of the store");
        Word(slot + 1)
    }

    pub(crate) fn place(self) -> Place {
        match self.0 {
            0 => Place::Program,
            u32::MAX => Place::Closed,
            word if word & STAGED != 0 => {
                Place::Tray((word & !STAGED) >> PLACE_BITS, word as usize % GROUP_PAGES)
            }
            word => Place::Slot(word - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn words_come_back(
            tray in 0..TRAYS_MAX, place in 0..GROUP_PAGES, slot in 0..Word::SLOTS_MAX,
        ) {
            prop_assert_eq!(Word::tray(tray, place).place(), Place::Tray(tray, place));
            prop_assert_eq!(Word::slot(slot).place(), Place::Slot(slot));
        }
    }

    #[test]
    fn no_word_is_memory() {
        assert_eq!(Word::default().place(), Place::Program);
        assert_eq!(Word::default(), Word::PROGRAM);
        assert_eq!(Word::CLOSED.place(), Place::Closed);
    }
}
