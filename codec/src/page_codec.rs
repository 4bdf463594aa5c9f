//! A codec: an algorithm at a level, and what it does to a page.
//!
//! Invariant: `level` is one of the algorithm's levels; every constructor checks it.

use crate::{Algorithm, CodecError, LevelError, ParseCodecError, Stream, lz4};
use std::fmt;
use std::str::FromStr;

/// Bytes in a page, the most a codec takes.
pub const PAGE_LEN_MAX: usize = 4096;

/// An algorithm at a level.
///
/// ```
/// use codec::{Codec, Stream};
/// let codec: Codec = "zstd:7".parse()?;
/// let mut stream = Stream::new();
/// let page = [7; 4096];
/// let blob = codec.compress(&mut stream, &page)?.to_vec();
/// let mut back = [0; 4096];
/// codec.decompress(&mut stream, &blob, &mut back)?;
/// assert_eq!(back, page);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Codec {
    algorithm: Algorithm,
    level: i32,
}

impl Codec {
    /// `algorithm` at its default level.
    pub const fn new(algorithm: Algorithm) -> Self {
        Self { algorithm, level: algorithm.default_level() }
    }

    /// `algorithm` at `level`, if it has that level.
    pub fn with_level(algorithm: Algorithm, level: i32) -> Result<Self, LevelError> {
        if algorithm.levels().contains(&level) {
            Ok(Self { algorithm, level })
        } else {
            Err(LevelError { algorithm, level })
        }
    }

    /// The algorithm.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The level.
    pub const fn level(&self) -> i32 {
        self.level
    }

    /// Compresses a page of 1 to [`PAGE_LEN_MAX`] bytes.
    ///
    /// The blob lies in the stream until its next use. It may be longer than the page: whether
    /// it is short enough to be worth keeping is the caller's decision.
    pub fn compress<'s>(
        &self,
        stream: &'s mut Stream,
        page: &[u8],
    ) -> Result<&'s [u8], CodecError> {
        check_page_len(page.len())?;
        stream.compress(*self, page)
    }

    /// Fills `page` from a blob that this algorithm made, at any level, from a page just as
    /// long. Any other blob is [`CodecError::Corrupt`] or fills `page` with something; after an
    /// error `page` holds anything.
    pub fn decompress(
        &self,
        stream: &mut Stream,
        blob: &[u8],
        page: &mut [u8],
    ) -> Result<(), CodecError> {
        check_page_len(page.len())?;
        stream.decompress(self.algorithm, blob, page)
    }

    /// Whether [`decompress_stateless`](Self::decompress_stateless) is not to be had.
    pub const fn needs_stream_to_decompress(&self) -> bool {
        match self.algorithm {
            Algorithm::Lz4 => false,
            Algorithm::Zstd => true,
        }
    }

    /// As [`decompress`](Self::decompress), without a stream and so without a lock or an
    /// allocation; [`CodecError::NeedsStream`] where the algorithm cannot.
    pub fn decompress_stateless(&self, blob: &[u8], page: &mut [u8]) -> Result<(), CodecError> {
        check_page_len(page.len())?;
        match self.algorithm {
            Algorithm::Lz4 => lz4::decompress(blob, page),
            Algorithm::Zstd => Err(CodecError::NeedsStream),
        }
    }

    /// Bytes a library allocates once for every thread that compresses with this codec, freed
    /// when the thread ends. They are not in [`Stream::heap_bytes`].
    pub const fn thread_bytes(&self) -> usize {
        match self.algorithm {
            Algorithm::Lz4 => lz4::THREAD_BYTES,
            Algorithm::Zstd => 0,
        }
    }
}

fn check_page_len(len: usize) -> Result<(), CodecError> {
    if (1..=PAGE_LEN_MAX).contains(&len) { Ok(()) } else { Err(CodecError::PageLength(len)) }
}

/// `lz4` at the default level, `zstd:7` at any other.
impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.level == self.algorithm.default_level() {
            self.algorithm.fmt(f)
        } else {
            f.pad(&format!("{}:{}", self.algorithm, self.level))
        }
    }
}

impl FromStr for Codec {
    type Err = ParseCodecError;

    fn from_str(text: &str) -> Result<Self, ParseCodecError> {
        let Some((name, level)) = text.split_once(':') else {
            return Ok(Self::new(text.parse()?));
        };
        let algorithm = name.parse()?;
        let level = level.parse().map_err(|_| ParseCodecError::NotANumber(level.to_owned()))?;
        Ok(Self::with_level(algorithm, level)?)
    }
}
