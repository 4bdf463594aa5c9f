//! LZ4 blocks that take a longer search to compress. `lz4` decompresses them.
//!
//! ```text
//!   page --search--> block          only memory is carried from page to page
//!           ^
//!   the dictionary's own tables, made once and shared
//! ```
//!
//! The library's streaming interface is used for one page at a time, and reset in between. It is
//! the only one that takes dictionaries and keeps its 256 KiB where they can be counted.
//!
//! Invariant: a dictionary is attached only while a page is compressed.
//!
//! Lock: a dictionary's, a leaf, held while its tables are attached.

use super::kept::number_of_dictionary;
use super::lz4::CONTENT_MAX;
use crate::terms::CodecError;
use lzzzz::lz4_hc;
use std::sync::{Mutex, PoisonError};

/// `LZ4_STREAMHCSIZE` of LZ4 1.10: 32768 hashes of 4 bytes, 65536 links of 2, and 56 bytes.
const STATE_BYTES: usize = (4 << 15) + (2 << 16) + 56; // 262200
/// Bytes in which the library keeps the last page, in case the next one continues it.
const ASIDE_BYTES: usize = 1 << 16; // 64 KiB

/// What LZ4 HC keeps between pages, for any level and dictionary.
#[derive(Default)]
pub(crate) struct Context {
    compressor: Option<Box<lz4_hc::Compressor<'static>>>,
    /// The tables of a lean dictionary, with its number.
    own: Option<(u64, Dictionary)>,
}

impl Context {
    /// Bytes of the state.
    pub(crate) fn heap_bytes(&self) -> usize {
        let bytes = STATE_BYTES + ASIDE_BYTES + size_of::<lz4_hc::Compressor>();
        self.compressor.as_ref().map_or(0, |_| bytes)
            + self.own.as_ref().map_or(0, |_| STATE_BYTES + CONTENT_MAX)
    }

    /// As [`compress`](Self::compress), with a dictionary whose tables belong to this context.
    pub(crate) fn compress_lean(
        &mut self,
        page: &[u8],
        output: &mut [u8],
        level: i32,
        lean: &Lean,
    ) -> Result<usize, CodecError> {
        let own = match self.own.take().filter(|(number, _)| *number == lean.number) {
            Some(own) => own,
            None => (lean.number, Dictionary::new(&lean.content, level)?),
        };
        let len = self.compress(page, output, level, Some(&own.1));
        self.own = Some(own);
        len
    }

    /// Compresses `page` into `output`, which must have room for `lz4`'s bound.
    pub(crate) fn compress(
        &mut self,
        page: &[u8],
        output: &mut [u8],
        level: i32,
        dictionary: Option<&Dictionary>,
    ) -> Result<usize, CodecError> {
        let context = match &mut self.compressor {
            Some(context) => context,
            none => none.insert(new_context()?),
        };
        // Attaching nothing resets the state.
        context.attach_dict(None, level);
        if let Some(dictionary) = dictionary {
            let tables = dictionary.0.lock().unwrap_or_else(PoisonError::into_inner);
            context.attach_dict(Some(&tables), level);
        }
        let len = context.next(page, output).map_err(|_| CodecError::Refused);
        context.attach_dict(None, level);
        len
    }
}

/// A function of its own, because inlined it would enlarge the stack frame of every compression.
#[cold]
#[inline(never)]
fn new_context() -> Result<Box<lz4_hc::Compressor<'static>>, CodecError> {
    let context = lz4_hc::Compressor::new().map_err(|_| CodecError::NoMemory)?;
    Ok(Box::new(context))
}

/// A dictionary with which few contexts compress, and for a short time: each makes the tables.
pub(crate) struct Lean {
    number: u64,
    content: Box<[u8]>,
}

impl Lean {
    /// The content has at most [`CONTENT_MAX`] bytes.
    pub(crate) fn new(content: &[u8]) -> Lean {
        debug_assert!(content.len() <= CONTENT_MAX);
        Lean { number: number_of_dictionary(), content: content.into() }
    }

    pub(crate) fn content(&self) -> &[u8] {
        &self.content
    }
}

/// A dictionary's tables at one level. The library only reads them, but the interface of `lzzzz`
/// cannot share them, so a lock is held while they are attached.
pub(crate) struct Dictionary(Mutex<lz4_hc::Compressor<'static>>);

impl Dictionary {
    /// Tables of `content`, which has at most [`CONTENT_MAX`] bytes.
    #[cold]
    #[inline(never)]
    pub(crate) fn new(content: &[u8], level: i32) -> Result<Self, CodecError> {
        debug_assert!(content.len() <= CONTENT_MAX);
        let tables = lz4_hc::Compressor::with_dict(content.to_vec(), level);
        Ok(Self(Mutex::new(tables.map_err(|_| CodecError::NoMemory)?)))
    }

    /// Bytes of the tables, without the content.
    pub(crate) const BYTES: usize = STATE_BYTES;
}
