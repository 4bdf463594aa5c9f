//! What the crate and its users say to each other: settings, results, errors and statistics.
//!
//! ```text
//!   in     config: a pager's and a region's settings     range: bytes become pages
//!   out    outcome: what paging out came to, and why a page was refused
//!          stats: where the pages are        error: why a call failed
//!   both   sizes: pages of a group, groups of a chunk, the smallest limit
//! ```
//!
//! This room is the ground: it uses no other room of the crate.

mod config;
mod error;
mod outcome;
mod range;
mod sizes;
mod stats;

pub use config::{FaultCosts, PagerConfig, Quads, RegionConfig, StoreConfig};
pub use error::RegionError;
pub(crate) use outcome::LastRefusal;
pub use outcome::{PageOut, Refusal};
pub(crate) use range::PageRange;
pub use sizes::LIMIT_MIN;
pub(crate) use sizes::{AROUND_PAGES, CHUNK_GROUPS, GROUP_PAGES};
pub use stats::RegionStats;
