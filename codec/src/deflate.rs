//! Deflate: raw, or in zlib's frame of two bytes and a checksum, as the sign of winbits says.
//!
//! ```text
//!   winbits -15..-9    blocks                        distances up to 2^-winbits
//!   winbits   9..15    78 xx | blocks | Adler-32     distances up to 2^winbits
//! ```
//!
//! Winbits and the memory level are zlib's, and so the kernel's. A page is 4 KiB, so 12 bits reach
//! everywhere in it; the default is the kernel's 11.
//!
//! The kernel's default level is zlib's 6, which finds copies of three bytes. `zlib-rs` looks for
//! those at level 9 alone: below it copies have four bytes, which is faster, and larger for machine
//! code. So the default is its 9, in pages no larger than the kernel's. Levels that are asked for
//! are the library's of that number.
//!
//! Invariant: the bytes of a context are a constant of the library's plus its window and chain;
//! `tests/memory.rs` compares them with what was allocated.

use crate::CodecError;
use crate::kept::Kept;
use std::ops::RangeInclusive;
use zlib_rs::{Deflate, DeflateConfig, DeflateFlush, Inflate, InflateFlush, Status};

/// From the fastest to the smallest; 0 stores, and -1 is as small as the kernel's default.
pub(crate) const LEVELS: RangeInclusive<i32> = -1..=9;
/// The kernel's default, by its number.
pub(crate) const LEVEL_DEFAULT: i32 = -1;
/// What the library compresses with for it.
const LEVEL_FOR_DEFAULT: i32 = 9;
/// Raw, 2 KiB: the kernel's default.
pub(crate) const WINBITS_DEFAULT: i32 = -11;
/// How many bits a window has, whatever the sign.
const WINDOW_BITS: RangeInclusive<u32> = 9..=15;
/// zlib's own default, and the kernel's.
const MEMORY_LEVEL: i32 = 8;

/// What a compressor has beside its window: state, hash table, buffers of the memory level.
const COMPRESSOR_BYTES: usize = 248_960;
/// Per byte of the window: twice the window, and a chain of 16-bit places.
const BYTES_PER_WINDOW_BYTE: usize = 4;
/// A decompressor's state and its window, which it has whether it needs one or not.
const DECOMPRESSOR_BYTES: usize = 47_552;
/// The window of decompressors, which take any smaller one as well.
const DECOMPRESSOR_BITS: u8 = 15;

/// Whether there is such a window.
pub(crate) fn is_winbits(winbits: i32) -> bool {
    WINDOW_BITS.contains(&winbits.unsigned_abs())
}

/// The longest blob `len` bytes can become, with room to spare at any level: nine bits a byte,
/// blocks and the frame.
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

    /// Fills `page` from `blob`, and says whether the whole of the one became all of the other.
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

/// Apart from who compresses, whose stack it would take.
#[cold]
#[inline(never)]
fn new_compressor(level: i32, winbits: i32) -> Result<Deflate, CodecError> {
    probe(compressor_bytes(winbits))?;
    let config = DeflateConfig {
        level: if level == LEVEL_DEFAULT { LEVEL_FOR_DEFAULT } else { level },
        window_bits: winbits,
        mem_level: MEMORY_LEVEL,
        ..DeflateConfig::default()
    };
    Ok(Deflate::new_with_config(config))
}

/// Apart from who decompresses, whose stack it would take.
#[cold]
#[inline(never)]
fn new_decompressor() -> Result<Box<Inflate>, CodecError> {
    probe(DECOMPRESSOR_BYTES)?;
    Ok(Box::new(Inflate::new(false, DECOMPRESSOR_BITS)))
}

/// The library panics where there is no memory for a context, so as much is asked for, and given
/// back, just before.
fn probe(bytes: usize) -> Result<(), CodecError> {
    Vec::<u8>::new().try_reserve_exact(bytes).map_err(|_| CodecError::NoMemory)
}
