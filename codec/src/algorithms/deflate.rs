//! Deflate: raw if winbits is negative, else in zlib's frame of two bytes and a checksum.
//!
//! ```text
//!   winbits -15..-9    blocks                        distances up to 2^-winbits
//!   winbits   9..15    78 xx | blocks | Adler-32     distances up to 2^winbits
//! ```
//!
//! Winbits and the memory level are zlib's, and therefore the kernel's. A page is 4 KiB, so 12 bits
//! reach everywhere in it. The default is the kernel's 11.
//!
//! The kernel's default level is zlib's 6, which finds copies of three bytes. `zlib-rs` looks for
//! such copies only at level 9. Below it a copy has four bytes at least, which is faster, but makes
//! machine code larger. So our default is its level 9: its pages are no larger than the kernel's.
//! Any other level is the library's level of the same number.
//!
//! Invariant: a context takes a constant number of bytes plus its window and chain.
//! `tests/memory.rs` compares this with what was allocated. Locks: none.

use super::kept::Kept;
use crate::terms::{CodecError, DEFLATE_LEVEL_DEFAULT};
use std::ops::RangeInclusive;
use zlib_rs::{Deflate, DeflateConfig, DeflateFlush, Inflate, InflateFlush, Status};

/// The library's level that stands for [`DEFLATE_LEVEL_DEFAULT`].
const LEVEL_FOR_DEFAULT: i32 = 9;
/// Raw, 2 KiB: the kernel's default.
pub(crate) const WINBITS_DEFAULT: i32 = -11;
/// How many bits a window has, whatever the sign.
const WINDOW_BITS: RangeInclusive<u32> = 9..=15;
/// zlib's own default, which is the kernel's too.
const MEMORY_LEVEL: i32 = 8;

/// Bytes of a compressor without its window: state, hash table, buffers of the memory level.
const COMPRESSOR_BYTES: usize = 248_960;
/// For each byte of the window: the window twice, and a chain of 16-bit places.
const BYTES_PER_WINDOW_BYTE: usize = 4;
/// Bytes of a decompressor: its state, and a window that it has even if it needs none.
const DECOMPRESSOR_BYTES: usize = 47_552;
/// The window of every decompressor. It reads blobs of any smaller window too.
const DECOMPRESSOR_BITS: u8 = 15;

/// Whether deflate has a window of `winbits`.
pub(crate) fn is_winbits(winbits: i32) -> bool {
    WINDOW_BITS.contains(&winbits.unsigned_abs())
}

/// The longest blob that `len` bytes can become. It is enough for any level: nine bits for each
/// byte, the blocks and the frame.
pub(crate) const fn bound(len: usize) -> usize {
    len + len / 8 + 64
}

/// A compressor's parameters.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    level: i32,
    winbits: i32,
}

/// What deflate keeps between pages.
#[derive(Default)]
pub(crate) struct Contexts {
    compressors: Kept<Key, Deflate>,
    decompressor: Option<Box<Inflate>>,
}

impl Contexts {
    /// Bytes of all contexts.
    pub(crate) fn heap_bytes(&self) -> usize {
        let decompressor = self.decompressor.as_ref();
        self.compressors.heap_bytes(|key, _| compressor_bytes(key.winbits))
            + decompressor.map_or(0, |_| DECOMPRESSOR_BYTES + size_of::<Inflate>())
    }

    /// Compresses `page` into `output`, which must have room for its [`bound`].
    pub(crate) fn compress(
        &mut self,
        page: &[u8],
        output: &mut [u8],
        level: i32,
        winbits: i32,
    ) -> Result<usize, CodecError> {
        let key = Key { level, winbits };
        let context = self.compressors.get(key, || new_compressor(level, winbits))?;
        context.reset();
        match context.compress(page, output, DeflateFlush::Finish) {
            Ok(Status::StreamEnd) => Ok(context.total_out() as usize),
            _ => Err(CodecError::Refused),
        }
    }

    /// Fills `page` from `blob`. It fails unless the whole blob became exactly the whole page.
    pub(crate) fn decompress(
        &mut self,
        blob: &[u8],
        page: &mut [u8],
        winbits: i32,
    ) -> Result<(), CodecError> {
        let context = match &mut self.decompressor {
            Some(context) => context,
            none => none.insert(new_decompressor()?),
        };
        context.reset(is_framed(winbits));
        let end = context.decompress(blob, page, InflateFlush::Finish);
        let (used, filled) = (context.total_in() as usize, context.total_out() as usize);
        match end {
            Ok(Status::StreamEnd) if (used, filled) == (blob.len(), page.len()) => Ok(()),
            _ => Err(CodecError::Corrupt),
        }
    }
}

const fn is_framed(winbits: i32) -> bool {
    winbits > 0
}

const fn compressor_bytes(winbits: i32) -> usize {
    COMPRESSOR_BYTES + (BYTES_PER_WINDOW_BYTE << winbits.unsigned_abs())
}

/// A function of its own, because inlined it would enlarge the stack frame of every compression.
#[cold]
#[inline(never)]
fn new_compressor(level: i32, winbits: i32) -> Result<Deflate, CodecError> {
    probe(compressor_bytes(winbits))?;
    let config = DeflateConfig {
        level: if level == DEFLATE_LEVEL_DEFAULT { LEVEL_FOR_DEFAULT } else { level },
        window_bits: winbits,
        mem_level: MEMORY_LEVEL,
        ..DeflateConfig::default()
    };
    Ok(Deflate::new_with_config(config))
}

/// A function of its own, as [`new_compressor`] is.
#[cold]
#[inline(never)]
fn new_decompressor() -> Result<Box<Inflate>, CodecError> {
    probe(DECOMPRESSOR_BYTES)?;
    Ok(Box::new(Inflate::new(false, DECOMPRESSOR_BITS)))
}

/// Fails if memory is short. The library would panic then, so the same number of bytes is allocated
/// and freed just before it is called.
fn probe(bytes: usize) -> Result<(), CodecError> {
    Vec::<u8>::new().try_reserve_exact(bytes).map_err(|_| CodecError::NoMemory)
}
