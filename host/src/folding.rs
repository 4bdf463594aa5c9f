//! Ranges whose missing pages are faults, and the ways in which their pages leave and come back.
//!
//! ```text
//!   Span, SpanMemory     a range of pages: the half that folds it, the half that lends its bytes
//!     | `- SpanAddress   instead of that half: where the bytes are, for other languages
//!     `-- FaultPath      one way for many spans --> Uffd: requests of a userfaultfd
//!                                               `-> Closing: Protection: mprotect, /proc/self/mem
//!                                                            Guards: guards, a memory file
//!   transfer             repeats a request that the system stopped in the middle
//!   Home                 tells a forked child from the process that opened the way
//! ```
//!
//! Invariants: S1 and S2 of [`Span`]. The room above, [`fault`](crate::fault), serves the faults.
//! Lock: none.

#[expect(unsafe_code, reason = "discards pages of a span that lends none")]
mod address;
#[expect(unsafe_code, reason = "copies between closed pages and open ones")]
mod closing;
#[expect(unsafe_code, reason = "asks the system which pages are in memory")]
mod contents;
mod error;
mod fault_path;
#[expect(unsafe_code, reason = "guards pages, and discards them from their file")]
mod guards;
#[expect(unsafe_code, reason = "an atomic byte in a mapping")]
mod home;
#[expect(unsafe_code, reason = "puts a file in the place of another")]
mod marked;
#[expect(unsafe_code, reason = "closes and opens pages")]
mod protection;
#[expect(unsafe_code, reason = "lends the bytes of a range, and moves its pages")]
mod span;
mod transfer;
#[expect(unsafe_code, reason = "requests of a userfaultfd")]
mod uffd;

pub use address::SpanAddress;
pub use contents::SEGMENT_PAGES;
pub(crate) use error::Signal;
pub use error::{FaultError, FaultMode};
pub use fault_path::FaultPath;
pub(crate) use fault_path::Way;
pub use home::Home;
pub use span::{GONE, Span, SpanMemory};
pub(crate) use transfer::transfer;
pub use transfer::{Stop, Transfer};
#[cfg(test)]
pub(crate) use uffd::Progress;
pub(crate) use uffd::{Uffd, Waiting};
