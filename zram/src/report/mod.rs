//! Reports of a device: its figures, the state of its pages, and whether it is in order.
//!
//! Nothing here changes a device. The room stands on the device, and on `page`, because a recount
//! decodes pages.

mod block_state;
mod check;
mod stat;
mod tiers;

pub use block_state::BlockState;
pub use check::{ZramCheck, ZramDefect};
pub use stat::{IoStat, Metadata, MmStat, ZramStat};
