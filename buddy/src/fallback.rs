//! Whose free blocks a request may take when its own type has none and nothing can come online.

use crate::lists::{FreeBlock, Which};
use crate::migratetype::Migratetype;
use crate::order::Order;
use crate::state::Warm;
use crate::zone::Zone;

impl Zone {
    /// The smallest free block that fits, of the types `migratetype` falls back to, in their
    /// order; warm before untouched. The pageblock and what is left of the block keep their type:
    /// the kernel's last resort, `__rmqueue_steal`.
    pub(crate) fn fallback(&self, order: Order, migratetype: Migratetype) -> Option<FreeBlock> {
        let of_type = |order, migratetype| {
            let first = |warm| self.lists.first(Which { order, migratetype, warm });
            Warm::ALL.into_iter().find_map(first)
        };
        let types = fallback_types(migratetype);
        order.and_above().find_map(|order| types.iter().find_map(|mt| of_type(order, *mt)))
    }
}

/// The types to try, in order: the kernel's table `fallbacks`. What is in a reserve or isolated
/// is given to nobody else.
fn fallback_types(migratetype: Migratetype) -> &'static [Migratetype] {
    match migratetype {
        Migratetype::Unmovable => &[Migratetype::Reclaimable, Migratetype::Movable],
        Migratetype::Movable => &[Migratetype::Reclaimable, Migratetype::Unmovable],
        Migratetype::Reclaimable => &[Migratetype::Unmovable, Migratetype::Movable],
        Migratetype::HighAtomic | Migratetype::Cma | Migratetype::Isolate => &[],
    }
}
