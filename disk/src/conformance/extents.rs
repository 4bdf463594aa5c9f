//! What a disk says about ranges without reading them.

use super::twin::{Op, Twin, Verb};
use crate::ExtentKind;

/// Extents cover what they are asked about, never call data zeros, and show discarded pages as
/// holes (each extent is compared with the bytes as it is asked for).
pub(super) fn agree(twin: &mut Twin) {
    twin.fill();
    let size = twin.size();
    let data = twin.extents(0, size).iter().all(|(_, kind)| *kind == ExtentKind::Data);
    twin.require(data, || "what was written without a zero must be data".to_owned());
    checkerboard(twin);
    for (offset, len) in [(0, 1), (1, 1), (4095, 2), (100, 8192), (size - 1, 1)] {
        if offset + len <= size {
            twin.extents(offset, len);
        }
    }
    twin.apply(Op::new(Verb::Discard, 0, size));
    let hole = twin.extents(0, size).iter().all(|(_, kind)| *kind == ExtentKind::Hole);
    twin.require(hole, || "what was discarded must be a hole".to_owned());
}

/// Discards every other page; each page then is of its own kind, and asked about alone, says so.
fn checkerboard(twin: &mut Twin) {
    let pages = twin.size() / 4096;
    for page in (0..pages).step_by(2) {
        twin.apply(Op::new(Verb::Discard, page * 4096, 4096));
    }
    for page in 0..pages {
        let expected = if page % 2 == 0 { ExtentKind::Hole } else { ExtentKind::Data };
        for (_, kind) in twin.extents(page * 4096, 4096) {
            twin.require(kind == expected, || format!("page {page}: {kind:?}, not {expected:?}"));
        }
    }
}
