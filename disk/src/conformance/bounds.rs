//! Where a request may lie: every verb over a table of awkward ranges.

use super::pattern::Pattern;
use super::twin::{Op, Twin, Verb};
use crate::contract::Allocation;

const VERBS: [Verb; 7] = [
    Verb::Read,
    Verb::Write(Pattern::Random(7)),
    Verb::Discard,
    Verb::Zeroes(Allocation::MayUnmap),
    Verb::Zeroes(Allocation::Keep),
    Verb::Prefetch,
    Verb::Extent,
];

/// Bytes a buffer may have in these tests.
const BUFFER_MAX: u64 = 1 << 24; // 16 MiB

/// Ranges within a disk of `size` bytes that begin or end beside a boundary: of a page, of 512
/// pages, of the disk.
fn awkward(size: u64) -> impl Iterator<Item = (u64, u64)> {
    let table = 512 * 4096;
    let marks = [0, 1, 511, 512, 4095, 4096, 4097, 8192, 12289, table - 1, table, 2 * table + 1];
    let from_end = [0, 1, 4095, 4096, 4097].map(|back| size.saturating_sub(back));
    let marks: Vec<u64> = marks.into_iter().chain(from_end).filter(|&mark| mark <= size).collect();
    let pairs: Vec<_> = marks
        .iter()
        .flat_map(|&start| marks.iter().map(move |&end| (start, end)))
        .filter(|(start, end)| start < end)
        .map(|(start, end)| (start, end - start))
        .collect();
    pairs.into_iter()
}

/// D2: every verb changes exactly the bytes of its range. The disk is full before each change, so
/// that a byte zeroed too many shows as well as one too few.
pub(super) fn ranges(twin: &mut Twin) {
    twin.fill();
    for (offset, len) in awkward(twin.size()) {
        for verb in VERBS {
            twin.apply(Op::new(verb, offset, len));
            neighbourhood(twin, offset, len);
        }
        twin.refill(offset, len);
    }
    twin.verify();
}

/// Reads the range with a page more on both sides.
fn neighbourhood(twin: &mut Twin, offset: u64, len: u64) {
    let start = offset.saturating_sub(4096);
    let end = (offset + len + 4096).min(twin.size());
    twin.apply(Op::new(Verb::Read, start, end - start));
    twin.extents(start, end - start);
}

/// D3: a request that does not lie within the disk fails with `OutOfRange`, and changes nothing.
/// One offset wraps past `u64::MAX`, where a sum of offset and length looks small.
pub(super) fn beyond_the_end(twin: &mut Twin) {
    twin.fill();
    let size = twin.size();
    let rows = [
        (size, 1),
        (size.saturating_sub(1), 2),
        (0, size + 1),
        (size + 1, 0),
        (size + 4096, 4096),
        (1 << 63, 4096),
        (u64::MAX, 0),
        (u64::MAX, 1),
        (u64::MAX - 4095, 4096),
        (u64::MAX - 4095, 8192),
        (4096, u64::MAX),
        (1, u64::MAX),
    ];
    for (offset, len) in rows {
        for op in VERBS.map(|verb| Op::new(verb, offset, len)) {
            if len <= BUFFER_MAX || !op.has_buffer() {
                twin.apply(op);
            }
        }
    }
    twin.verify();
}

/// D3: an empty range is within the disk up to and including its end, and does nothing.
pub(super) fn empty(twin: &mut Twin) {
    twin.fill();
    let size = twin.size();
    for offset in [0, 1, size / 2, size.saturating_sub(1), size] {
        VERBS.into_iter().for_each(|verb| twin.apply(Op::new(verb, offset, 0)));
    }
    twin.verify();
}
