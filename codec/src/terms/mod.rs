//! Words that every room of this crate uses: lengths of pages and units, names of algorithms,
//! errors.
//!
//! Invariant: nothing here depends on how an algorithm works. Locks: none.

mod algorithm;
mod error;

pub use algorithm::{Algorithm, UnknownAlgorithm};
pub(crate) use algorithm::{DEFLATE_LEVEL_DEFAULT, SEARCH_LEVEL};
pub use error::{CodecError, ParameterError, ParseCodecError};

/// Bytes in a page, which is the most that a codec takes.
pub const PAGE_LEN_MAX: usize = 4096;

/// Bytes in the longest unit of several pages.
pub const UNIT_LEN_MAX: usize = 16 * PAGE_LEN_MAX; // 64 KiB
