//! The algorithms, their names and parameters.
//!
//! ```text
//!            level            dictionary   winbits            decompresses without a stream
//!   lzo-rle  -                -            -                  yes
//!   lzo      -                -            -                  yes
//!   lz4      1.. (faster)     yes          -                  yes
//!   lz4hc    1..16            yes          -                  yes
//!   zstd     -131072..22      yes          -                  no
//!   deflate  -1..9            -            -15..-9, 9..15     no
//! ```
//!
//! To add one: a variant here, its row in each `match` of this file, of `page_codec` and `stream`,
//! and a module with `compress` and `decompress`. The compiler points at every place.

use crate::{UnknownAlgorithm, deflate, lz4, lz4hc, zstd};
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// A compression algorithm, under the kernel's name for it.
///
/// The kernel's seventh, 842, is not here: it is made for hardware of POWER machines, and in
/// software both slower and weaker than any of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// LZO with runs of zeros in a code of their own. The kernel's default for zram.
    LzoRle,
    /// LZO1X-1.
    Lzo,
    /// LZ4: fast, above all to decompress. Its level is the acceleration: higher is faster and
    /// compresses less.
    Lz4,
    /// LZ4 searched for longer: smaller, much slower to compress, as fast to decompress.
    Lz4hc,
    /// Zstandard: a third to a half smaller than LZ4, several times slower.
    Zstd,
    /// Deflate, as in zlib: nearly as small as Zstandard, slower in both directions.
    Deflate,
}

impl Algorithm {
    /// Every algorithm, in the kernel's order, in which they are listed to people.
    pub const ALL: &[Self] =
        &[Self::LzoRle, Self::Lzo, Self::Lz4, Self::Lz4hc, Self::Zstd, Self::Deflate];

    /// The kernel's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LzoRle => "lzo-rle",
            Self::Lzo => "lzo",
            Self::Lz4 => "lz4",
            Self::Lz4hc => "lz4hc",
            Self::Zstd => "zstd",
            Self::Deflate => "deflate",
        }
    }

    /// The levels it takes; `None` when it has none.
    pub fn levels(self) -> Option<RangeInclusive<i32>> {
        match self {
            Self::LzoRle | Self::Lzo => None,
            Self::Lz4 => Some(lz4::LEVELS),
            Self::Lz4hc => Some(lz4hc::LEVELS),
            Self::Zstd => Some(zstd::levels()),
            Self::Deflate => Some(deflate::LEVELS),
        }
    }

    /// The level it has unless told otherwise; `None` when it has none.
    pub const fn default_level(self) -> Option<i32> {
        match self {
            Self::LzoRle | Self::Lzo => None,
            Self::Lz4 => Some(lz4::LEVEL_DEFAULT),
            Self::Lz4hc => Some(lz4hc::LEVEL_DEFAULT),
            Self::Zstd => Some(zstd::LEVEL_DEFAULT),
            Self::Deflate => Some(deflate::LEVEL_DEFAULT),
        }
    }

    /// Whether it can use a dictionary.
    pub const fn takes_dictionary(self) -> bool {
        matches!(self, Self::Lz4 | Self::Lz4hc | Self::Zstd)
    }

    /// Whether it has a window to choose.
    pub const fn takes_winbits(self) -> bool {
        matches!(self, Self::Deflate)
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
