//! What study S3 compares with the default: its allocator-only form. Without the feature `study`
//! there is none of this.
//!
//! ```text
//!             forgetting a page does                       and later
//!   at once   the entry leaves the order, and is freed     nothing
//!   handles   the entry leaves the order and its cell      its object is freed, with others of its
//!                                                          class
//! ```
//!
//! An entry never stays in the order, so that nothing that is gone is written back. The study's
//! form leaves it there.
//!
//! Invariant: how it is freed changes neither what a page reads as, nor whether a page is stored.

pub use zsmalloc::deferred::{Meters, QueueConfig};

/// How a cache differs from what it is without the feature `study`; fixed for its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Study {
    /// How the object of a page that is forgotten by itself is freed.
    pub free: Free,
    /// How much may be pending with [`Free::Handles`].
    pub deferred: QueueConfig,
}

/// How the object of a forgotten page is freed. Whole leaves of 512 pages go as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Free {
    /// In the call.
    #[default]
    AtOnce,
    /// By the memory's worker: the allocator-only form of study S3.
    Handles,
}
