//! Zstandard frames with everything left out that a page store knows already: no magic number,
//! no content size, no checksum, no dictionary id.
//!
//! ```text
//!   descriptor 1 | window 1 | block header 3 | block ...          5 bytes, instead of 13
//! ```
//!
//! Contexts are built on first use, the two directions apart: a disk that is only read never
//! pays for compressing.
//!
//! Invariant: once a compressor exists its tables are those a whole page needs at its level, so
//! that whole pages never make the library allocate. Shorter pages may: from the 129th page on
//! the library gives up tables three times larger than the page at hand needs, and builds them
//! anew for the next whole one. The bytes held are asked of the library, so they are right
//! either way.

use crate::{CodecError, PAGE_LEN_MAX};
use std::ops::RangeInclusive;
use zstd_safe::{CCtx, CParameter, DCtx, DParameter, FrameFormat};

/// The library's own default.
pub(crate) const LEVEL_DEFAULT: i32 = 3;

/// The largest distance a match can have within a page.
const WINDOW_LOG: u32 = 12;

const _: () = assert!(1 << WINDOW_LOG == PAGE_LEN_MAX, "the window is exactly a page");

/// `ZSTD_error_memory_allocation`. The library returns errors as negated codes.
const MEMORY_ALLOCATION: usize = 64_usize.wrapping_neg();

/// From the library's minimum (-131072) to its maximum (22). Level 0 means the default.
pub(crate) fn levels() -> RangeInclusive<i32> {
    zstd_safe::min_c_level()..=zstd_safe::max_c_level()
}

/// The longest blob `len` bytes can become.
pub(crate) fn bound(len: usize) -> usize {
    zstd_safe::compress_bound(len)
}

/// What Zstandard keeps between pages.
#[derive(Default)]
pub(crate) struct Contexts {
    compressor: Option<Compressor>,
    decompressor: Option<DCtx<'static>>,
}

impl Contexts {
    /// Bytes the library has allocated.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.compressor.as_ref().map_or(0, |compressor| compressor.context.sizeof())
            + self.decompressor.as_ref().map_or(0, DCtx::sizeof)
    }

    /// Compresses `page` into `output`, which must have room for its [`bound`].
    pub(crate) fn compress(
        &mut self,
        page: &[u8],
        output: &mut [u8],
        level: i32,
    ) -> Result<usize, CodecError> {
        let compressor = match self.compressor.take() {
            Some(ready) if ready.level == level => ready,
            // Dropping the old context first: two at once would be a lie about memory.
            stale => {
                drop(stale);
                Compressor::new(level, output)?
            }
        };
        self.compressor.insert(compressor).compress(page, output)
    }

    /// Fills `page` from `blob`.
    pub(crate) fn decompress(&mut self, blob: &[u8], page: &mut [u8]) -> Result<(), CodecError> {
        let context = match &mut self.decompressor {
            Some(context) => context,
            none => none.insert(new_decompressor()?),
        };
        match context.decompress(page, blob) {
            Ok(len) if len == page.len() => Ok(()),
            Err(MEMORY_ALLOCATION) => Err(CodecError::NoMemory),
            _ => Err(CodecError::Corrupt),
        }
    }
}

/// A compression context set to one level, with its tables allocated.
struct Compressor {
    context: CCtx<'static>,
    level: i32,
}

impl Compressor {
    /// A context that has compressed one page into `scratch`. The library sizes its tables by
    /// what it is given, so a whole page here means that no later one makes it allocate.
    fn new(level: i32, scratch: &mut [u8]) -> Result<Self, CodecError> {
        let mut context = CCtx::try_create().ok_or(CodecError::NoMemory)?;
        let parameters = [
            CParameter::Format(FrameFormat::Magicless),
            CParameter::ContentSizeFlag(false),
            CParameter::ChecksumFlag(false),
            CParameter::DictIdFlag(false),
            CParameter::WindowLog(WINDOW_LOG),
            CParameter::CompressionLevel(level),
        ];
        for parameter in parameters {
            context.set_parameter(parameter).map_err(from_code)?;
        }
        let mut compressor = Self { context, level };
        compressor.compress(&[0; PAGE_LEN_MAX], scratch)?;
        Ok(compressor)
    }

    fn compress(&mut self, page: &[u8], output: &mut [u8]) -> Result<usize, CodecError> {
        self.context.compress2(output, page).map_err(from_code)
    }
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
