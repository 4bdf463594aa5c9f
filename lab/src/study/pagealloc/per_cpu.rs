//! A zone with per-CPU lists, as one CPU meets it.
//!
//! Invariant: it is scattered as the zone without lists is, except for the blocks on the lists.

use crate::apparatus::scattered::{self, Blocks};
use crate::ground::LabError;
use buddy::{AllocError, FreeError, FreedRun, Migratetype, Order, Pfn, SharedZone, Warm};

/// The name of such a zone in rows.
pub(super) const PER_CPU: &str = "per-cpu";
/// The largest order that is listed.
pub(super) const ORDER_MAX: u8 = 3;
/// Frames on the lists of a CPU at most: 1 MiB, as those of a zone that has its memory for itself.
const LISTED_MAX: u32 = 256;

/// The zone.
pub(super) struct PerCpu(SharedZone);

impl PerCpu {
    pub(super) fn new(free_blocks: u32, room: u32) -> Result<PerCpu, LabError> {
        let frames = scattered::frames(free_blocks, room);
        let zone = SharedZone::with_lists(frames, host::cpu::count(), LISTED_MAX);
        scattered::scatter(&mut &zone, free_blocks)?;
        Ok(PerCpu(zone))
    }

    /// Whether all is as it was, once the lists are empty.
    pub(super) fn agrees(&self, free_blocks: u32) -> Result<(), LabError> {
        self.0.drain();
        scattered::is_scattered(&self.0, free_blocks)?;
        self.0.check().map(drop).map_err(LabError::store("check"))
    }
}

impl Blocks for &PerCpu {
    #[inline]
    fn alloc(&mut self, order: Order, _: Migratetype) -> Result<Pfn, AllocError> {
        self.0.try_alloc_movable(host::cpu::current_hint(), order.frames())
    }

    #[inline]
    fn free(&mut self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        let run = FreedRun { pfn, frames: order.frames(), warm: Warm::Resident };
        self.0.free_movable(host::cpu::current_hint(), [run].into_iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_pass_through_the_lists_and_come_back() {
        let zone = PerCpu::new(100, 512).unwrap();
        let order = Order::new(ORDER_MAX).unwrap();
        let block = (&zone).alloc(order, Migratetype::Movable).unwrap();
        (&zone).free(block, order).unwrap();
        assert_eq!(zone.0.listed_frames(), u64::from(order.frames()), "it is listed");
        zone.agrees(100).unwrap();
        (&zone).alloc(Order::ZERO, Migratetype::Movable).unwrap();
        zone.agrees(100).expect_err("a block is missing");
    }
}
