//! Zstandard frames with everything left out that a page store knows already: no magic number,
//! no content size, no checksum, no dictionary id.
//!
//! ```text
//!   descriptor 1 | window 1 | block header 3 | block ...          5 bytes, instead of 13
//!   descriptor 1 | length 2 | block header 3 | block ...          6 bytes, with a dictionary
//! ```
//!
//! With a dictionary the library always writes the magic number and the dictionary's id, even if it
//! is told not to. They are cut off, and the descriptor is moved up to the rest of the frame. Such
//! a frame has a length in place of a window, so the descriptor tells which frames need a
//! dictionary.
//!
//! Contexts are built on first use, one direction at a time. So a disk that is only read never
//! pays for compressing.
//!
//! Invariant: a compressor's tables are as large as a whole page needs at its level, so whole pages
//! never make the library allocate. Shorter pages may. From the 129th page on, the library gives up
//! tables that are three times larger than the current page needs. It builds them again for the
//! next whole page. The library itself says how many bytes it holds, so the count is always right.
//!
//! Locks: none.

use super::kept::{Kept, number_of_dictionary};
use crate::terms::{CodecError, PAGE_LEN_MAX, ParameterError, UNIT_LEN_MAX};
use std::ops::Range;
use zstd_safe::{CCtx, CDict, CParameter, DCtx, DDict, DParameter, FrameFormat};

/// The largest distance a match can have within a page.
const WINDOW_LOG: u32 = 12;

const _: () = assert!(1 << WINDOW_LOG == PAGE_LEN_MAX, "the window is exactly a page");

/// The largest distance a match can have within a unit of several pages.
const UNIT_WINDOW_LOG: u32 = 16;

const _: () = assert!(1 << UNIT_WINDOW_LOG == UNIT_LEN_MAX, "the window is the longest unit");

/// `ZSTD_error_memory_allocation`. The library returns errors as negated codes.
const MEMORY_ALLOCATION: usize = 64_usize.wrapping_neg();

/// The longest blob that `len` bytes can become.
pub(crate) fn bound(len: usize) -> usize {
    zstd_safe::compress_bound(len)
}

/// The magic number of a trained dictionary. The library takes any other bytes as they are.
const TRAINED: [u8; 4] = 0xec30_a437_u32.to_le_bytes();
/// Bytes of the magic number.
const MAGIC_LEN: usize = 4;
/// The bits of a frame's descriptor that say how long the dictionary's id is.
const ID_LEN_BITS: u8 = 0b11;
/// The bit of a frame's descriptor that says that it has a length, and no window.
const SINGLE_SEGMENT: u8 = 1 << 5;
/// Lengths of the id by those bits.
const ID_LENS: [usize; 4] = [0, 1, 2, 4];
const _: () = assert!(ID_LENS.len() == ID_LEN_BITS as usize + 1, "a length for each value");

/// What a compression context is built for: a level, and a dictionary by its number. A context may
/// have a digest of its own, so it must never be taken for that of another dictionary.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    level: i32,
    dictionary: Option<u64>,
}

/// What Zstandard keeps between pages.
#[derive(Default)]
pub(crate) struct Contexts {
    compressors: Kept<Key, CCtx<'static>>,
    decompressor: Option<DCtx<'static>>,
}

impl Contexts {
    /// Bytes the library has allocated, and the list of contexts.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.compressors.heap_bytes(|_, context| context.sizeof())
            + self.decompressor.as_ref().map_or(0, DCtx::sizeof)
    }

    /// Compresses `page` into `output`, which must have room for its [`bound`].
    pub(crate) fn compress(
        &mut self,
        page: &[u8],
        output: &mut [u8],
        level: i32,
    ) -> Result<usize, CodecError> {
        let key = Key { level, dictionary: None };
        let context = self.compressors.get(key, || new_compressor(level, output))?;
        context.compress2(output, page).map_err(from_code)
    }

    /// Like [`compress`](Self::compress), with a dictionary. Gives where in `output` the blob is.
    pub(crate) fn compress_with(
        &mut self,
        dictionary: &Dictionary,
        page: &[u8],
        output: &mut [u8],
        level: i32,
    ) -> Result<Range<usize>, CodecError> {
        let key = Key { level, dictionary: Some(dictionary.number) };
        let context = self.compressors.get(key, || dictionary.new_compressor(output))?;
        dictionary.compress(context, page, output)
    }

    /// Fills `page` from `blob`.
    pub(crate) fn decompress(&mut self, blob: &[u8], page: &mut [u8]) -> Result<(), CodecError> {
        whole(self.decompressor()?.decompress(page, blob), page.len())
    }

    /// Like [`decompress`](Self::decompress), for a blob that was made with a dictionary, or before
    /// there was one.
    pub(crate) fn decompress_with(
        &mut self,
        dictionary: &Dictionary,
        blob: &[u8],
        page: &mut [u8],
    ) -> Result<(), CodecError> {
        if blob.first().is_none_or(|descriptor| descriptor & SINGLE_SEGMENT == 0) {
            return self.decompress(blob, page);
        }
        let context = self.decompressor()?;
        whole(context.decompress_using_ddict(page, blob, &dictionary.decompress), page.len())
    }

    /// Builds what reading needs.
    pub(crate) fn prepare_to_read(&mut self) -> Result<(), CodecError> {
        self.decompressor().map(|_| ())
    }

    fn decompressor(&mut self) -> Result<&mut DCtx<'static>, CodecError> {
        match &mut self.decompressor {
            Some(context) => Ok(context),
            none => Ok(none.insert(new_decompressor()?)),
        }
    }
}

fn whole(outcome: Result<usize, usize>, page_len: usize) -> Result<(), CodecError> {
    match outcome {
        Ok(len) if len == page_len => Ok(()),
        Err(MEMORY_ALLOCATION) => Err(CodecError::NoMemory),
        _ => Err(CodecError::Corrupt),
    }
}

/// Where the blob begins in a frame that has a magic number and perhaps an id.
fn cut_frame(frame: &mut [u8]) -> usize {
    let descriptor = frame[MAGIC_LEN];
    let start = MAGIC_LEN + ID_LENS[usize::from(descriptor & ID_LEN_BITS)];
    frame[start] = descriptor & !ID_LEN_BITS;
    start
}

/// A context for one level that has compressed one page into `scratch`. The library sizes its
/// tables by its input. After a whole page here, no later page makes it allocate.
fn new_compressor(level: i32, scratch: &mut [u8]) -> Result<CCtx<'static>, CodecError> {
    let mut context = empty_compressor(level, Some(WINDOW_LOG))?;
    context.compress2(scratch, &[0; PAGE_LEN_MAX]).map_err(from_code)?;
    Ok(context)
}

/// A context for one level that has compressed nothing yet.
fn empty_compressor(level: i32, window_log: Option<u32>) -> Result<CCtx<'static>, CodecError> {
    let mut context = CCtx::try_create().ok_or(CodecError::NoMemory)?;
    let parameters = [
        CParameter::Format(FrameFormat::Magicless),
        CParameter::ContentSizeFlag(false),
        CParameter::ChecksumFlag(false),
        CParameter::DictIdFlag(false),
        CParameter::CompressionLevel(level),
    ];
    for parameter in parameters.into_iter().chain(window_log.map(CParameter::WindowLog)) {
        context.set_parameter(parameter).map_err(from_code)?;
    }
    Ok(context)
}

/// Compresses units of several pages. It is several times as large as a compressor of pages.
pub(crate) struct UnitCompressor(CCtx<'static>);

impl UnitCompressor {
    /// A compressor that has compressed the longest unit into `scratch`, so that no other makes the
    /// library allocate.
    pub(crate) fn new(level: i32, scratch: &mut [u8]) -> Result<Self, CodecError> {
        let mut context = empty_compressor(level, Some(UNIT_WINDOW_LOG))?;
        context.compress2(scratch, &[0; UNIT_LEN_MAX]).map_err(from_code)?;
        Ok(Self(context))
    }

    /// Compresses `unit` into `output`, which must have room for its [`bound`].
    pub(crate) fn compress(&mut self, unit: &[u8], output: &mut [u8]) -> Result<usize, CodecError> {
        self.0.compress2(output, unit).map_err(from_code)
    }

    /// Bytes the library has allocated.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.0.sizeof()
    }
}

/// A dictionary for one level, shared by all contexts.
pub(crate) struct Dictionary {
    /// No other dictionary of this process has it.
    number: u64,
    compress: Digest,
    decompress: DDict<'static>,
}

/// What compresses with a dictionary.
enum Digest {
    /// Digested once. It takes several hundred KiB for as long as the dictionary lives.
    Kept(CDict<'static>),
    /// Digested by every context that compresses with it, for as long as the context lives.
    ByContext(Box<[u8]>, i32),
}

impl Dictionary {
    /// Digests `content`, a trained dictionary or any bytes.
    pub(crate) fn new(content: &[u8], level: i32) -> Result<Self, ParameterError> {
        let digest = CDict::try_create(content, level).ok_or(failed(content))?;
        Self::with(Digest::Kept(digest), content)
    }

    /// The same, for a dictionary with which few contexts compress, and for a short time.
    pub(crate) fn lean(content: &[u8], level: i32) -> Result<Self, ParameterError> {
        // The library refuses a damaged one when it is digested.
        drop(CDict::try_create(content, level).ok_or(failed(content))?);
        Self::with(Digest::ByContext(content.into(), level), content)
    }

    fn with(compress: Digest, content: &[u8]) -> Result<Self, ParameterError> {
        let decompress = DDict::try_create(content).ok_or(failed(content))?;
        Ok(Self { number: number_of_dictionary(), compress, decompress })
    }

    /// Bytes the library has allocated, and those of the content.
    pub(crate) fn heap_bytes(&self) -> usize {
        let compress = match &self.compress {
            Digest::Kept(digest) => digest.sizeof(),
            Digest::ByContext(content, _) => content.len(),
        };
        compress + self.decompress.sizeof()
    }

    fn new_compressor(&self, scratch: &mut [u8]) -> Result<CCtx<'static>, CodecError> {
        let mut context = match &self.compress {
            Digest::Kept(_) => CCtx::try_create().ok_or(CodecError::NoMemory)?,
            Digest::ByContext(content, level) => digesting_compressor(content, *level)?,
        };
        self.compress(&mut context, &[0; PAGE_LEN_MAX], scratch)?;
        Ok(context)
    }

    /// Gives where in `output` the blob is.
    fn compress(
        &self,
        context: &mut CCtx<'static>,
        page: &[u8],
        output: &mut [u8],
    ) -> Result<Range<usize>, CodecError> {
        match &self.compress {
            Digest::Kept(digest) => {
                let len = context.compress_using_cdict(output, page, digest).map_err(from_code)?;
                Ok(cut_frame(&mut output[..len])..len)
            }
            Digest::ByContext(..) => Ok(0..context.compress2(output, page).map_err(from_code)?),
        }
    }
}

/// Why a dictionary with this content cannot be made.
fn failed(content: &[u8]) -> ParameterError {
    match content.starts_with(&TRAINED) {
        true => ParameterError::DamagedDictionary,
        false => ParameterError::NoMemory,
    }
}

/// A context that has its own digest of a dictionary. Its frames have a length, which says that
/// they need the dictionary.
fn digesting_compressor(content: &[u8], level: i32) -> Result<CCtx<'static>, CodecError> {
    // The library chooses a window that has the page and the dictionary.
    let mut context = empty_compressor(level, None)?;
    context.set_parameter(CParameter::ContentSizeFlag(true)).map_err(from_code)?;
    context.load_dictionary(content).map_err(from_code)?;
    Ok(context)
}

fn new_decompressor() -> Result<DCtx<'static>, CodecError> {
    let mut context = DCtx::try_create().ok_or(CodecError::NoMemory)?;
    context.set_parameter(DParameter::Format(FrameFormat::Magicless)).map_err(from_code)?;
    Ok(context)
}

fn from_code(code: usize) -> CodecError {
    if code == MEMORY_ALLOCATION { CodecError::NoMemory } else { CodecError::Refused }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_for_no_memory_is_the_librarys() {
        assert!(zstd_safe::get_error_name(MEMORY_ALLOCATION).contains("not enough memory"));
        assert_eq!(from_code(MEMORY_ALLOCATION), CodecError::NoMemory);
        assert_eq!(from_code(MEMORY_ALLOCATION + 1), CodecError::Refused);
    }
}
