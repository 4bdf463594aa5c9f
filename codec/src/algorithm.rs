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
//! To add one, write a line of `algorithms!` below and a module with `compress`, `decompress` and
//! `bound`. The compiler then points at every `match` that needs an arm. A test of the command
//! points at the help texts and the manual. CONTRIBUTING.md lists the files.
//!
//! Invariant: no `match` on an algorithm has a wildcard arm in this crate.

use crate::{UnknownAlgorithm, deflate, lz4, lz4hc, lzo, zstd};
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Defines the variants, their names and the list of all, so that none can be left out of a list.
macro_rules! algorithms {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// A compression algorithm, under the kernel's name for it.
        ///
        /// The kernel's seventh, 842, is not here. It is made for hardware of POWER machines, and
        /// in software it is both slower and weaker than any of these.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Algorithm {
            $($(#[$doc])* $variant,)*
        }

        impl Algorithm {
            /// Every algorithm, in the kernel's order, in which they are listed to people.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The kernel's name.
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
}

impl Algorithm {
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
        match self {
            Self::Lz4 | Self::Lz4hc | Self::Zstd => true,
            Self::LzoRle | Self::Lzo | Self::Deflate => false,
        }
    }

    /// Whether it has a window to choose.
    pub const fn takes_winbits(self) -> bool {
        match self {
            Self::Deflate => true,
            Self::LzoRle | Self::Lzo | Self::Lz4 | Self::Lz4hc | Self::Zstd => false,
        }
    }

    /// Whether it decompresses without a context, and so without a stream.
    pub(crate) const fn is_stateless(self) -> bool {
        match self {
            Self::LzoRle | Self::Lzo | Self::Lz4 | Self::Lz4hc => true,
            Self::Zstd | Self::Deflate => false,
        }
    }

    /// The longest blob of a page of `len` bytes.
    pub(crate) fn bound(self, len: usize) -> usize {
        match self {
            Self::LzoRle | Self::Lzo => lzo::bound(len),
            Self::Lz4 | Self::Lz4hc => lz4::bound(len),
            Self::Zstd => zstd::bound(len),
            Self::Deflate => deflate::bound(len),
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
