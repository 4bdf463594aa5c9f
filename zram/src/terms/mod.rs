//! The terms of a device: what it is made with, what may be asked of it, and what it refuses.
//!
//! This is the ground of the crate. It stands on no other room.

mod asked;
mod config;
mod error;
mod free;
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
pub use free::Free;
pub use unreached::Unreached;
