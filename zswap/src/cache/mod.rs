//! A cache as its owner sees it. It is made, set, shrunk, counted and checked here.
//!
//! This is the top of the crate. It stands on the areas, and on what they share.

mod check;
mod room;
mod stat;
mod zswap;

pub use check::{ZswapCheck, ZswapDefect};
pub use stat::ZswapStat;
pub use zswap::Zswap;
