//! What can go wrong: with a page, and with the name of a codec.
//!
//! ```text
//!   compress, decompress --> CodecError
//!   Codec::with_level -----> LevelError -------.
//!   "lz4".parse() ---------> UnknownAlgorithm --+--> ParseCodecError <-- "zstd:7".parse()
//! ```

use crate::{Algorithm, PAGE_LEN_MAX};
use std::{error, fmt};

/// Why a page was not compressed or decompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CodecError {
    /// The blob is not one that this codec made from a page of this length.
    Corrupt,
    /// No memory for the codec's contexts. It may be there later.
    NoMemory,
    /// A page has 1 to [`PAGE_LEN_MAX`] bytes; the caller passed another number.
    PageLength(usize),
    /// This algorithm cannot decompress without a stream.
    NeedsStream,
    /// The library refused to compress the page. Storing it as it is always works.
    Refused,
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Corrupt => f.write_str("the compressed page is damaged"),
            Self::NoMemory => f.write_str("not enough memory for a compression context"),
            Self::PageLength(len) => {
                write!(f, "a page has 1 to {PAGE_LEN_MAX} bytes, not {len}")
            }
            Self::NeedsStream => f.write_str("this algorithm decompresses only with a stream"),
            Self::Refused => f.write_str("the compression library refused the page"),
        }
    }
}

impl error::Error for CodecError {}

/// A level that the algorithm does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelError {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The level that was asked for.
    pub level: i32,
}

impl fmt::Display for LevelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { algorithm, level } = self;
        let levels = algorithm.levels();
        let (lowest, highest) = (levels.start(), levels.end());
        write!(f, "{algorithm} has levels {lowest} to {highest}, not {level}")
    }
}

impl error::Error for LevelError {}

/// A name that no algorithm has. Its message lists those that exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownAlgorithm {
    name: String,
}

impl UnknownAlgorithm {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned() }
    }
}

impl fmt::Display for UnknownAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown algorithm {:?}; known:", self.name)?;
        Algorithm::ALL.iter().try_for_each(|algorithm| write!(f, " {algorithm}"))
    }
}

impl error::Error for UnknownAlgorithm {}

/// Why a text such as `zstd:7` names no codec.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParseCodecError {
    /// What stands before the colon is no algorithm.
    Algorithm(UnknownAlgorithm),
    /// What stands after the colon is no number.
    NotANumber(String),
    /// The algorithm does not have that level.
    Level(LevelError),
}

impl fmt::Display for ParseCodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Algorithm(error) => error.fmt(f),
            Self::NotANumber(text) => {
                write!(f, "the level after the colon is a whole number, not {text:?}")
            }
            Self::Level(error) => error.fmt(f),
        }
    }
}

impl error::Error for ParseCodecError {}

impl From<UnknownAlgorithm> for ParseCodecError {
    fn from(error: UnknownAlgorithm) -> Self {
        Self::Algorithm(error)
    }
}

impl From<LevelError> for ParseCodecError {
    fn from(error: LevelError) -> Self {
        Self::Level(error)
    }
}
