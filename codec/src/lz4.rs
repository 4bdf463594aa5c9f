//! LZ4 blocks: no header, no length, no checksum.
//!
//! The C library's state is 16 KiB. `lzzzz` keeps it in one thread-local per thread that
//! compresses; the library clears it for every page, in a hundredth of the time that compressing
//! one takes. Decompressing needs none.
//!
//! ```text
//!   without a dictionary   thread's table
//!   with one               stream's table, then the dictionary's, made once and shared
//! ```
//!
//! Invariant: a dictionary is attached only while a page is compressed.

use crate::CodecError;
use crate::dictionary::LZ4_CONTENT_MAX;
use lzzzz::lz4;
use std::ops::RangeInclusive;
use std::sync::{Mutex, PoisonError};

/// Accelerations. The library clamps above the largest.
pub(crate) const LEVELS: RangeInclusive<i32> = 1..=65537;

/// No acceleration: the best LZ4's fast compressor does.
pub(crate) const LEVEL_DEFAULT: i32 = 1;

/// `LZ4_STREAMSIZE` of LZ4 1.10 and the byte in which `lzzzz` notes that it is initialised.
pub(crate) const THREAD_BYTES: usize = (1 << 14) + 32 + 1; // 16417

/// Where the library puts the last page aside, in case the next one continues it.
const ASIDE_BYTES: usize = 1 << 16;

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
    whole(lz4::decompress(blob, page), page.len())
}

/// As [`decompress`], where the block may refer to `content`.
pub(crate) fn decompress_with(
    content: &[u8],
    blob: &[u8],
    page: &mut [u8],
) -> Result<(), CodecError> {
    whole(lz4::decompress_with_dict(blob, page, content), page.len())
}

fn whole(outcome: lzzzz::Result<usize>, page_len: usize) -> Result<(), CodecError> {
    match outcome {
        Ok(len) if len == page_len => Ok(()),
        _ => Err(CodecError::Corrupt),
    }
}

/// What compressing with dictionaries keeps between pages.
#[derive(Default)]
pub(crate) struct Context(Option<Box<lz4::Compressor<'static>>>);

impl Context {
    /// Bytes of the state.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |_| size_of::<lz4::Compressor>() + ASIDE_BYTES)
    }

    /// Compresses `page` into `output`, which must have room for its [`bound`].
    pub(crate) fn compress(
        &mut self,
        page: &[u8],
        output: &mut [u8],
        level: i32,
        dictionary: &Dictionary,
    ) -> Result<usize, CodecError> {
        let context = match &mut self.0 {
            Some(context) => context,
            none => none.insert(new_table()?),
        };
        // To attach nothing is to begin anew.
        context.attach_dict(None);
        let mut tables = dictionary.0.lock().unwrap_or_else(PoisonError::into_inner);
        context.attach_dict(Some(&mut tables));
        drop(tables);
        let len = context.next(page, output, level).map_err(|_| CodecError::Refused);
        context.attach_dict(None);
        len
    }
}

/// Apart from who compresses: a table is made on the stack.
#[cold]
#[inline(never)]
fn new_table() -> Result<Box<lz4::Compressor<'static>>, CodecError> {
    lz4::Compressor::new().map(Box::new).map_err(|_| CodecError::NoMemory)
}

/// A dictionary's table. The lock is for the interface, which cannot share it; it is held while it
/// is attached, and it is only read.
pub(crate) struct Dictionary(Mutex<Box<lz4::Compressor<'static>>>);

impl Dictionary {
    /// The table of `content`, of which at most [`LZ4_CONTENT_MAX`] bytes count.
    #[cold]
    #[inline(never)]
    pub(crate) fn new(content: &[u8]) -> Result<Self, CodecError> {
        debug_assert!(content.len() <= LZ4_CONTENT_MAX);
        let table = lz4::Compressor::with_dict_slow(content.to_vec());
        Ok(Self(Mutex::new(Box::new(table.map_err(|_| CodecError::NoMemory)?))))
    }

    /// Bytes of the table, without the content.
    pub(crate) const BYTES: usize = size_of::<lz4::Compressor>();
}
