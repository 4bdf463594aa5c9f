//! A dictionary that a codec gets later, once there are pages to train it on.
//!
//! ```text
//!   codec --learn--> it has a dictionary, and so have all its clones, for good
//!     |                   |
//!   blobs without       blobs with it
//! ```
//!
//! The descriptor of a frame of Zstandard says whether it needs the dictionary. A block of LZ4 that
//! needs none is read right with any.
//!
//! Invariant: the dictionary is set once, and before any blob is made with it. So a thread that
//! sees such a blob sees the dictionary too, if the blob came to it by a lock.
//!
//! Locks: none.

use super::dictionary::{Dictionary, Learned};
use super::page_codec::Codec;
use super::train::{TrainError, train};
use crate::terms::{Algorithm, ParameterError};

impl Codec {
    /// The same codec, which may [learn](Codec::learn) a dictionary later. Until then it has none.
    /// `None` unless it is Zstandard or LZ4 HC without a dictionary. A frame of Zstandard says
    /// whether it needs one. A block of LZ4 that needs none is read right with any.
    ///
    /// ```
    /// # use ramfold_codec::{Algorithm, Codec, Stream};
    /// let page = |n: u32| format!("{n}: to be, or not to be").repeat(150).into_bytes();
    /// let codec = Codec::new(Algorithm::Zstd).learning().expect("it is Zstandard");
    /// let mut stream = Stream::new();
    /// let before = codec.compress(&mut stream, &page(1))?.to_vec();
    /// assert!(codec.learn(&page(2))?);
    /// let after = codec.compress(&mut stream, &page(3))?.to_vec();
    /// assert!(after.len() < before.len());
    /// for (number, blob) in [(1, before), (3, after)] {
    ///     let mut back = vec![0; page(number).len()];
    ///     codec.decompress(&mut stream, &blob, &mut back)?;
    ///     assert_eq!(back, page(number));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn learning(&self) -> Option<Codec> {
        let algorithms = [Algorithm::Zstd, Algorithm::Lz4hc];
        let can = algorithms.contains(&self.algorithm()) && self.dictionary().is_none();
        let mut codec = self.clone();
        codec.learned = Some(Learned::by(train));
        can.then_some(codec)
    }

    /// Whether it may still learn a dictionary.
    pub fn is_learning(&self) -> bool {
        self.learned.as_ref().is_some_and(|learned| learned.dictionary().is_none())
    }

    /// Makes a dictionary for it, as [`train`](crate::train()) does.
    ///
    /// # Errors
    ///
    /// Those of [`train`](crate::train()), and [`TrainError::NothingCommon`] if it does not learn.
    pub fn train(&self, pages: &[u8], len_max: usize) -> Result<Vec<u8>, TrainError> {
        let learned = self.learned.as_ref().ok_or(TrainError::NothingCommon)?;
        (learned.train)(self.algorithm(), pages, len_max)
    }

    /// Gives `content` as the dictionary to this codec and all its clones, for all pages that they
    /// compress from now on. False if it does not learn, or has learned before. A stream that
    /// compresses with it has several hundred KiB more.
    ///
    /// # Errors
    ///
    /// [`ParameterError`] if the dictionary is empty or damaged, or there is no memory for it.
    pub fn learn(&self, content: &[u8]) -> Result<bool, ParameterError> {
        let Some(learned) = self.learned.as_ref().filter(|_| self.is_learning()) else {
            return Ok(false);
        };
        let level = self.level().unwrap_or_default();
        Ok(learned.set(Dictionary::lean(self.algorithm(), level, content)?))
    }
}
