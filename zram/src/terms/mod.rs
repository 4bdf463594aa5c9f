//! The terms of a device: its configuration, the requests that it takes, and its errors.
//!
//! This is the lowest room of the crate. It stands on no other.

mod asked;
mod config;
mod error;
#[cfg(feature = "study")]
pub mod study;
mod tiers;
mod unreached;

pub use asked::{
    Idle, PostError, Recompress, RecompressKind, RecompressReport, Selection, WriteBack,
    WriteBackReport,
};
pub(crate) use asked::{backing_error, post_error};
pub(crate) use config::PRIORITIES;
pub use config::ZramConfig;
pub use error::ZramError;
pub(crate) use error::disk_error;
pub use tiers::{Density, Tier, TierStat, TiersConfig, Training, Verdict};
pub use unreached::Unreached;
