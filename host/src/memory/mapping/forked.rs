//! Whether a forked child gets the mappings of its parent.
//!
//! ```text
//!   no (MADV_DONTFORK)   until a region may be used by a child: a fork costs nothing
//!   yes                  from then on, also those that exist already
//! ```
//!
//! A child that has a region needs all that leads to its pages: arena, tables, staging. These were
//! made before anybody knew of the region, and by rooms that know no region. A fork copies all of
//! the process, so one answer holds for all of it, and this is a static.
//!
//! Invariant: the list has the mappings that are left to this answer. Lock: the list's, of rank
//! `Mappings`.

use super::system;
use crate::locks::{Lock, Rank};
use crate::sync::fork::go_inside;
use std::collections::BTreeMap;
use std::ptr::NonNull;

struct Forked {
    inherits: bool,
    /// Start and length in bytes.
    mappings: BTreeMap<usize, usize>,
}

static FORKED: Lock<Forked> =
    Lock::new(Rank::Mappings, Forked { inherits: false, mappings: BTreeMap::new() });

/// Makes a forked child have all mappings of this process that are left to this answer.
pub(crate) fn inherit_all() {
    let _inside = go_inside();
    let mut forked = FORKED.lock();
    forked.inherits = true;
    for (&start, &len) in &forked.mappings {
        if let Some(start) = NonNull::new(std::ptr::without_provenance_mut(start)) {
            // SAFETY: the list has live mappings only.
            unsafe { system::inherit(start, len) };
        }
    }
}

/// Leaves a new mapping to the answer.
pub(super) fn enter(start: NonNull<u8>, len: usize) {
    let mut forked = FORKED.lock();
    forked.mappings.insert(start.addr().get(), len);
    if forked.inherits {
        // SAFETY: the caller has just made it.
        unsafe { system::inherit(start, len) };
    }
}

/// Takes a mapping off the list. True if a child would get it.
pub(super) fn leave(start: NonNull<u8>) -> bool {
    let mut forked = FORKED.lock();
    forked.mappings.remove(&start.addr().get());
    forked.inherits
}
