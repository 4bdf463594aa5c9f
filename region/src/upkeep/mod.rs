//! Upkeep: the pager, and the two threads that look after its regions.
//!
//! ```text
//!   Pager ---- thread    every 10 to 100 ms: keeps limits, sweeps dead copies
//!     |           `-- look     every second: is the regions' memory as it should be?
//!     `------- watch     every second: can faults be served at all?
//! ```
//!
//! It stands on `way_out`, `state`, `resources`, `places` and `terms`.

mod look;
mod pager;
mod thread;
mod watch;

pub use pager::Pager;
