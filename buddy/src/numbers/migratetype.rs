//! What a pageblock is used for.
//!
//! ```text
//!                 served from it, in this order                      changes sides   its runs
//!    Unmovable    Unmovable, then Reclaimable, Movable requests      yes             stay
//!    Movable      Movable, then Unmovable, Reclaimable requests      yes             move
//!    Reclaimable  Reclaimable, then Unmovable, Movable requests      yes             are dropped
//!    HighAtomic   HighAtomic requests                                by unreserve    stay
//!    CMA          CMA and Movable requests                           no              stay or move
//!    Isolate      nobody                                             undo_isolation  leave
//! ```
//!
//! Invariant: a type's number is its place in `ALL`. The state bytes of frames and every table by
//! type rely on that. Nothing changes it while the program runs.

use std::fmt;

/// The use of a pageblock, after which its free blocks are grouped: so that what cannot move does
/// not spread over pageblocks that could otherwise be emptied and returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Migratetype {
    /// Stays where it is until freed.
    Unmovable,
    /// Its owner can move it on request.
    Movable,
    /// Its owner can drop it on request.
    Reclaimable,
    /// A reserve for allocations that must not fail.
    HighAtomic,
    /// Set aside for long contiguous runs.
    Cma,
    /// Being emptied or returned: nothing may be allocated from it.
    Isolate,
}

impl Migratetype {
    /// How many migratetypes there are.
    pub const COUNT: usize = 6;

    /// All of them, in the order in which the kernel's tables list them.
    pub const ALL: [Migratetype; Migratetype::COUNT] = [
        Migratetype::Unmovable,
        Migratetype::Movable,
        Migratetype::Reclaimable,
        Migratetype::HighAtomic,
        Migratetype::Cma,
        Migratetype::Isolate,
    ];

    /// The name as /proc/pagetypeinfo prints it.
    pub const fn name(self) -> &'static str {
        match self {
            Migratetype::Unmovable => "Unmovable",
            Migratetype::Movable => "Movable",
            Migratetype::Reclaimable => "Reclaimable",
            Migratetype::HighAtomic => "HighAtomic",
            Migratetype::Cma => "CMA",
            Migratetype::Isolate => "Isolate",
        }
    }

    /// Whether it is one of the three types among which whole pageblocks may change sides.
    pub(crate) const fn is_ordinary(self) -> bool {
        match self {
            Migratetype::Unmovable | Migratetype::Movable | Migratetype::Reclaimable => true,
            Migratetype::HighAtomic | Migratetype::Cma | Migratetype::Isolate => false,
        }
    }

    /// Whether the owner of a run asked for as this type lets it leave its frames: moves it, drops
    /// it, or has it only for a moment.
    pub(crate) const fn can_leave(self) -> bool {
        match self {
            Migratetype::Movable | Migratetype::Reclaimable | Migratetype::Isolate => true,
            Migratetype::Unmovable | Migratetype::HighAtomic | Migratetype::Cma => false,
        }
    }

    /// Whether two whole free pageblocks of these types may become one block.
    pub(crate) fn merges_with(self, other: Migratetype) -> bool {
        self == other || (self.is_ordinary() && other.is_ordinary())
    }

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Migratetype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_index_order() {
        for (index, migratetype) in Migratetype::ALL.into_iter().enumerate() {
            assert_eq!(migratetype.index(), index, "{migratetype} is out of place");
        }
    }

    #[test]
    fn names_pad_like_the_kernels_columns() {
        assert_eq!(format!("{:>12}", Migratetype::Cma), "         CMA");
    }

    #[test]
    fn only_ordinary_types_change_sides() {
        use Migratetype::*;
        assert!(Movable.merges_with(Unmovable));
        assert!(Cma.merges_with(Cma));
        assert!(!Movable.merges_with(Cma));
        assert!(!Isolate.merges_with(Reclaimable));
    }
}
