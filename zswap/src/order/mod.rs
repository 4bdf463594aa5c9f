//! The eviction order: which page leaves memory next.
//!
//! ```text
//!   enter   leave   evict   check        what a cache asks for
//!      \      |      /
//!       compact, rules                   dropping stale tokens; where a page goes
//!            |
//!         orders                         all of it in one structure, and its lock
//!       /    |    \
//!   blocks leaves counts                 tokens in rings; pages of a leaf; pages of a group
//!       \    |    /
//!          word                          what is known of one cell
//! ```
//!
//! The room stands on the terms of the crate alone. It knows cells by their numbers, and knows no
//! entry, object or disk.
//!
//! Locks: one, and it is a leaf lock: see `orders`.

mod blocks;
mod check;
mod compact;
mod counts;
mod enter;
mod evict;
mod leave;
mod leaves;
#[cfg(all(test, loom))]
mod model;
mod orders;
mod rules;
#[cfg(all(test, not(loom)))]
mod tests;
mod word;

pub(crate) use evict::Victim;
pub(crate) use orders::Orders;
