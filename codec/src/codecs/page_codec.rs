//! A codec: an algorithm with its parameters, and what it does to a page.
//!
//! ```text
//!   algorithm | level | winbits | dictionary | shuffle      all clones share the dictionary, also
//!                                                           one that is learned later
//!
//!   page --shuffle, if it has one--> algorithm --> blob
//!        --shuffle by a guide------> algorithm --> blob, size of element       one byte behind it
//! ```
//!
//! Invariant: a codec has no parameter that its algorithm does not have. Every constructor checks
//! this.
//!
//! Locks: those of a dictionary.

use super::dictionary::{Dictionary, Learned};
use super::guide::{Guide, WAYS};
use super::shuffle::Element;
use super::stream::{Settings, Stream, decompress_stateless};
use super::unit::UnitPacker;
use crate::algorithms::{deflate, lz4};
use crate::terms::SEARCH_LEVEL;
use crate::terms::{Algorithm, CodecError, PAGE_LEN_MAX, ParameterError};
use std::sync::Arc;

/// An algorithm with its parameters.
///
/// Two codecs are equal if they make the same blobs. A dictionary is equal only to its clones, and
/// so is a codec that [samples](Codec::with_sampled_shuffle).
///
/// ```
/// use ramfold_codec::{Codec, Stream};
/// let codec: Codec = "zstd:7".parse()?;
/// let mut stream = Stream::new();
/// let page = [7; 4096];
/// let blob = codec.compress(&mut stream, &page)?.to_vec();
/// let mut back = [0; 4096];
/// codec.decompress(&mut stream, &blob, &mut back)?;
/// assert_eq!(back, page);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Codec {
    algorithm: Algorithm,
    level: i32,
    winbits: i32,
    dictionary: Option<Arc<Dictionary>>,
    pub(super) learned: Option<Learned>,
    shuffle: Shuffle,
}

/// By which size of element pages are shuffled.
#[derive(Clone, Debug)]
enum Shuffle {
    /// All by the same, or none.
    Fixed(Option<Element>),
    /// Each as its blob says.
    Sampled(Arc<Guide>),
}

/// What a codec is made from. `None` stands for the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parameters<'a> {
    /// The level: for lz4 an acceleration, for the others an effort.
    pub level: Option<i32>,
    /// Bits of deflate's window. A negative number leaves out zlib's frame.
    pub winbits: Option<i32>,
    /// Bytes that pages are expected to have in common. For pagelz they are tables that
    /// [`train`](crate::train) made, or pages to train tables on.
    pub dictionary: Option<&'a [u8]>,
}

impl Codec {
    /// `algorithm` with its default parameters.
    pub const fn new(algorithm: Algorithm) -> Self {
        let level = match algorithm.default_level() {
            Some(level) => level,
            None => 0,
        };
        Self {
            algorithm,
            level,
            winbits: deflate::WINBITS_DEFAULT,
            dictionary: None,
            learned: None,
            shuffle: Shuffle::Fixed(None),
        }
    }

    /// `algorithm` at `level`.
    ///
    /// # Errors
    ///
    /// Those of [`with_parameters`](Self::with_parameters).
    pub fn with_level(algorithm: Algorithm, level: i32) -> Result<Self, ParameterError> {
        let level = Some(level);
        Self::with_parameters(algorithm, &Parameters { level, ..Parameters::default() })
    }

    /// The same codec with `content` as its dictionary, whether it has one or not.
    ///
    /// # Errors
    ///
    /// Those of [`with_parameters`](Self::with_parameters).
    pub fn with_dictionary(&self, content: &[u8]) -> Result<Self, ParameterError> {
        let parameters =
            Parameters { level: self.level(), winbits: self.winbits(), dictionary: Some(content) };
        let codec = Self::with_parameters(self.algorithm, &parameters)?;
        Ok(Codec { shuffle: self.shuffle.clone(), ..codec })
    }

    /// The same codec for pages of numbers with `element_bytes` bytes each.
    ///
    /// It orders the bytes of a page before it compresses: first bytes, then second bytes, and so
    /// on. LZ4 then needs half as much for sorted numbers, and less time. A page of other data may
    /// take a little more. A dictionary is of bytes as they are, so it does not help.
    ///
    /// ```
    /// # use ramfold_codec::{Algorithm, Codec, Stream};
    /// let page: Vec<u8> = (0..512_u64).flat_map(|n| (n * n * 1000).to_le_bytes()).collect();
    /// let plain = Codec::new(Algorithm::Lz4);
    /// let shuffled = plain.with_shuffle(8)?;
    /// let mut stream = Stream::new();
    /// let bytes = plain.compress(&mut stream, &page)?.len();
    /// assert!(shuffled.compress(&mut stream, &page)?.len() < bytes * 2 / 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ParameterError::Element`] unless `element_bytes` is 2, 4 or 8.
    pub fn with_shuffle(&self, element_bytes: usize) -> Result<Self, ParameterError> {
        let shuffle = Shuffle::Fixed(Some(Element::of_bytes(element_bytes)?));
        Ok(Codec { shuffle, ..self.clone() })
    }

    /// The same codec for pages of which nothing is known. It shuffles those that gain by it.
    ///
    /// The first page of a [place](Stream::set_place) and one page in 64 are samples: they are
    /// compressed as they are, and shuffled by elements of 2, 4 and 8 bytes. The other pages of
    /// the place are then compressed in the best of these ways. It has to gain 5 %. While samples
    /// say nothing new, one page in 1024 is one.
    /// Each blob is one byte longer, which says how it was made.
    ///
    /// Clones share what they learned.
    ///
    /// ```
    /// # use ramfold_codec::{Algorithm, Codec, Stream};
    /// let page = |from: u64| -> Vec<u8> {
    ///     (from..from + 512).flat_map(|n| (n * 1_000_003).to_le_bytes()).collect()
    /// };
    /// let codec = Codec::new(Algorithm::Lz4).with_sampled_shuffle();
    /// let mut stream = Stream::new();
    /// let first = codec.compress(&mut stream, &page(0))?.to_vec(); // a sample
    /// let second = codec.compress(&mut stream, &page(9999))?.to_vec();
    /// assert!(second.len() < 2048);
    /// let mut back = [0; 4096];
    /// codec.decompress(&mut stream, &second, &mut back)?;
    /// assert_eq!(back[..], page(9999));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_sampled_shuffle(&self) -> Self {
        Codec { shuffle: Shuffle::Sampled(Arc::new(Guide::new())), ..self.clone() }
    }

    /// Bytes of the elements by which it shuffles all pages; `None` if it does not.
    pub const fn shuffle(&self) -> Option<usize> {
        match self.shuffle {
            Shuffle::Fixed(Some(element)) => Some(element.bytes()),
            Shuffle::Fixed(None) | Shuffle::Sampled(_) => None,
        }
    }

    /// Whether it shuffles the pages that gain by it.
    pub const fn samples_shuffle(&self) -> bool {
        matches!(self.shuffle, Shuffle::Sampled(_))
    }

    /// `algorithm` with any of its parameters. A dictionary is digested here, once.
    ///
    /// # Errors
    ///
    /// [`ParameterError`] in these cases. The algorithm does not have the parameter
    /// ([`is_unsupported`](ParameterError::is_unsupported)). The value is outside its range. The
    /// dictionary is empty or damaged, or there is no memory to digest it.
    pub fn with_parameters(
        algorithm: Algorithm,
        parameters: &Parameters<'_>,
    ) -> Result<Self, ParameterError> {
        let mut codec = Self::new(algorithm);
        if let Some(level) = parameters.level {
            let levels = algorithm.levels().ok_or(ParameterError::NoLevels(algorithm))?;
            if !levels.contains(&level) {
                return Err(ParameterError::Level { algorithm, level });
            }
            codec.level = level;
        }
        if let Some(winbits) = parameters.winbits {
            if !algorithm.takes_winbits() {
                return Err(ParameterError::NoWinbits(algorithm));
            }
            if !deflate::is_winbits(winbits) {
                return Err(ParameterError::Winbits(winbits));
            }
            codec.winbits = winbits;
        }
        if let Some(content) = parameters.dictionary {
            codec.dictionary = Some(Arc::new(Dictionary::new(algorithm, codec.level, content)?));
        }
        Ok(codec)
    }

    /// The algorithm.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The level; `None` if the algorithm has none.
    pub const fn level(&self) -> Option<i32> {
        match self.algorithm.default_level() {
            Some(_) => Some(self.level),
            None => None,
        }
    }

    /// Bits of deflate's window; `None` for every other algorithm.
    pub const fn winbits(&self) -> Option<i32> {
        if self.algorithm.takes_winbits() { Some(self.winbits) } else { None }
    }

    /// Bytes on the heap of its dictionary and of what its samples taught, which all clones share;
    /// 0 if it has neither. They are not in [`Stream::heap_bytes`].
    pub fn dictionary_bytes(&self) -> usize {
        let learned = match &self.shuffle {
            Shuffle::Sampled(guide) => guide.heap_bytes(),
            Shuffle::Fixed(_) => 0,
        };
        learned + self.dictionary().map_or(0, Dictionary::heap_bytes)
    }

    /// The same codec with a longer search, of which it decompresses the blobs as its own. They are
    /// shorter, and take no longer to decompress. `None` unless it is LZ4 without a dictionary.
    ///
    /// ```
    /// # use ramfold_codec::{Codec, Stream};
    /// let page: Vec<u8> = (0..4096_u32).map(|at| (at * at / 700) as u8 & 31).collect();
    /// let (codec, mut stream, mut back) = ("lz4".parse::<Codec>()?, Stream::new(), [0; 4096]);
    /// let blob = codec.searched().expect("LZ4").compress(&mut stream, &page)?.to_vec();
    /// codec.decompress(&mut stream, &blob, &mut back)?;
    /// assert!(back[..] == page && blob.len() < codec.compress(&mut stream, &page)?.len());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn searched(&self) -> Option<Codec> {
        let searched = Codec { algorithm: Algorithm::Lz4hc, level: SEARCH_LEVEL, ..self.clone() };
        (self.algorithm == Algorithm::Lz4 && self.dictionary.is_none()).then_some(searched)
    }

    /// Whether it can compress units of several pages. The others lose more time than they gain.
    pub const fn packs_units(&self) -> bool {
        matches!(self.algorithm, Algorithm::Zstd)
    }

    /// What compresses units at its level, without its dictionary or shuffle.
    /// [`Stream::unpack_unit`] gives them back.
    ///
    /// ```
    /// # use ramfold_codec::{Codec, Stream};
    /// let codec: Codec = "zstd".parse()?;
    /// let unit: Vec<u8> = (0..4 * 4096_u32).map(|at| (at * at / 97) as u8).collect();
    /// let frame = codec.unit_packer()?.pack(&unit)?.to_vec();
    /// let mut stream = Stream::new();
    /// let fill = |room: &mut [u8]| {
    ///     room.copy_from_slice(&frame);
    ///     true
    /// };
    /// assert!(stream.unpack_unit(frame.len(), unit.len(), fill)? == unit);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`CodecError::Refused`] unless it [packs units](Codec::packs_units).
    /// [`CodecError::NoMemory`].
    pub fn unit_packer(&self) -> Result<UnitPacker, CodecError> {
        if self.packs_units() { UnitPacker::new(self.level) } else { Err(CodecError::Refused) }
    }

    fn settings(&self) -> Settings<'_> {
        let Self { algorithm, level, winbits, .. } = *self;
        Settings { algorithm, level, winbits, dictionary: self.dictionary() }
    }

    /// The dictionary that it has now.
    pub(super) fn dictionary(&self) -> Option<&Dictionary> {
        self.dictionary.as_deref().or_else(|| self.learned.as_ref()?.dictionary())
    }

    /// Compresses a page of 1 to [`PAGE_LEN_MAX`] bytes.
    ///
    /// The blob lies in the stream until its next use. It may be longer than the page. The caller
    /// decides whether it is short enough to be kept.
    ///
    /// # Errors
    ///
    /// [`CodecError::PageLength`] for a page of another length, [`CodecError::NoMemory`] if there
    /// is none for the contexts, and [`CodecError::Refused`] if the library gives up.
    pub fn compress<'s>(
        &self,
        stream: &'s mut Stream,
        page: &[u8],
    ) -> Result<&'s [u8], CodecError> {
        check_page_len(page.len())?;
        match &self.shuffle {
            Shuffle::Fixed(None) => stream.compress(self.settings(), page),
            Shuffle::Fixed(Some(element)) => self.compress_shuffled(*element, stream, page),
            Shuffle::Sampled(guide) => self.compress_guided(guide, stream, page),
        }
    }

    /// Not inlined, because it is only for codecs that sample.
    #[inline(never)]
    fn compress_guided<'s>(
        &self,
        guide: &Guide,
        stream: &'s mut Stream,
        page: &[u8],
    ) -> Result<&'s [u8], CodecError> {
        let place = stream.place();
        let is_due = stream.is_sample(guide.every());
        let way = if is_due || guide.is_new(place) {
            let mut lens = [0; WAYS.len()];
            for (len, &way) in lens.iter_mut().zip(&WAYS) {
                *len = self.compress_as(way, stream, page)?.len();
            }
            guide.learn(place, lens)
        } else {
            guide.way(place)
        };
        self.compress_as(WAYS[way], stream, page)?;
        Ok(stream.with_end(way as u8))
    }

    fn compress_as<'s>(
        &self,
        way: Option<Element>,
        stream: &'s mut Stream,
        page: &[u8],
    ) -> Result<&'s [u8], CodecError> {
        match way {
            None => stream.compress(self.settings(), page),
            Some(element) => self.compress_shuffled(element, stream, page),
        }
    }

    /// Not inlined, because its page on the stack is only for codecs that shuffle.
    #[inline(never)]
    fn compress_shuffled<'s>(
        &self,
        element: Element,
        stream: &'s mut Stream,
        page: &[u8],
    ) -> Result<&'s [u8], CodecError> {
        let mut room = [0; PAGE_LEN_MAX];
        let shuffled = &mut room[..page.len()];
        element.shuffle(page, shuffled);
        stream.compress(self.settings(), shuffled)
    }

    /// Fills `page` from a blob that this algorithm made from a page just as long.
    ///
    /// The level may have been another, but not the dictionary, the sign of winbits, or the
    /// shuffle. Any other blob is an error, or it fills `page` with arbitrary bytes.
    ///
    /// # Errors
    ///
    /// [`CodecError::Corrupt`] if the blob cannot be such a one. [`CodecError::PageLength`] if the
    /// page does not have 1 to [`PAGE_LEN_MAX`] bytes. [`CodecError::NoMemory`] if there is none
    /// for the context. After an error `page` holds arbitrary bytes.
    pub fn decompress(
        &self,
        stream: &mut Stream,
        blob: &[u8],
        page: &mut [u8],
    ) -> Result<(), CodecError> {
        check_page_len(page.len())?;
        let (element, blob) = self.element_of(blob)?;
        unshuffled(element, page, |page| stream.decompress(self.settings(), blob, page))
    }

    /// Whether only a stream can decompress its blobs. Then
    /// [`decompress_stateless`](Self::decompress_stateless) is an error.
    pub const fn needs_stream_to_decompress(&self) -> bool {
        !self.algorithm.is_stateless()
    }

    /// Like [`decompress`](Self::decompress), but without a stream, and therefore without a lock or
    /// an allocation.
    ///
    /// # Errors
    ///
    /// Those of [`decompress`](Self::decompress), and [`CodecError::NeedsStream`] if the algorithm
    /// [needs a stream](Self::needs_stream_to_decompress).
    pub fn decompress_stateless(&self, blob: &[u8], page: &mut [u8]) -> Result<(), CodecError> {
        check_page_len(page.len())?;
        let (element, blob) = self.element_of(blob)?;
        unshuffled(element, page, |page| decompress_stateless(self.settings(), blob, page))
    }

    /// By which elements the page of a blob was shuffled, and the blob of its algorithm.
    #[inline]
    fn element_of<'b>(&self, blob: &'b [u8]) -> Result<(Option<Element>, &'b [u8]), CodecError> {
        match self.shuffle {
            Shuffle::Fixed(element) => Ok((element, blob)),
            Shuffle::Sampled(_) => {
                let (&way, blob) = blob.split_last().ok_or(CodecError::Corrupt)?;
                let element = WAYS.get(usize::from(way)).ok_or(CodecError::Corrupt)?;
                Ok((*element, blob))
            }
        }
    }

    /// Bytes that a library allocates once for every thread that compresses with this codec. They
    /// are freed when the thread ends. They are not in [`Stream::heap_bytes`].
    pub const fn thread_bytes(&self) -> usize {
        match (self.algorithm, &self.dictionary) {
            (Algorithm::Lz4, None) => lz4::THREAD_BYTES,
            (Algorithm::Lz4, Some(_)) => 0,
            (Algorithm::LzoRle | Algorithm::Lzo | Algorithm::Lz4hc, _) => 0,
            (Algorithm::Zstd | Algorithm::Deflate | Algorithm::Pagelz, _) => 0,
        }
    }
}

/// Fills a page by `decompress`, and orders its bytes if they were shuffled.
#[inline]
fn unshuffled(
    element: Option<Element>,
    page: &mut [u8],
    decompress: impl FnOnce(&mut [u8]) -> Result<(), CodecError>,
) -> Result<(), CodecError> {
    match element {
        None => decompress(page),
        Some(element) => unshuffled_by(element, page, decompress),
    }
}

/// Not inlined, for the same reason as `compress_shuffled`.
#[inline(never)]
fn unshuffled_by(
    element: Element,
    page: &mut [u8],
    decompress: impl FnOnce(&mut [u8]) -> Result<(), CodecError>,
) -> Result<(), CodecError> {
    let mut room = [0; PAGE_LEN_MAX];
    let shuffled = &mut room[..page.len()];
    decompress(shuffled)?;
    element.unshuffle(shuffled, page);
    Ok(())
}

impl PartialEq for Codec {
    fn eq(&self, other: &Self) -> bool {
        let same_dictionary = match (&self.dictionary, &other.dictionary) {
            (None, None) => true,
            (Some(mine), Some(theirs)) => Arc::ptr_eq(mine, theirs),
            _ => false,
        } && self.learned == other.learned;
        let same_shuffle = match (&self.shuffle, &other.shuffle) {
            (Shuffle::Fixed(mine), Shuffle::Fixed(theirs)) => mine == theirs,
            (Shuffle::Sampled(mine), Shuffle::Sampled(theirs)) => Arc::ptr_eq(mine, theirs),
            _ => false,
        };
        let parameters = |codec: &Self| (codec.algorithm, codec.level, codec.winbits);
        same_dictionary && same_shuffle && parameters(self) == parameters(other)
    }
}

impl Eq for Codec {}

fn check_page_len(len: usize) -> Result<(), CodecError> {
    if (1..=PAGE_LEN_MAX).contains(&len) { Ok(()) } else { Err(CodecError::PageLength(len)) }
}
