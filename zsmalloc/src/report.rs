//! What a pool can say about itself: its totals, and a recount of everything it has.

mod check;
mod stats;

pub use check::PoolCheck;
pub use stats::{ClassRow, ClassTable, PoolStats};
