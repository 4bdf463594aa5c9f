//! Ranges whose missing pages are faults, and the userfaultfd that they are registered with.
//!
//! ```text
//!   Span, SpanMemory     a range of pages: the half that folds it, the half that lends its bytes
//!     `-- FaultPath      one descriptor for many spans --> Uffd: its requests
//!   transfer             repeats a request that the system stopped in the middle
//!   Home                 tells a forked child from the process that opened the descriptor
//! ```
//!
//! Invariants: S1 and S2 of [`Span`]. The room above, [`fault`](crate::fault), serves the faults.
//! Lock: none.

mod error;
mod home;
mod span;
mod transfer;
mod uffd;

pub use error::{FaultError, FaultMode};
pub(crate) use home::Home;
pub use span::{FaultPath, GONE, SEGMENT_PAGES, Span, SpanMemory};
pub(crate) use transfer::transfer;
pub use transfer::{Stop, Transfer};
#[cfg(test)]
pub(crate) use uffd::Progress;
pub(crate) use uffd::Waiting;
