//! The terms between the crate and its users: settings, results, errors and statistics.
//!
//! ```text
//!   in     config: a pager's and a region's settings     range: bytes become pages
//!   out    outcome: the result of paging out, and why a page was refused
//!          stats: where the pages are        error: why a call failed
//!   both   sizes: pages of a group, groups of a chunk, the smallest limit
//! ```
//!
//! This is the lowest room: it uses no other room of the crate.

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
pub use stats::{PlotStats, RegionStats};
