//! The client's bits of a cell: what a device notes about a page beside its content.
//!
//! ```text
//!     5    4      3        2      1      0
//!   priority | no codec |  PP  | idle | set aside: with the feature `study`
//! ```
//!
//! They are in the word that is written anyway when the slot is unlocked. So an access that clears
//! `idle` and `PP` costs no store of its own.
//!
//! Invariants
//! - I1 a slot whose content is new has none of them, because content and bits change in one word.
//! - I2 PP is set by the one post-processing that runs, and cleared by every access. A thread that
//!   finds it under the lock knows that the page has not changed since it was set.
//! - I3 a same-filled, shared or written-back page is neither idle nor PP.

use zsmalloc::CellGuard;

use crate::terms::PRIORITIES;

/// The content will be freed. Only a way to free that a study compares sets it.
pub(crate) const MARK: u8 = 1;
/// Marked idle, and not accessed since.
pub(crate) const IDLE: u8 = 1 << 1;
/// Chosen by a post-processing, and not accessed since.
pub(crate) const PP: u8 = 1 << 2;
/// The algorithm of the highest priority could not make it smaller.
pub(crate) const INCOMPRESSIBLE: u8 = 1 << 3;
const PRIORITY_SHIFT: u32 = 4;
const PRIORITY_MASK: u8 = 3 << PRIORITY_SHIFT; // 48

const _: () = assert!(PRIORITY_MASK < 1 << 6, "the client of a cell has six bits");
const _: () = assert!(INCOMPRESSIBLE < 1 << PRIORITY_SHIFT, "no flag is in the priority's field");
const _: () = assert!(PRIORITIES - 1 == 3, "a priority fits its field");

/// Which algorithm compressed the page: 0 is the device's own.
pub(crate) fn priority(bits: u8) -> u8 {
    (bits & PRIORITY_MASK) >> PRIORITY_SHIFT
}

/// The bits of a page compressed with the algorithm of a priority, and nothing else.
pub(crate) fn of_priority(priority: u8) -> u8 {
    (priority << PRIORITY_SHIFT) & PRIORITY_MASK
}

/// The page is accessed: it is no longer idle, and a thread that post-processes it is too late.
pub(crate) fn accessed(slot: &mut CellGuard<'_>) {
    clear(slot, IDLE | PP);
}

/// Whether a slot's content will be freed. The slot reads as zeros.
#[cfg(feature = "study")]
pub(crate) fn is_marked(slot: &CellGuard<'_>) -> bool {
    slot.client() & MARK != 0
}

/// Sets bits.
pub(crate) fn set(slot: &mut CellGuard<'_>, bits: u8) {
    slot.set_client(slot.client() | bits);
}

/// Clears bits.
pub(crate) fn clear(slot: &mut CellGuard<'_>, bits: u8) {
    slot.set_client(slot.client() & !bits);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_priority_disturbs_no_other_bit() {
        for wanted in 0..PRIORITIES as u8 {
            let bits = of_priority(wanted) | MARK | IDLE | PP | INCOMPRESSIBLE;
            assert_eq!(priority(bits), wanted);
            assert_eq!(priority(of_priority(wanted)), wanted);
        }
        assert_eq!(priority(MARK | IDLE | PP | INCOMPRESSIBLE), 0);
    }
}
