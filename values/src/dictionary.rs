//! A dictionary: bytes that values have in common, shared by pools.
//!
//! ```text
//!   content --digested once for each codec--> Codec --clones--> pools
//! ```
//!
//! Invariant: pools that ask for the same algorithm and level share one digest.
//!
//! Lock: that of the digests, of rank `Leaf`, while one is made.

use crate::error::ValuesError;
use codec::Codec;
use host::Rank;
use host::unmodelled::RankedMutex;

/// Bytes that values have in common.
pub struct Dictionary {
    content: Vec<u8>,
    codecs: RankedMutex<Vec<Codec>>,
}

impl std::fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dictionary({} bytes)", self.content.len())
    }
}

impl Dictionary {
    /// A dictionary with this content. A codec says whether it can use it when it is first asked.
    pub fn new(content: Vec<u8>) -> Dictionary {
        Dictionary { content, codecs: RankedMutex::new(Rank::Leaf, Vec::new()) }
    }

    /// Makes a dictionary from samples that lie one after the other.
    ///
    /// # Errors
    ///
    /// [`ValuesError::Train`].
    pub fn train(
        samples: &[u8],
        lens: &[usize],
        len_max: usize,
    ) -> Result<Dictionary, ValuesError> {
        Ok(Dictionary::new(codec::train_samples(samples, lens, len_max)?))
    }

    /// The bytes, for keeping it elsewhere.
    pub fn content(&self) -> &[u8] {
        &self.content
    }

    /// A codec with this dictionary.
    ///
    /// # Errors
    ///
    /// [`ValuesError::Parameter`] if it has no use for a dictionary.
    pub fn codec(&self, plain: &Codec) -> Result<Codec, ValuesError> {
        let mut codecs = self.codecs.lock();
        let shuffle = |codec: &Codec| (codec.shuffle(), codec.samples_shuffle());
        let parameters =
            |codec: &Codec| (codec.algorithm(), codec.level(), codec.winbits(), shuffle(codec));
        if let Some(made) = codecs.iter().find(|made| parameters(made) == parameters(plain)) {
            return Ok(made.clone());
        }
        let made = plain.with_dictionary(&self.content)?;
        codecs.push(made.clone());
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_of_one_codec_share_the_digest() {
        let dictionary = Dictionary::new(vec![7; 2000]);
        let codec = |name: &str| dictionary.codec(&name.parse().expect("a codec"));
        let [one, same, other] = ["lz4", "lz4", "zstd:3"].map(|name| codec(name).expect("it has"));
        assert_eq!(one, same, "dictionaries are equal only to their clones");
        assert_ne!(one, other);
        let plain: Codec = "lz4".parse().expect("a codec");
        let shuffled = dictionary.codec(&plain.with_shuffle(4).expect("a size")).expect("it has");
        assert_eq!(shuffled.shuffle(), Some(4));
        assert_eq!(codec("lz4").expect("it has"), one);
        assert!(matches!(codec("lzo"), Err(ValuesError::Parameter(_))));
    }
}
