//! Upkeep: the pager, and the threads that look after its regions.
//!
//! ```text
//!   Pager ---- thread    every 10 to 100 ms: keeps limits, sweeps dead copies
//!     |           `-- look     every second: is the regions' memory as it should be?
//!     |------- watch     every second: can faults be served at all?
//!     `------- tending   where regions have tiers: stored pages become denser
//! ```
//!
//! It stands on `way_out`, `state`, `resources`, `places` and `terms`.

mod look;
mod pager;
mod tending;
mod thread;
mod watch;

pub use pager::Pager;
