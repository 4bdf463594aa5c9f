//! The backing disk: where pages go that leave memory, and come back from.
//!
//! `header` says whose the disk is, `sectors` which of it is in use, `windows` reads it; `place` is
//! where a blob lies. `blobs` puts them together, and is what other rooms see.
//!
//! The room stands on the terms of the crate. It knows neither cells nor entries: whoever names a
//! place asks here for what lies there.

mod blobs;
mod header;
mod place;
mod sectors;
mod windows;

pub(crate) use blobs::{Backing, Bridge};
pub use header::Found;
pub(crate) use place::{OnDisk, SECTOR, Source};
pub(crate) use sectors::Next;
