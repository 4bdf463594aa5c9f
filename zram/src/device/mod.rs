//! A device: its parts, the settings that may change while it is in use, and the memory that it may
//! take.
//!
//! `zram` is one structure with all of it, on which the rooms above work. The other files are parts
//! of it, and `limits` has the settings for its owner. The room stands on cells, backing disk and
//! terms.

mod limits;
mod set_aside;
mod settings;
mod target;
mod zram;

pub(crate) use set_aside::unmark;
pub(crate) use settings::Unit;
pub(crate) use target::BAND;
pub use target::HoldStat;
pub use zram::Zram;
