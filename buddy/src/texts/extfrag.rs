//! `/sys/kernel/debug/extfrag/`: how far free memory is fragmented, order by order.
//!
//! ```text
//! unusable_index   Node 0, zone   Normal 0.000 0.221 ..  1.000      of what is free, the part in
//!                                                                   blocks too small
//! extfrag_index    Node 0, zone   Normal -1.000 -1.000 ..  0.997    -1: a request would succeed;
//!                                                                   towards 0 it fails for want of
//!                                                                   memory, towards 1 because of
//!                                                                   fragmentation
//! ```
//!
//! Computed from counts alone, so from what was published without the lock: an estimate while
//! others work.
//!
//! Invariants
//! - indices are in thousandths, rounded towards zero as the kernel rounds them.
//! - sums have 128 bits: whatever the counts, a thousand times their frames is below 2^88.

use super::buddyinfo::{ZoneTotals, zone_head};
use super::column;
use crate::numbers::{ORDERS, Order};

/// The index of a request that would succeed.
const WOULD_SUCCEED: i64 = -1000;

/// The part of the free frames that no request of `order` can use, in thousandths: 1000 if none is
/// free. `free_blocks` are counts by order. The kernel's `unusable_free_index`.
pub fn unusable_free_index(free_blocks: &[u64; ORDERS], order: Order) -> u64 {
    let free = suitable(free_blocks, Order::ZERO);
    let unusable = free - (suitable(free_blocks, order) << order.get());
    // Part of a whole: at most 1000.
    (unusable * 1000).checked_div(free).unwrap_or(1000) as u64
}

/// Whether a request of `order` would fail, and why, in thousandths. It is -1000 if the request
/// would succeed. It is 0 if nothing is free, near 0 if memory is short, and near 1000 if memory is
/// fragmented. If so few blocks are free that the kernel's formula does not hold, it is negative,
/// but not -1000. Source: the kernel's `__fragmentation_index`.
pub fn fragmentation_index(free_blocks: &[u64; ORDERS], order: Order) -> i64 {
    if suitable(free_blocks, order) > 0 {
        return WOULD_SUCCEED;
    }
    let blocks: u128 = free_blocks.iter().copied().map(u128::from).sum();
    let requests = suitable(free_blocks, Order::ZERO) * 1000 / u128::from(order.frames());
    let share = (1000 + requests).checked_div(blocks);
    // At most 2000, because no block is as large as the request.
    share.map_or(0, |share| 1000 - share as i64)
}

/// Blocks of `order` that could be cut from the free blocks.
fn suitable(free_blocks: &[u64; ORDERS], order: Order) -> u128 {
    let larger = order.and_above().zip(&free_blocks[order.index()..]);
    larger.map(|(larger, blocks)| u128::from(*blocks) << (larger.get() - order.get())).sum()
}

impl ZoneTotals {
    /// Appends the zone's line of `unusable_index`.
    ///
    /// ```
    /// use ramfold_buddy::{Migratetype, Zone, ZoneTotals};
    ///
    /// let mut zone = Zone::new(1024);
    /// zone.alloc_run(1, Migratetype::Movable)?;
    /// let (mut unusable, mut extfrag) = (String::new(), String::new());
    /// let totals = ZoneTotals::new(0, "Normal", &zone.published().read());
    /// totals.render_unusable_index(&mut unusable);
    /// assert!(unusable.starts_with("Node 0, zone   Normal 0.000 "), "one frame can be had");
    /// totals.render_extfrag_index(&mut extfrag);
    /// assert!(extfrag.starts_with("Node 0, zone   Normal -1.000 "), "and nothing is fragmented");
    /// # Ok::<(), ramfold_buddy::AllocError>(())
    /// ```
    pub fn render_unusable_index(&self, out: &mut String) {
        let index = |order| unusable_free_index(&self.free_blocks, order) as i64;
        self.render_indices(index, 1, out);
    }

    /// Appends the zone's line of `extfrag_index`.
    pub fn render_extfrag_index(&self, out: &mut String) {
        self.render_indices(|order| fragmentation_index(&self.free_blocks, order), 2, out);
    }

    /// The kernel's `%{width}d.%03d `, of quotient and remainder by 1000: of a negative index both
    /// have the sign.
    fn render_indices(&self, index: impl Fn(Order) -> i64, width: usize, out: &mut String) {
        zone_head(out, self.node, &self.zone);
        for index in Order::all().map(index) {
            column::signed(out, index / 1000, width, ' ');
            out.push('.');
            column::signed(out, index % 1000, 3, '0');
            out.push(' ');
        }
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of a 6.18 kernel, and the line of buddyinfo beside them.
    struct Live {
        zone: &'static str,
        free_blocks: [u64; ORDERS],
        unusable: &'static str,
        extfrag: &'static str,
    }

    const LIVE: [Live; 2] = [
        Live {
            zone: "DMA",
            free_blocks: [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 3],
            unusable: "0.000 0.000 0.000 0.000 0.000 0.000 0.000 0.000 0.000 0.066 0.200 \n",
            extfrag: "-1.000 -1.000 -1.000 -1.000 -1.000 -1.000 -1.000 -1.000 -1.000 -1.000 \
                      -1.000 \n",
        },
        Live {
            zone: "Normal",
            free_blocks: [4832, 1450, 389, 132, 123, 160, 56, 6, 0, 0, 0],
            unusable: "0.000 0.221 0.354 0.426 0.474 0.565 0.800 0.964 1.000 1.000 1.000 \n",
            extfrag: "-1.000 -1.000 -1.000 -1.000 -1.000 -1.000 -1.000 -1.000  0.988  0.994 \
                      \x200.997 \n",
        },
    ];

    fn lines(zone: &str, free_blocks: [u64; ORDERS]) -> (String, String) {
        let zone = ZoneTotals { node: 0, zone: zone.into(), free_blocks };
        let (mut unusable, mut extfrag) = (String::new(), String::new());
        zone.render_unusable_index(&mut unusable);
        zone.render_extfrag_index(&mut extfrag);
        (unusable, extfrag)
    }

    #[test]
    fn the_indices_are_the_kernels() {
        for Live { zone, free_blocks, unusable, extfrag } in LIVE {
            let line = |cells| format!("Node 0, zone {zone:>8} {cells}");
            assert_eq!(lines(zone, free_blocks), (line(unusable), line(extfrag)), "of {zone}");
        }
    }

    #[test]
    fn with_nothing_free_all_is_unusable_and_nothing_is_fragmented() {
        let (unusable, extfrag) = lines("Normal", [0; ORDERS]);
        assert_eq!(unusable, format!("Node 0, zone   Normal {}\n", "1.000 ".repeat(ORDERS)));
        assert_eq!(extfrag, format!("Node 0, zone   Normal {}\n", " 0.000 ".repeat(ORDERS)));
    }

    /// One free frame: 1 - (1 + 1/2) / 1 for a request of two. The kernel prints it so.
    #[test]
    fn an_index_below_zero_keeps_its_sign_behind_the_point() {
        let mut free_blocks = [0; ORDERS];
        free_blocks[0] = 1;
        let order = Order::new(1).expect("an order of the table");
        assert_eq!(fragmentation_index(&free_blocks, order), -500);
        let (_, extfrag) = lines("Normal", free_blocks);
        let expected = "Node 0, zone   Normal -1.000  0.-500  0.-250  0.-125  0.-62 ";
        assert!(extfrag.starts_with(expected), "{extfrag}");
    }
}
