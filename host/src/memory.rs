//! Memory from the system: reserved, opened as it is needed, touched lazily, given back.
//!
//! ```text
//!   Arena (frames by number)    Table (atomics by index)    Pages    Swappable
//!     |  Run: the right to frames    |  Zeroed: what it may hold
//!     `------ Steps: what is open ---'
//!                     |
//!                  Mapping: one reservation between two guard pages
//! ```
//!
//! Invariants H1 and H2 of the crate are kept here. Locks: each reservation in steps has one, which
//! is held while the system opens a step.

#[expect(unsafe_code, reason = "makes run tokens, and gives frames back")]
mod arena;
mod bits;
mod error;
pub mod faults;
#[expect(unsafe_code, reason = "maps and unmaps memory")]
mod mapping;
#[expect(unsafe_code, reason = "lends a mapping that it owns")]
mod pages;
mod run;
mod steps;
#[cfg(not(any(loom, miri)))]
#[expect(unsafe_code, reason = "lends a mapping that it owns")]
mod swappable;
#[cfg_attr(
    not(loom),
    expect(unsafe_code, reason = "lends elements of a mapping, which are valid when zero")
)]
mod table;
#[expect(unsafe_code, reason = "says which types are valid when zero")]
mod zeroed;

pub use arena::{Arena, FRAMES_MAX, NUMBERED_FRAMES_MIN, Purged};
pub use error::{ClaimError, ForeignRun, HostDefect, HostError};
pub use faults::FailureInjector;
#[cfg(not(any(loom, shuttle, miri)))]
pub use mapping::inherit_all;
#[cfg(not(any(loom, shuttle, miri)))]
pub(crate) use mapping::{Access, Core, Mapping, close, settle_in_child};
pub use pages::Pages;
pub use run::{Pfn, RawRun, Run};
#[cfg(not(any(loom, miri)))]
pub use swappable::Swappable;
pub use table::Table;
pub use zeroed::Zeroed;
