//! The terms of a cache: its configuration, its errors, and the numbers of groups.
//!
//! This is the lowest room of the crate. It stands on no other.

mod config;
mod error;
mod group;
#[cfg(feature = "study")]
pub mod study;

pub(crate) use error::KNOWN_MAX;

pub use config::{EvictionOrder, Incompressible, Limit, ZswapConfig};
pub use error::{AlgorithmError, LoadError, StoreError, ZswapError};
pub use group::GroupId;
