//! What can go wrong: with a page, and with the name of a codec.
//!
//! ```text
//!   compress, decompress --> CodecError
//!   Codec::with_.. --------> ParameterError ---.
//!   "lz4".parse() ---------> UnknownAlgorithm --+--> ParseCodecError <-- "zstd:7".parse()
//! ```
//!
//! Invariant: a message names the value that was refused, and what would be accepted. Locks: none.

use super::PAGE_LEN_MAX;
use super::algorithm::{Algorithm, UnknownAlgorithm};
use std::{error, fmt};

/// Why a page was not compressed or decompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CodecError {
    /// The blob is not one that this codec made from a page of this length.
    Corrupt,
    /// There is no memory for the codec's contexts. A later attempt may succeed.
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

/// A parameter that the algorithm does not have, or a value that it does not accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParameterError {
    /// The algorithm has levels, but not this one.
    Level {
        /// The algorithm.
        algorithm: Algorithm,
        /// The level that was asked for.
        level: i32,
    },
    /// Deflate has windows, but not this one.
    Winbits(i32),
    /// The dictionary has no content.
    EmptyDictionary,
    /// The dictionary begins like a trained one, but it is damaged.
    DamagedDictionary,
    /// The algorithm has no levels.
    NoLevels(Algorithm),
    /// The algorithm uses no dictionary.
    NoDictionary(Algorithm),
    /// The algorithm has no window to choose.
    NoWinbits(Algorithm),
    /// Pages are not shuffled by elements of so many bytes.
    Element(usize),
    /// There is no memory to digest the dictionary.
    NoMemory,
}

impl ParameterError {
    /// True if the algorithm does not have the parameter at all, whatever its value. The kernel
    /// says EOPNOTSUPP then.
    pub const fn is_unsupported(&self) -> bool {
        matches!(self, Self::NoLevels(_) | Self::NoDictionary(_) | Self::NoWinbits(_))
    }
}

impl fmt::Display for ParameterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Level { algorithm, level } => {
                write!(f, "{algorithm} has ")?;
                if let Some(levels) = algorithm.levels() {
                    write!(f, "levels {} to {}, ", levels.start(), levels.end())?;
                }
                write!(f, "not {level}")
            }
            Self::Winbits(winbits) => {
                write!(f, "deflate has winbits -15 to -9 and 9 to 15, not {winbits}")
            }
            Self::EmptyDictionary => f.write_str("the dictionary is empty"),
            Self::DamagedDictionary => f.write_str("the dictionary is damaged"),
            Self::NoLevels(algorithm) => write!(f, "{algorithm} has no levels"),
            Self::NoDictionary(algorithm) => write!(f, "{algorithm} uses no dictionary"),
            Self::NoWinbits(algorithm) => write!(f, "{algorithm} has no winbits; deflate has"),
            Self::Element(bytes) => {
                write!(f, "pages are shuffled by elements of 2, 4 or 8 bytes, not {bytes}")
            }
            Self::NoMemory => f.write_str("not enough memory for the dictionary"),
        }
    }
}

impl error::Error for ParameterError {}

impl From<CodecError> for ParameterError {
    /// Building the tables of a dictionary fails only if memory is short.
    fn from(_: CodecError) -> Self {
        Self::NoMemory
    }
}

/// Why a text such as `zstd:7` names no codec.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParseCodecError {
    /// The text before the colon names no algorithm.
    Algorithm(UnknownAlgorithm),
    /// The text after the colon is no whole number.
    NotANumber(String),
    /// The algorithm does not have that level.
    Level(ParameterError),
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

impl From<ParameterError> for ParseCodecError {
    fn from(error: ParameterError) -> Self {
        Self::Level(error)
    }
}
