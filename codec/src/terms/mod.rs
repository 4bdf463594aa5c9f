//! Words that every room of this crate uses: the length of a page, algorithms by name, errors.
//!
//! Invariant: nothing here depends on how an algorithm works. Locks: none.

mod algorithm;
mod error;

pub(crate) use algorithm::DEFLATE_LEVEL_DEFAULT;
pub use algorithm::{Algorithm, UnknownAlgorithm};
pub use error::{CodecError, ParameterError, ParseCodecError};

/// Bytes in a page, which is the most that a codec takes.
pub const PAGE_LEN_MAX: usize = 4096;
