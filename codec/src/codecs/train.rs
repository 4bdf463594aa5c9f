//! Dictionaries made from what pages have in common. For LZ4 and Zstandard, Zstandard's own trainer
//! finds it (`ZDICT_trainFromBuffer`, which prefers segments whose parts occur often). For pagelz
//! they are tables of codes.
//!
//! ```text
//!   trained dictionary    magic, id | entropy tables | content, the most useful last
//!   Zstandard uses                        all of it
//!   LZ4 uses                                   the last 64 KiB, as plain bytes
//!   pagelz's tables       magic, version | lengths of the words of all codes
//! ```
//!
//! Invariant: a dictionary is never longer than was asked for. Locks: none.

use crate::algorithms::pagelz;
use crate::terms::{Algorithm, PAGE_LEN_MAX};
use std::{error, fmt};

/// The smallest dictionary that can be asked for, in bytes.
pub const DICTIONARY_LEN_MIN: usize = 1 << 10; // 1 KiB

/// Why pages gave no dictionary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TrainError {
    /// Fewer bytes were asked for than [`DICTIONARY_LEN_MIN`].
    TooSmall,
    /// Fewer bytes were asked for than [`TABLES_LEN`], which tables of pagelz have.
    TooSmallForTables,
    /// There are too few pages, or they have nothing in common.
    NothingCommon,
    /// There is no memory for the dictionary.
    NoMemory,
    /// The lengths of the samples do not add up to their bytes.
    OtherLength,
}

impl fmt::Display for TrainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooSmall => write!(f, "a dictionary has at least {DICTIONARY_LEN_MIN} bytes"),
            Self::TooSmallForTables => write!(f, "tables of pagelz have {TABLES_LEN} bytes"),
            Self::NothingCommon => f.write_str("too few pages, or they have nothing in common"),
            Self::NoMemory => f.write_str("not enough memory for a dictionary"),
            Self::OtherLength => {
                f.write_str("the lengths of the samples are not those of the bytes")
            }
        }
    }
}

impl error::Error for TrainError {}

/// Bytes of pagelz's tables, however many pages they are trained on.
pub const TABLES_LEN: usize = pagelz::LENGTHS_LEN;

/// Makes a dictionary for `algorithm`, of at most `len_max` bytes, from `pages`, which lie one
/// after the other. Each has [`PAGE_LEN_MAX`] bytes, except that the last may be shorter.
///
/// Pages that are a hundred times as long as the dictionary are enough. The time grows with them.
/// For pagelz, 128 to 512 pages are enough that were taken from everywhere.
///
/// # Errors
///
/// [`TrainError`], if `len_max` is too small, the pages give no dictionary, or memory is short.
pub fn train(algorithm: Algorithm, pages: &[u8], len_max: usize) -> Result<Vec<u8>, TrainError> {
    if len_max < DICTIONARY_LEN_MIN {
        return Err(TrainError::TooSmall);
    }
    match algorithm {
        Algorithm::Pagelz => train_tables(pages, len_max),
        Algorithm::LzoRle
        | Algorithm::Lzo
        | Algorithm::Lz4
        | Algorithm::Lz4hc
        | Algorithm::Zstd
        | Algorithm::Deflate => {
            let lens: Vec<usize> = pages.chunks(PAGE_LEN_MAX).map(<[u8]>::len).collect();
            train_samples(pages, &lens, len_max)
        }
    }
}

/// The tables that pagelz has without a dictionary, as [`train`] would give them.
pub fn shipped_tables() -> Vec<u8> {
    pagelz::SHIPPED_LENGTHS.to_bytes()
}

/// As [`train`] for pagelz. A program that calls this alone does not have Zstandard's trainer,
/// which needs the C library's output.
///
/// # Errors
///
/// Those of [`train`].
pub fn train_tables(pages: &[u8], len_max: usize) -> Result<Vec<u8>, TrainError> {
    if len_max < TABLES_LEN {
        return Err(TrainError::TooSmallForTables);
    }
    if pages.len() <= PAGE_LEN_MAX {
        return Err(TrainError::NothingCommon);
    }
    let lengths = pagelz::train(pages).map_err(|_| TrainError::NoMemory)?;
    Ok(lengths.to_bytes())
}

/// As [`train`] for lz4, lz4hc and zstd, from samples of any length. They lie one after the other,
/// and `lens` has the bytes of each.
///
/// # Errors
///
/// Those of [`train`], and [`TrainError::OtherLength`] if the lengths do not add up.
///
/// ```
/// let sample = |number| format!("{{\"name\": {number}, \"age\": 7}}");
/// let samples: Vec<String> = (0..2000).map(sample).collect();
/// let lens: Vec<usize> = samples.iter().map(String::len).collect();
/// let dictionary = ramfold_codec::train_samples(samples.concat().as_bytes(), &lens, 1024)?;
/// assert!(dictionary.len() <= 1024);
/// # Ok::<(), ramfold_codec::TrainError>(())
/// ```
pub fn train_samples(
    samples: &[u8],
    lens: &[usize],
    len_max: usize,
) -> Result<Vec<u8>, TrainError> {
    if len_max < DICTIONARY_LEN_MIN {
        return Err(TrainError::TooSmall);
    }
    let total = lens.iter().try_fold(0_usize, |sum, &len| sum.checked_add(len));
    if total != Some(samples.len()) {
        return Err(TrainError::OtherLength);
    }
    let mut dictionary: Vec<u8> = Vec::new();
    dictionary.try_reserve_exact(len_max).map_err(|_| TrainError::NoMemory)?;
    let trained = zstd_safe::train_from_buffer(&mut dictionary, samples, lens);
    trained.map_err(|_| TrainError::NothingCommon)?;
    Ok(dictionary)
}
