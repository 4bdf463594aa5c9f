//! A codec: an algorithm with its parameters, and what it does to a page.
//!
//! ```text
//!   algorithm | level | winbits | dictionary      the last shared by all clones
//! ```
//!
//! Invariant: every parameter is one that the algorithm has; every constructor checks it.

use crate::dictionary::Dictionary;
use crate::{Algorithm, CodecError, ParameterError, ParseCodecError, Stream, deflate, lz4, lzo};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Bytes in a page, the most a codec takes.
pub const PAGE_LEN_MAX: usize = 4096;

/// An algorithm with its parameters. Two are equal when their blobs are: a dictionary is equal only
/// to its clones.
///
/// ```
/// use ramfold_codec::{Codec, Stream};
/// let codec: Codec = "zstd:7".parse()?;
/// let mut stream = Stream::new();
/// let page = [7; 4096];
/// let blob = codec.compress(&mut stream, &page)?.to_vec();
/// let mut back = [0; 4096];
/// codec.decompress(&mut stream, &blob, &mut back)?;
/// assert_eq!(back, page);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Codec {
    algorithm: Algorithm,
    level: i32,
    winbits: i32,
    dictionary: Option<Arc<Dictionary>>,
}

/// What a codec is made from, each where it is not the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parameters<'a> {
    /// The level: an acceleration for lz4, an effort for the others.
    pub level: Option<i32>,
    /// Bits of deflate's window; negative without zlib's frame.
    pub winbits: Option<i32>,
    /// What pages are expected to have in common.
    pub dictionary: Option<&'a [u8]>,
}

impl Codec {
    /// `algorithm` with its defaults.
    pub const fn new(algorithm: Algorithm) -> Self {
        let level = match algorithm.default_level() {
            Some(level) => level,
            None => 0,
        };
        Self { algorithm, level, winbits: deflate::WINBITS_DEFAULT, dictionary: None }
    }

    /// `algorithm` at `level`.
    ///
    /// # Errors
    ///
    /// As [`with_parameters`](Self::with_parameters).
    pub fn with_level(algorithm: Algorithm, level: i32) -> Result<Self, ParameterError> {
        let level = Some(level);
        Self::with_parameters(algorithm, &Parameters { level, ..Parameters::default() })
    }

    /// The same with a dictionary in place of the one it has, if any.
    ///
    /// # Errors
    ///
    /// As [`with_parameters`](Self::with_parameters).
    pub fn with_dictionary(&self, content: &[u8]) -> Result<Self, ParameterError> {
        let parameters =
            Parameters { level: self.level(), winbits: self.winbits(), dictionary: Some(content) };
        Self::with_parameters(self.algorithm, &parameters)
    }

    /// `algorithm` with any parameters it has. A dictionary is digested here, once.
    ///
    /// # Errors
    ///
    /// A parameter that the algorithm does not have
    /// ([`is_unsupported`](ParameterError::is_unsupported)), a value outside its range, an empty
    /// dictionary, or no memory for it.
    pub fn with_parameters(
        algorithm: Algorithm,
        parameters: &Parameters<'_>,
    ) -> Result<Self, ParameterError> {
        let mut codec = Self::new(algorithm);
        if let Some(level) = parameters.level {
            let levels = algorithm.levels().ok_or(ParameterError::NoLevels(algorithm))?;
            if !levels.contains(&level) {
                return Err(ParameterError::Level { algorithm, level });
            }
            codec.level = level;
        }
        if let Some(winbits) = parameters.winbits {
            if !algorithm.takes_winbits() {
                return Err(ParameterError::NoWinbits(algorithm));
            }
            if !deflate::is_winbits(winbits) {
                return Err(ParameterError::Winbits(winbits));
            }
            codec.winbits = winbits;
        }
        if let Some(content) = parameters.dictionary {
            codec.dictionary = Some(Arc::new(Dictionary::new(algorithm, codec.level, content)?));
        }
        Ok(codec)
    }

    /// The algorithm.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The level; `None` when the algorithm has none.
    pub const fn level(&self) -> Option<i32> {
        match self.algorithm.default_level() {
            Some(_) => Some(self.level),
            None => None,
        }
    }

    /// The window of deflate; `None` for all others.
    pub const fn winbits(&self) -> Option<i32> {
        if self.algorithm.takes_winbits() { Some(self.winbits) } else { None }
    }

    /// Whether it has a dictionary.
    pub const fn has_dictionary(&self) -> bool {
        self.dictionary.is_some()
    }

    /// Bytes on the heap of its dictionary, which all clones share. They are not in
    /// [`Stream::heap_bytes`].
    pub fn dictionary_bytes(&self) -> usize {
        self.dictionary.as_ref().map_or(0, |dictionary| dictionary.heap_bytes())
    }

    pub(crate) fn settings(&self) -> (i32, i32, Option<&Dictionary>) {
        (self.level, self.winbits, self.dictionary.as_deref())
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
        stream.compress(self, page)
    }

    /// Fills `page` from a blob that this algorithm made, at any level but with the same
    /// dictionary and sign of winbits, from a page just as long. Any other blob is
    /// [`CodecError::Corrupt`] or fills `page` with something; after an error `page` holds
    /// anything.
    pub fn decompress(
        &self,
        stream: &mut Stream,
        blob: &[u8],
        page: &mut [u8],
    ) -> Result<(), CodecError> {
        check_page_len(page.len())?;
        stream.decompress(self, blob, page)
    }

    /// Whether only a stream can decompress its blobs, and
    /// [`decompress_stateless`](Self::decompress_stateless) is an error.
    pub const fn needs_stream_to_decompress(&self) -> bool {
        !self.algorithm.is_stateless()
    }

    /// As [`decompress`](Self::decompress), without a stream and so without a lock or an
    /// allocation; [`CodecError::NeedsStream`] where the algorithm cannot.
    pub fn decompress_stateless(&self, blob: &[u8], page: &mut [u8]) -> Result<(), CodecError> {
        check_page_len(page.len())?;
        self.decompress_unchecked(blob, page)
    }

    /// As [`decompress_stateless`](Self::decompress_stateless); the length of `page` was checked.
    #[inline]
    pub(crate) fn decompress_unchecked(
        &self,
        blob: &[u8],
        page: &mut [u8],
    ) -> Result<(), CodecError> {
        match (self.algorithm, &self.dictionary) {
            (Algorithm::LzoRle | Algorithm::Lzo, _) => lzo::decompress(blob, page),
            (Algorithm::Lz4 | Algorithm::Lz4hc, None) => lz4::decompress(blob, page),
            (Algorithm::Lz4 | Algorithm::Lz4hc, Some(dictionary)) => {
                lz4::decompress_with(dictionary.lz4_content(), blob, page)
            }
            (Algorithm::Zstd | Algorithm::Deflate, _) => Err(CodecError::NeedsStream),
        }
    }

    /// Bytes a library allocates once for every thread that compresses with this codec, freed
    /// when the thread ends. They are not in [`Stream::heap_bytes`].
    pub const fn thread_bytes(&self) -> usize {
        match (self.algorithm, &self.dictionary) {
            (Algorithm::Lz4, None) => lz4::THREAD_BYTES,
            (Algorithm::Lz4, Some(_)) => 0,
            (Algorithm::LzoRle | Algorithm::Lzo | Algorithm::Lz4hc, _) => 0,
            (Algorithm::Zstd | Algorithm::Deflate, _) => 0,
        }
    }
}

impl PartialEq for Codec {
    fn eq(&self, other: &Self) -> bool {
        let same_dictionary = match (&self.dictionary, &other.dictionary) {
            (None, None) => true,
            (Some(mine), Some(theirs)) => Arc::ptr_eq(mine, theirs),
            _ => false,
        };
        let parameters = |codec: &Self| (codec.algorithm, codec.level, codec.winbits);
        same_dictionary && parameters(self) == parameters(other)
    }
}

impl Eq for Codec {}

fn check_page_len(len: usize) -> Result<(), CodecError> {
    if (1..=PAGE_LEN_MAX).contains(&len) { Ok(()) } else { Err(CodecError::PageLength(len)) }
}

/// `lz4` at the default level, `zstd:7` at any other. Other parameters are not said.
impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.level() {
            level if level == self.algorithm.default_level() => self.algorithm.fmt(f),
            level => f.pad(&format!("{}:{}", self.algorithm, level.unwrap_or_default())),
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
