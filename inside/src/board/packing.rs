//! How the pages of a run are packed, and the word by which the board names it.
//!
//! ```text
//!   word          pages that leave       pages that were out for two ages
//!   zstd:7, ..    that algorithm         as they are
//!   balanced      lz4                    pagelz, with tables of the process, if that saves enough;
//!                                        otherwise lz4 with a longer search
//! ```
//!
//! Invariant: a word has one meaning, for the command and for the library. Lock: none.

use std::time::Duration;
use zram::{Algorithm, Codec, Density, TiersConfig};

/// The length of an age. A page that left is cold already, so it is short.
const AGE: Duration = Duration::from_secs(5);
/// The most CPU time for pages that become denser, in percent of one CPU.
const CPU_PERCENT: u32 = 10;

/// How pages are packed.
#[derive(Debug, Clone)]
pub struct Packing {
    /// The algorithm of pages that leave.
    pub codec: Codec,
    /// What becomes of them later, if anything does.
    pub tiers: Option<TiersConfig>,
}

impl Packing {
    /// The packing of this word; `None` if there is none.
    pub fn named(word: &str) -> Option<Packing> {
        if word == Density::Balanced.name() {
            let tiers = TiersConfig::new(Density::Balanced);
            let tiers = TiersConfig { age: AGE, cpu_percent: CPU_PERCENT, ..tiers };
            return Some(Packing { codec: Codec::new(Algorithm::Lz4), tiers: Some(tiers) });
        }
        word.parse::<Codec>().ok().map(Packing::from)
    }
}

impl From<Codec> for Packing {
    fn from(codec: Codec) -> Packing {
        Packing { codec, tiers: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_an_algorithm_or_the_density_that_has_ages() {
        let of = |word| Packing::named(word).map(|it| (it.codec.to_string(), it.tiers.is_some()));
        assert_eq!(of("zstd:7"), Some(("zstd:7".into(), false)));
        assert_eq!(of("balanced"), Some(("lz4".into(), true)));
        assert_eq!((of("dense"), of("")), (None, None), "the command writes zstd for dense");
    }
}
