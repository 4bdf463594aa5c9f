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
//!   pagelz   1..2             tables       -                  yes
//! ```
//!
//! To add one, write a line of `algorithms!` below and a module with `compress`, `decompress` and
//! `bound`. The compiler then points at every `match` that needs an arm. A test of the command
//! points at the help texts and the manual. CONTRIBUTING.md lists the files.
//!
//! Invariant: no `match` on an algorithm has a wildcard arm in this crate. Locks: none.

use std::ops::RangeInclusive;
use std::str::FromStr;
use std::{error, fmt};

/// Accelerations of LZ4. The library clamps above the largest.
const LZ4_LEVELS: RangeInclusive<i32> = 1..=65537;
/// No acceleration: the best LZ4's fast compressor does.
const LZ4_LEVEL_DEFAULT: i32 = 1;
/// The kernel's range. The library treats a level above 12 as 12.
const LZ4HC_LEVELS: RangeInclusive<i32> = 1..=16;
/// The library's own default, which is the kernel's too.
const LZ4HC_LEVEL_DEFAULT: i32 = lzzzz::lz4_hc::CLEVEL_DEFAULT;
/// Of lz4hc, for a longer search. The default takes twice as long and gains little more.
pub(crate) const SEARCH_LEVEL: i32 = 4;
/// The library's own default.
const ZSTD_LEVEL_DEFAULT: i32 = 3;
/// From the fastest to the smallest; 0 stores, and -1 is as small as the kernel's default.
const DEFLATE_LEVELS: RangeInclusive<i32> = -1..=9;
/// Literals as they are, and literals that are coded where it pays.
const PAGELZ_LEVELS: RangeInclusive<i32> = 1..=2;
/// Literals are coded.
const PAGELZ_LEVEL_DEFAULT: i32 = 2;
/// The kernel's default, by its number.
pub(crate) const DEFLATE_LEVEL_DEFAULT: i32 = -1;

/// Defines the variants, their names and the list of all, so that none can be left out of a list.
macro_rules! algorithms {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// A compression algorithm, under the kernel's name for it if the kernel has it.
        ///
        /// The kernel's seventh, 842, is not here. It is made for hardware of POWER machines, and
        /// in software it is both slower and weaker than any of these.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Algorithm {
            $($(#[$doc])* $variant,)*
        }

        impl Algorithm {
            /// Every algorithm: the kernel's in its order, then ours. So they are listed to people.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

algorithms! {
    /// LZO with runs of zeros in a code of their own. The kernel's default for zram.
    LzoRle = "lzo-rle",
    /// LZO1X-1.
    Lzo = "lzo",
    /// LZ4: fast, above all to decompress. Its level is the acceleration: higher is faster and
    /// compresses less.
    Lz4 = "lz4",
    /// LZ4 searched for longer: smaller, much slower to compress, as fast to decompress.
    Lz4hc = "lz4hc",
    /// Zstandard: a third to a half smaller than LZ4, several times slower.
    Zstd = "zstd",
    /// Deflate, as in zlib: nearly as small as Zstandard, slower in both directions.
    Deflate = "deflate",
    /// Our own, for pages of a program's memory: a quarter smaller than LZ4, half as long again to
    /// compress and to decompress.
    Pagelz = "pagelz",
}

impl Algorithm {
    /// The levels it takes; `None` if it has none.
    pub fn levels(self) -> Option<RangeInclusive<i32>> {
        match self {
            Self::LzoRle | Self::Lzo => None,
            Self::Lz4 => Some(LZ4_LEVELS),
            Self::Lz4hc => Some(LZ4HC_LEVELS),
            // From -131072 to 22. Level 0 means the default.
            Self::Zstd => Some(zstd_safe::min_c_level()..=zstd_safe::max_c_level()),
            Self::Deflate => Some(DEFLATE_LEVELS),
            Self::Pagelz => Some(PAGELZ_LEVELS),
        }
    }

    /// The level it has unless another is chosen; `None` if it has none.
    pub const fn default_level(self) -> Option<i32> {
        match self {
            Self::LzoRle | Self::Lzo => None,
            Self::Lz4 => Some(LZ4_LEVEL_DEFAULT),
            Self::Lz4hc => Some(LZ4HC_LEVEL_DEFAULT),
            Self::Zstd => Some(ZSTD_LEVEL_DEFAULT),
            Self::Deflate => Some(DEFLATE_LEVEL_DEFAULT),
            Self::Pagelz => Some(PAGELZ_LEVEL_DEFAULT),
        }
    }

    /// Whether it can use a dictionary.
    pub const fn takes_dictionary(self) -> bool {
        match self {
            Self::Lz4 | Self::Lz4hc | Self::Zstd | Self::Pagelz => true,
            Self::LzoRle | Self::Lzo | Self::Deflate => false,
        }
    }

    /// Whether it has a window to choose.
    pub const fn takes_winbits(self) -> bool {
        match self {
            Self::Deflate => true,
            Self::LzoRle | Self::Lzo | Self::Lz4 | Self::Lz4hc => false,
            Self::Zstd | Self::Pagelz => false,
        }
    }

    /// Whether it decompresses without a context, and therefore without a stream.
    pub(crate) const fn is_stateless(self) -> bool {
        match self {
            Self::LzoRle | Self::Lzo | Self::Lz4 | Self::Lz4hc | Self::Pagelz => true,
            Self::Zstd | Self::Deflate => false,
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
        known.ok_or_else(|| UnknownAlgorithm { name: name.to_owned() })
    }
}

/// A name that no algorithm here has. Its message lists those that exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownAlgorithm {
    name: String,
}

impl fmt::Display for UnknownAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.as_str() {
            "842" => f.write_str("842 is not offered; there are:")?,
            name => write!(f, "unknown algorithm {name:?}; known:")?,
        }
        Algorithm::ALL.iter().try_for_each(|algorithm| write!(f, " {algorithm}"))
    }
}

impl error::Error for UnknownAlgorithm {}
