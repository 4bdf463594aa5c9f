//! The algorithms, their names and levels.
//!
//! To add one: a variant here, its row in each `match` of this file and of `page_codec`, and a
//! module with `compress` and `decompress`. The compiler points at every place.

use crate::{UnknownAlgorithm, lz4, zstd};
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// A compression algorithm, under the kernel's name for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// LZ4: fast, above all to decompress. Its level is the acceleration: higher is faster and
    /// compresses less.
    Lz4,
    /// Zstandard: a third to a half smaller than LZ4, several times slower.
    Zstd,
}

impl Algorithm {
    /// Every algorithm, in the order in which they are listed to people.
    pub const ALL: &[Self] = &[Self::Lz4, Self::Zstd];

    /// The kernel's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    /// The levels it takes.
    pub fn levels(self) -> RangeInclusive<i32> {
        match self {
            Self::Lz4 => lz4::LEVELS,
            Self::Zstd => zstd::levels(),
        }
    }

    /// The level it has unless told otherwise.
    pub const fn default_level(self) -> i32 {
        match self {
            Self::Lz4 => lz4::LEVEL_DEFAULT,
            Self::Zstd => zstd::LEVEL_DEFAULT,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Self, UnknownAlgorithm> {
        let known = Self::ALL.iter().copied().find(|algorithm| algorithm.name() == name);
        known.ok_or_else(|| UnknownAlgorithm::new(name))
    }
}
