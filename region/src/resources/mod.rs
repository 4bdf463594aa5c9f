//! The resources of regions: those that each has for itself, and those that all of a pager share.
//!
//! ```text
//!   each region    Store      compressed pages: a device, or an area of a cache
//!                  Gates      which threads may work on the region
//!                  Counters   where its pages are, and what faults have cost
//!   all together   Shared     memory, staging, events, the list of regions
//!                    |-- Buffers     pages are decoded to these
//!                    `-- Fetchers    threads that read a disk for a signal handler
//! ```
//!
//! It stands on `neighbours` (the costs of a fault), `places` (mappings) and `terms`. It does not
//! know what a region is: `Shared` and `Fetchers` take its type as a parameter.

mod buffers;
mod counters;
mod fetchers;
mod gate;
mod shared;
mod store;

pub(crate) use counters::{Count, Counters};
pub(crate) use fetchers::{Fetchers, Fetching, Request, is_fetcher};
pub(crate) use gate::{Gate, Gates};
pub(crate) use shared::Shared;
pub(crate) use store::{Read, Store};
