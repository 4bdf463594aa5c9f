//! LZ4 blocks: no header, no length, no checksum.
//!
//! The C library's state is 16 KiB, and clearing it for every page would cost a good part of
//! what compressing one does. `lzzzz` keeps it (`LZ4_compress_fast_extState_fastReset`) in one
//! thread-local per thread that compresses; decompressing needs none.

use crate::CodecError;
use lzzzz::lz4;
use std::ops::RangeInclusive;

/// Accelerations. The library clamps above the largest.
pub(crate) const LEVELS: RangeInclusive<i32> = 1..=65537;

/// No acceleration: the best LZ4's fast compressor does.
pub(crate) const LEVEL_DEFAULT: i32 = 1;

/// `LZ4_STREAMSIZE` of LZ4 1.10 and the byte in which `lzzzz` notes that it is initialised.
pub(crate) const THREAD_BYTES: usize = (1 << 14) + 32 + 1; // 16417

/// The longest blob `len` bytes can become.
pub(crate) const fn bound(len: usize) -> usize {
    lz4::max_compressed_size(len)
}

/// Compresses `page` into `output`, which must have room for its [`bound`].
pub(crate) fn compress(page: &[u8], output: &mut [u8], level: i32) -> Result<usize, CodecError> {
    lz4::compress(page, output, level).map_err(|_| CodecError::Refused)
}

/// Fills `page` from `blob`. The decoder checks both bounds; the length it reports is compared
/// because a block may end early.
pub(crate) fn decompress(blob: &[u8], page: &mut [u8]) -> Result<(), CodecError> {
    match lz4::decompress(blob, page) {
        Ok(len) if len == page.len() => Ok(()),
        _ => Err(CodecError::Corrupt),
    }
}
