//! Seeded operations.
//!
//! Invariant: everything here is a function of its seed, so a failure's message is enough to repeat
//! it.

use super::pattern::{Pattern, Rng};
use super::twin::{Op, Twin, Verb};
use crate::contract::Allocation;

const SEEDS: std::ops::Range<u64> = 0..4;
const OPERATIONS: u64 = 600;

/// D2, D3: any operations in any order. Half the ranges are whole pages, a few run over the end.
pub(super) fn operations(twin: &mut Twin) {
    for seed in SEEDS {
        twin.note(format!(", seed {seed}"));
        let mut rng = Rng(seed);
        for step in 0..OPERATIONS {
            let op = any_op(&mut rng, twin.size());
            twin.apply(op);
            if step % 64 == 0 {
                twin.verify();
            }
        }
        twin.verify();
    }
}

/// Any operation on a disk of `size` bytes.
pub(super) fn any_op(rng: &mut Rng, size: u64) -> Op {
    let verb = match rng.below(16) {
        0..=6 => Verb::Write(Pattern::any(rng)),
        7..=9 => Verb::Read,
        10..=11 => Verb::Discard,
        12 => Verb::Zeroes(Allocation::MayUnmap),
        13 => Verb::Zeroes(Allocation::Keep),
        14 => Verb::Prefetch,
        _ => Verb::Extent,
    };
    let (offset, len) = any_range(rng, size);
    Op::new(verb, offset, len)
}

/// A range that is mostly short and now and then long. One in fifty is not cut off at the end.
fn any_range(rng: &mut Rng, size: u64) -> (u64, u64) {
    let (mut offset, mut len) = match rng.below(20) {
        0 => (rng.below(size), rng.below(size)),
        _ => (rng.below(size), rng.below(3 * 4096)),
    };
    if rng.below(2) == 0 {
        (offset, len) = (offset & !4095, len.next_multiple_of(4096));
    }
    if rng.below(50) != 0 {
        len = len.min(size - offset);
    }
    (offset, len)
}
