//! What a disk says about ranges without reading them.

use super::twin::{Op, Twin, Verb};
use crate::contract::ExtentKind;

/// D7: extents cover the range that was asked about, and never call data zeros. Questions lie over
/// pages of both kinds in many ways. Each extent is compared with the bytes as soon as it is
/// returned.
pub(super) fn agree(twin: &mut Twin) {
    twin.fill();
    let size = twin.size();
    twin.extents(0, size);
    checkerboard(twin);
    for (offset, len) in [(0, 1), (1, 1), (4095, 2), (100, 8192), (size - 1, 1)] {
        if offset + len <= size {
            twin.extents(offset, len);
        }
    }
    twin.apply(Op::new(Verb::Discard, 0, size));
    twin.extents(0, size);
}

/// Sparse: a page that was never written is a hole.
pub(super) fn fresh_holes(twin: &mut Twin) {
    require_all(twin, ExtentKind::Hole, "what was never written must be a hole");
}

/// Sparse: each page is a hole or data by itself, and a disk that is discarded is one hole.
pub(super) fn discarded_holes(twin: &mut Twin) {
    twin.fill();
    require_all(twin, ExtentKind::Data, "what was written without a zero must be data");
    checkerboard(twin);
    for page in 0..twin.size() / 4096 {
        let expected = if page % 2 == 0 { ExtentKind::Hole } else { ExtentKind::Data };
        for (_, kind) in twin.extents(page * 4096, 4096) {
            twin.require(kind == expected, || format!("page {page}: {kind:?}, not {expected:?}"));
        }
    }
    twin.apply(Op::new(Verb::Discard, 0, twin.size()));
    require_all(twin, ExtentKind::Hole, "what was discarded must be a hole");
}

fn require_all(twin: &Twin, expected: ExtentKind, complaint: &str) {
    let all = twin.extents(0, twin.size()).iter().all(|(_, kind)| *kind == expected);
    twin.require(all, || complaint.to_owned());
}

/// Discards every other page.
fn checkerboard(twin: &mut Twin) {
    for page in (0..twin.size() / 4096).step_by(2) {
        twin.apply(Op::new(Verb::Discard, page * 4096, 4096));
    }
}
