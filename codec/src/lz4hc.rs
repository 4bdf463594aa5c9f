//! LZ4 blocks again, searched for longer: the decompressor is `lz4`'s.
//!
//! ```text
//!   page --search--> block          nothing is carried from page to page but memory
//!           ^
//!   dictionary's own tables, made once and shared
//! ```
//!
//! The library's streaming interface is used for one page at a time, and reset in between, because
//! it alone takes dictionaries and keeps its 256 KiB where they can be counted.
//!
//! Invariant: a dictionary is attached only while a page is compressed.

use crate::CodecError;
use crate::dictionary::LZ4_CONTENT_MAX;
use lzzzz::lz4_hc;
use std::ops::RangeInclusive;
use std::sync::{Mutex, PoisonError};

/// The kernel's range; the library takes what is above 12 for 12.
pub(crate) const LEVELS: RangeInclusive<i32> = 1..=16;
/// The library's own default, and the kernel's.
pub(crate) const LEVEL_DEFAULT: i32 = lz4_hc::CLEVEL_DEFAULT;

/// `LZ4_STREAMHCSIZE` of LZ4 1.10: 32768 hashes of 4 bytes, 65536 links of 2, and 56 bytes.
const STATE_BYTES: usize = (4 << 15) + (2 << 16) + 56; // 262200
/// Where the library puts the last page aside, in case the next one continues it.
const ASIDE_BYTES: usize = 1 << 16;

/// What LZ4 HC keeps between pages, for any level and dictionary.
#[derive(Default)]
pub(crate) struct Context(Option<Box<lz4_hc::Compressor<'static>>>);

impl Context {
    /// Bytes of the state.
    pub(crate) fn heap_bytes(&self) -> usize {
        let bytes = STATE_BYTES + ASIDE_BYTES + size_of::<lz4_hc::Compressor>();
        self.0.as_ref().map_or(0, |_| bytes)
    }

    /// Compresses `page` into `output`, which must have room for `lz4`'s bound.
    pub(crate) fn compress(
        &mut self,
        page: &[u8],
        output: &mut [u8],
        level: i32,
        dictionary: Option<&Dictionary>,
    ) -> Result<usize, CodecError> {
        let context = match &mut self.0 {
            Some(context) => context,
            none => none.insert(new_context()?),
        };
        // To attach nothing is to begin anew.
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

fn new_context() -> Result<Box<lz4_hc::Compressor<'static>>, CodecError> {
    let context = lz4_hc::Compressor::new().map_err(|_| CodecError::NoMemory)?;
    Ok(Box::new(context))
}

/// A dictionary's tables at one level. The lock is for the interface, which cannot share them; it
/// is held while they are attached, and they are only read.
pub(crate) struct Dictionary(Mutex<lz4_hc::Compressor<'static>>);

impl Dictionary {
    /// Tables of `content`, of which at most [`LZ4_CONTENT_MAX`] bytes count.
    pub(crate) fn new(content: &[u8], level: i32) -> Result<Self, CodecError> {
        debug_assert!(content.len() <= LZ4_CONTENT_MAX);
        let tables = lz4_hc::Compressor::with_dict(content.to_vec(), level);
        Ok(Self(Mutex::new(tables.map_err(|_| CodecError::NoMemory)?)))
    }

    /// Bytes of the tables, without the content.
    pub(crate) const BYTES: usize = STATE_BYTES;
}
