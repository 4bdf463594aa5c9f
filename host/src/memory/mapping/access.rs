//! Properties of a fresh reservation: its access rights, and whether a core file has its contents.
//!
//! Invariant: the two are independent of each other. Lock: none.

/// The access rights of a fresh reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// All of it is open.
    Open,
    /// It reads as zeros, and only opened parts may be written.
    Zeros,
    /// Only opened parts may be read or written.
    Closed,
}

/// Whether a core file has the contents of the reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Core {
    /// It has them, because they are the program's.
    #[cfg_attr(any(loom, miri), expect(dead_code, reason = "there are no regions in a model"))]
    Kept,
    /// It has not: they are ours, compressed pages or data about those.
    LeftOut,
}
