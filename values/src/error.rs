//! Why a value, or what values need, was refused.
//!
//! Invariant: an error means that no value has changed, and none was added.

use codec::{CodecError, ParameterError, TrainError};
use std::fmt;
use zsmalloc::{AllocError, MemoryError, StaleHandle};

use crate::form::VALUE_MAX;

/// Why a value, or what values need, was refused.
#[derive(Debug)]
#[non_exhaustive]
pub enum ValuesError {
    /// The value is longer than a value can be.
    TooLong {
        /// Its bytes.
        len: usize,
    },
    /// The number names no value of this pool, or no longer.
    NoValue,
    /// A chain has other frames than it can have.
    BadChain,
    /// The arena is larger than an arena can be.
    ArenaTooLarge,
    /// What is stored is not what was put there, which should never happen.
    Damaged(String),
    /// The pool has no room.
    Alloc(AllocError),
    /// The memory could not be made.
    Memory(MemoryError),
    /// The value could not be compressed, or not be decompressed.
    Codec(CodecError),
    /// The codec cannot use the dictionary.
    Parameter(ParameterError),
    /// No dictionary could be made of the samples.
    Train(TrainError),
}

impl fmt::Display for ValuesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValuesError::TooLong { len } => {
                write!(f, "a value has at most {VALUE_MAX} bytes, not {len}")
            }
            ValuesError::NoValue => {
                f.write_str("the number names no value of this pool, or no longer")
            }
            ValuesError::BadChain => f.write_str("a chain has 1 to 16 frames"),
            ValuesError::ArenaTooLarge => f.write_str("an arena has at most 4 TiB"),
            ValuesError::Damaged(what) => {
                write!(f, "a defect of this library, please report it: {what}")
            }
            ValuesError::Alloc(error) => error.fmt(f),
            ValuesError::Memory(error) => error.fmt(f),
            ValuesError::Codec(error) => error.fmt(f),
            ValuesError::Parameter(error) => error.fmt(f),
            ValuesError::Train(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ValuesError {}

macro_rules! from {
    ($($variant:ident($error:ty)),*) => {$(
        impl From<$error> for ValuesError {
            fn from(error: $error) -> ValuesError {
                ValuesError::$variant(error)
            }
        }
    )*};
}

from!(
    Alloc(AllocError),
    Memory(MemoryError),
    Codec(CodecError),
    Parameter(ParameterError),
    Train(TrainError)
);

impl From<StaleHandle> for ValuesError {
    fn from(_: StaleHandle) -> ValuesError {
        ValuesError::NoValue
    }
}
