//! D6: requests that fail.
//!
//! Invariant: between two requests the vector has the bytes of the disk. It follows the disk after
//! each failure, once every byte was found to be an old one or, within the range, a new one.

use super::pattern::Rng;
use super::random::any_op;
use super::twin::Twin;

const SEED: u64 = 6;
const OPERATIONS: u64 = 400;

/// D6: any operations, of which some fail. Failures begin and end with `fail`.
pub(super) fn operations(twin: &mut Twin, fail: &dyn Fn(bool)) {
    twin.note(format!(", seed {SEED}"));
    let mut rng = Rng(SEED);
    let mut failed = 0;
    for _ in 0..OPERATIONS {
        let mut op = any_op(&mut rng, twin.size());
        op.len = op.len.min(twin.size() - op.offset);
        failed += u64::from(twin.attempt(op, fail));
    }
    twin.require(failed > 0, || "no request failed, so nothing was checked".to_owned());
}
