//! A device: its parts, the settings that may change while it is in use, and the memory that it may
//! take.
//!
//! `zram` is one structure with all of it, on which the rooms above work. The other files are parts
//! of it, and `limits` has the settings for its owner. The room stands on cells, backing disk and
//! terms.

#[cfg(not(feature = "study"))]
mod aside;
mod generations;
mod limits;
mod settings;
mod stop;
#[cfg(feature = "study")]
mod study;
mod target;
mod tiering;
mod zram;

pub(crate) use generations::Generation;
pub(crate) use settings::Unit;
pub(crate) use stop::Stop;
#[cfg(feature = "study")]
use study as aside;
#[cfg(feature = "study")]
pub(crate) use study::Marks;
pub(crate) use target::BAND;
pub use target::HoldStat;
pub use zram::Zram;
