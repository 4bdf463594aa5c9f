//! LZ4 blocks: no header, no length, no checksum.
//!
//! The C library's state is 16 KiB. `lzzzz` keeps one in a thread-local of each thread that
//! compresses. The library clears it for every page, in a hundredth of the time that compressing
//! a page takes. Decompressing needs no state.
//!
//! ```text
//!   without a dictionary   the thread's table
//!   with one               the stream's table, and the dictionary's, which is made once and shared
//! ```
//!
//! Invariant: a dictionary is attached only while a page is compressed.
//!
//! Lock: a dictionary's, a leaf, held while its table is attached.

use crate::terms::CodecError;
use lzzzz::lz4;
use std::sync::{Mutex, PoisonError};

/// How many bytes of a dictionary LZ4 can refer to, because its distances have 16 bits.
pub(crate) const CONTENT_MAX: usize = 1 << 16; // 64 KiB

/// `LZ4_STREAMSIZE` of LZ4 1.10, and one byte in which `lzzzz` notes that it is initialised.
pub(crate) const THREAD_BYTES: usize = (1 << 14) + 32 + 1; // 16417

/// Bytes in which the library keeps the last page, in case the next one continues it.
const ASIDE_BYTES: usize = 1 << 16; // 64 KiB

/// The longest blob that `len` bytes can become.
pub(crate) const fn bound(len: usize) -> usize {
    lz4::max_compressed_size(len)
}

/// Compresses `page` into `output`, which must have room for its [`bound`].
pub(crate) fn compress(page: &[u8], output: &mut [u8], level: i32) -> Result<usize, CodecError> {
    lz4::compress(page, output, level).map_err(|_| CodecError::Refused)
}

/// Fills `page` from `blob`. The decoder checks both bounds. The length that it reports is
/// compared here, because a block may end early.
pub(crate) fn decompress(blob: &[u8], page: &mut [u8]) -> Result<(), CodecError> {
    whole(lz4::decompress(blob, page), page.len())
}

/// Like [`decompress`], but the block may refer to `content`.
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
        // Attaching nothing resets the state.
        context.attach_dict(None);
        let mut tables = dictionary.0.lock().unwrap_or_else(PoisonError::into_inner);
        context.attach_dict(Some(&mut tables));
        drop(tables);
        let len = context.next(page, output, level).map_err(|_| CodecError::Refused);
        context.attach_dict(None);
        len
    }
}

/// A function of its own, because the library makes a table on the stack.
#[cold]
#[inline(never)]
fn new_table() -> Result<Box<lz4::Compressor<'static>>, CodecError> {
    lz4::Compressor::new().map(Box::new).map_err(|_| CodecError::NoMemory)
}

/// A dictionary's table. The library only reads it, but the interface of `lzzzz` wants it alone, so
/// a lock is held while the table is attached.
pub(crate) struct Dictionary(Mutex<Box<lz4::Compressor<'static>>>);

impl Dictionary {
    /// The table of `content`, which has at most [`CONTENT_MAX`] bytes.
    #[cold]
    #[inline(never)]
    pub(crate) fn new(content: &[u8]) -> Result<Self, CodecError> {
        debug_assert!(content.len() <= CONTENT_MAX);
        let table = lz4::Compressor::with_dict_slow(content.to_vec());
        Ok(Self(Mutex::new(Box::new(table.map_err(|_| CodecError::NoMemory)?))))
    }

    /// Bytes of the table, without the content.
    pub(crate) const BYTES: usize = size_of::<lz4::Compressor>();
}
