//! The backing disk: pages that leave memory go to it and come back from it.
//!
//! `header` says whose the disk is, and `sectors` which sectors are in use. `windows` reads the
//! disk, and `place` is where a blob lies. `blobs` puts them together, and is what other rooms see.
//!
//! The room stands on the terms of the crate. It knows neither cells nor entries. Callers name a
//! place and ask for the bytes there.

mod blobs;
mod header;
mod place;
mod sectors;
mod windows;

pub(crate) use blobs::{Backing, Bridge};
pub use header::Found;
pub(crate) use place::{OnDisk, SECTOR, Source};
pub(crate) use sectors::Next;
