//! A dictionary, digested once for an algorithm and level, and shared by everything that uses it.
//!
//! ```text
//!   lz4, lz4hc   the last 64 KiB of the content | a copy of them with a table of its bytes
//!   zstd         the library's digests, one for each direction
//!   pagelz       tables: those that the content is, or those that are trained on it as pages
//! ```
//!
//! Invariant: a dictionary never changes, so it reads every blob that was made with it.
//!
//! Locks: those of `lz4` and `lz4hc`.

use super::train::TrainError;
use crate::algorithms::{lz4, lz4hc, pagelz, zstd};
use crate::terms::{Algorithm, CodecError, ParameterError};
use std::fmt;
use std::sync::{Arc, OnceLock};

/// What a codec keeps of a dictionary.
pub(crate) enum Dictionary {
    Lz4(Box<[u8]>, lz4::Dictionary),
    Lz4hc(Box<[u8]>, lz4hc::Dictionary),
    LeanLz4hc(lz4hc::Lean),
    Zstd(zstd::Dictionary),
    Pagelz(Box<pagelz::Tables>),
}

impl Dictionary {
    /// Digests `content`.
    pub(crate) fn new(
        algorithm: Algorithm,
        level: i32,
        content: &[u8],
    ) -> Result<Self, ParameterError> {
        if content.is_empty() && algorithm.takes_dictionary() {
            return Err(ParameterError::EmptyDictionary);
        }
        let tail = tail_of(content);
        let dictionary = match algorithm {
            Algorithm::Lz4 => Self::Lz4(tail.into(), lz4::Dictionary::new(tail)?),
            Algorithm::Lz4hc => Self::Lz4hc(tail.into(), lz4hc::Dictionary::new(tail, level)?),
            Algorithm::Zstd => Self::Zstd(zstd::Dictionary::new(content, level)?),
            Algorithm::Pagelz => Self::Pagelz(tables(&lengths(content)?)),
            Algorithm::LzoRle | Algorithm::Lzo | Algorithm::Deflate => {
                return Err(ParameterError::NoDictionary(algorithm));
            }
        };
        Ok(dictionary)
    }

    /// One for a codec that gets it later: what compresses with it lasts as long as a stream.
    pub(crate) fn lean(
        algorithm: Algorithm,
        level: i32,
        content: &[u8],
    ) -> Result<Self, ParameterError> {
        if content.is_empty() {
            return Err(ParameterError::EmptyDictionary);
        }
        match algorithm {
            Algorithm::Zstd => Ok(Self::Zstd(zstd::Dictionary::lean(content, level)?)),
            Algorithm::Lz4hc => Ok(Self::LeanLz4hc(lz4hc::Lean::new(tail_of(content)))),
            other => Err(ParameterError::NoDictionary(other)),
        }
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.tables_bytes()
    }

    fn tables_bytes(&self) -> usize {
        match self {
            Self::Lz4(content, _) => 2 * content.len() + lz4::Dictionary::BYTES,
            Self::Lz4hc(content, _) => 2 * content.len() + lz4hc::Dictionary::BYTES,
            Self::LeanLz4hc(lean) => lean.heap_bytes(),
            Self::Zstd(digests) => digests.heap_bytes(),
            Self::Pagelz(_) => size_of::<pagelz::Tables>(),
        }
    }

    /// Fills `page` from an LZ4 block that may refer to the content.
    pub(crate) fn decompress_lz4(&self, blob: &[u8], page: &mut [u8]) -> Result<(), CodecError> {
        match self {
            Self::Lz4(content, _) | Self::Lz4hc(content, _) => {
                lz4::decompress_with(content, blob, page)
            }
            Self::LeanLz4hc(lean) => lean.decompress(blob, page),
            Self::Zstd(_) | Self::Pagelz(_) => lz4::decompress(blob, page),
        }
    }

    /// The tables of pagelz: those of `dictionary`, or the shipped ones.
    pub(crate) fn pagelz_tables(dictionary: Option<&Self>) -> &pagelz::Tables {
        match dictionary {
            Some(Self::Pagelz(tables)) => tables,
            _ => &pagelz::SHIPPED,
        }
    }
}

/// As much of a dictionary as LZ4 can refer to.
fn tail_of(content: &[u8]) -> &[u8] {
    &content[content.len().saturating_sub(lz4::CONTENT_MAX)..]
}

/// What makes a dictionary of so many bytes at most from pages.
pub(super) type Trainer = fn(Algorithm, &[u8], usize) -> Result<Vec<u8>, TrainError>;

/// The place of a dictionary that comes later, which all clones of a codec share.
///
/// The trainer stands here, so that a program has it only if it makes codecs that learn. It needs
/// the C library's output, which not every program has.
#[derive(Clone, Debug)]
pub(super) struct Learned {
    place: Arc<OnceLock<Dictionary>>,
    pub(super) train: Trainer,
}

impl Learned {
    pub(super) fn by(train: Trainer) -> Learned {
        Learned { place: Arc::default(), train }
    }

    pub(super) fn dictionary(&self) -> Option<&Dictionary> {
        self.place.get()
    }

    /// False if there is one already.
    pub(super) fn set(&self, dictionary: Dictionary) -> bool {
        self.place.set(dictionary).is_ok()
    }
}

impl PartialEq for Learned {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.place, &other.place)
    }
}

/// Any content will do, as for the others: what is no tables is pages to train on.
fn lengths(content: &[u8]) -> Result<pagelz::Lengths, ParameterError> {
    match pagelz::is_tables(content) {
        true => pagelz::Lengths::parse(content),
        false => Ok(pagelz::train(content)?),
    }
}

impl fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dictionary").field("heap_bytes", &self.heap_bytes()).finish()
    }
}

/// A function of its own, because the tables are on its stack before they are on the heap. Inlined,
/// they would be on the stacks of callers that make none.
#[inline(never)]
fn tables(lengths: &pagelz::Lengths) -> Box<pagelz::Tables> {
    Box::new(pagelz::Tables::new(lengths))
}
