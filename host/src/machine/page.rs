//! The page, the unit of everything in this crate.
//!
//! Invariant: the system's page has the same size; a reservation fails otherwise. Lock: none.

/// Bytes in a page of client data, and in a frame.
pub const PAGE_SIZE: usize = 4096; // 4 KiB

const _: () = assert!(PAGE_SIZE.is_power_of_two(), "offsets are split with masks");
