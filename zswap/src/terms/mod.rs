//! The terms of a cache: what it is made with, what it refuses, and the numbers of groups.
//!
//! This is the ground of the crate. It stands on no other room.

mod config;
mod error;
mod group;

pub(crate) use error::KNOWN_MAX;

pub use config::{Incompressible, Limit, Order, ZswapConfig};
pub use error::{AlgorithmError, LoadError, StoreError, ZswapError};
pub use group::GroupId;
