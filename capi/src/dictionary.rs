//! A dictionary: bytes that values have in common, shared by pools.
//!
//! ```text
//!   content --digested once for each codec--> Codec --clones--> pools
//! ```
//!
//! Invariant: pools that ask for the same algorithm and level share one digest.
//!
//! Lock: that of the digests, of rank `Leaf`, while one is made.

use crate::code::Failure;
use codec::Codec;
use host::Rank;
use host::unmodelled::RankedMutex;

/// See the head of this file.
pub(crate) struct Dictionary {
    content: Vec<u8>,
    codecs: RankedMutex<Vec<Codec>>,
}

impl Dictionary {
    /// A dictionary with this content. A codec says whether it can use it when it is first asked.
    pub(crate) fn new(content: Vec<u8>) -> Dictionary {
        Dictionary { content, codecs: RankedMutex::new(Rank::Leaf, Vec::new()) }
    }

    /// Makes a dictionary from samples that lie one after the other.
    pub(crate) fn train(
        samples: &[u8],
        lens: &[usize],
        len_max: usize,
    ) -> Result<Dictionary, Failure> {
        Ok(Dictionary::new(codec::train_samples(samples, lens, len_max)?))
    }

    /// The bytes, for keeping it elsewhere.
    pub(crate) fn content(&self) -> &[u8] {
        &self.content
    }

    /// A codec with this dictionary.
    pub(crate) fn codec(&self, plain: &Codec) -> Result<Codec, Failure> {
        let mut codecs = self.codecs.lock();
        let parameters = |codec: &Codec| (codec.algorithm(), codec.level(), codec.winbits());
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
    use crate::code::Code;

    #[test]
    fn pools_of_one_codec_share_the_digest() {
        let dictionary = Dictionary::new(vec![7; 2000]);
        let codec = |name: &str| dictionary.codec(&name.parse().expect("a codec"));
        let [one, same, other] = ["lz4", "lz4", "zstd:3"].map(|name| codec(name).expect("it has"));
        assert_eq!(one, same, "dictionaries are equal only to their clones");
        assert_ne!(one, other);
        assert_eq!(codec("lzo").expect_err("it has none").code, Code::Unsupported);
    }
}
