//! What a device says about itself: its figures, its pages, and whether it is in order.
//!
//! Nothing here changes a device. The room stands on the device, and on `page` to decode what a
//! recount looks at.

mod block_state;
mod check;
mod stat;

pub use block_state::BlockState;
pub use check::{CheckError, CheckReport};
pub use stat::{IoStat, Metadata, MmStat, Stat};
