//! The content of a disk: when it is new, and after pages of every kind were written.

use super::pattern::Pattern;
use super::twin::{Op, Twin, Verb};
use crate::contract::Allocation;

/// D1, D2: a new disk is all zeros, can be written, and names a usable block size.
pub(super) fn fresh(twin: &mut Twin) {
    let block = twin.disk.block_size();
    let usable = block.is_power_of_two() && block >= 512;
    twin.require(usable, || format!("a block size of {block} is no power of two from 512 up"));
    twin.require(!twin.disk.read_only(), || "is read-only".to_owned());
    twin.verify();
    let outcome = twin.disk.flush();
    twin.require(outcome.is_ok(), || format!("flush of a fresh disk failed: {outcome:?}"));
}

/// D2: pages of kinds that a compressing store treats differently, one written over another in
/// every order.
pub(super) fn patterns(twin: &mut Twin) {
    let sorts = [
        Verb::Write(Pattern::Byte(0)),
        Verb::Write(Pattern::Byte(0xFF)),
        Verb::Write(Pattern::Word(0x0123_4567_89AB_CDEF)),
        Verb::Write(Pattern::Text(3)),
        Verb::Write(Pattern::Random(5)),
        Verb::Discard,
        Verb::Zeroes(Allocation::Keep),
    ];
    let page = twin.size().min(4096);
    let offset = twin.size() - page;
    for first in sorts {
        for second in sorts {
            twin.apply(Op::new(first, offset, page));
            twin.apply(Op::new(second, offset, page));
            twin.apply(Op::new(Verb::Read, offset, page));
            twin.extents(offset, page);
        }
        one_odd_byte(twin, offset, page);
    }
    let outcome = twin.disk.flush();
    twin.require(outcome.is_ok(), || format!("flush failed: {outcome:?}"));
    twin.verify();
}

/// A page whose last byte alone differs is not a page of one repeated value.
fn one_odd_byte(twin: &mut Twin, offset: u64, page: u64) {
    for byte in [0, 0xFF] {
        twin.apply(Op::new(Verb::Write(Pattern::Byte(byte)), offset, page));
        twin.apply(Op::new(Verb::Write(Pattern::Byte(1)), offset + page - 1, 1));
        twin.apply(Op::new(Verb::Read, offset, page));
        twin.extents(offset, page);
    }
}
