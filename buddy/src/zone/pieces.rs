//! Cutting a run of any length into blocks: each as large as its alignment and the rest allow, and
//! none larger than a pageblock, for each goes where its pageblock's type says (the kernel's
//! `split_large_buddy`).

use crate::numbers::{Order, Pfn};

/// The blocks that make up `frames` frames from `pfn` on, lowest first.
pub(crate) struct Pieces {
    pfn: Pfn,
    frames: u32,
}

impl Pieces {
    pub(crate) fn of(pfn: Pfn, frames: u32) -> Pieces {
        Pieces { pfn, frames }
    }
}

impl Iterator for Pieces {
    type Item = (Pfn, Order);

    fn next(&mut self) -> Option<(Pfn, Order)> {
        if self.frames == 0 {
            return None;
        }
        let mut order = Order::within(self.frames).min(Order::PAGEBLOCK);
        if self.pfn.get() != 0 {
            order = order.min(Order::within(1 << self.pfn.get().trailing_zeros()));
        }
        let piece = (self.pfn, order);
        self.pfn = self.pfn.plus(order.frames());
        self.frames -= order.frames();
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn cut(pfn: u32, frames: u32, expected: &[(u32, u8)]) {
        let pieces = Pieces::of(Pfn::new(pfn), frames);
        let found: Vec<_> = pieces.map(|(pfn, order)| (pfn.get(), order.get())).collect();
        assert_eq!(found, expected, "{frames} frames from {pfn}");
    }

    #[test]
    fn runs_are_cut_at_their_alignment() {
        cut(0, 0, &[]);
        cut(0, 1, &[(0, 0)]);
        cut(0, 5, &[(0, 2), (4, 0)]);
        cut(5, 3, &[(5, 0), (6, 1)]);
        cut(8, 8, &[(8, 3)]);
        cut(1, 6, &[(1, 0), (2, 1), (4, 1), (6, 0)]);
        cut(0, 1024, &[(0, 9), (512, 9)]);
        cut(
            1024,
            1023,
            &[
                (1024, 9),
                (1536, 8),
                (1792, 7),
                (1920, 6),
                (1984, 5),
                (2016, 4),
                (2032, 3),
                (2040, 2),
                (2044, 1),
                (2046, 0),
            ],
        );
    }

    #[test]
    fn pieces_tile_every_run_of_a_small_space() {
        for first in 0..40 {
            for frames in 0..40 {
                let mut at = first;
                for (pfn, order) in Pieces::of(Pfn::new(first), frames) {
                    assert_eq!(pfn.get(), at, "a gap in {frames} frames from {first}");
                    assert!(pfn.is_aligned(order), "{pfn} is not aligned to {order}");
                    at += order.frames();
                }
                assert_eq!(at, first + frames, "the pieces of {frames} frames from {first}");
            }
        }
    }
}
