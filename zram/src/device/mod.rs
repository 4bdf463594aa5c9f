//! A device: what it is made of, what may be set while it is in use, and the memory it may take.
//!
//! `zram` is the whole in one structure, on which the rooms above work. The other files are parts
//! of it, and `limits` is what its owner sets. The room stands on cells, backing disk and terms.

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
