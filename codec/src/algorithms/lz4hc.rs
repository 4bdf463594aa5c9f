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
//! A lean dictionary has a window: its content, with room for a page behind it. LZ4 decompresses
//! faster there than to anywhere else, because what a match refers to lies in front of it in any
//! case. A copy of the page is cheaper than the difference.
//!
//! ```text
//!   window   | content, 64 KiB | page |  --copy--> page of the caller
//! ```
//!
//! Invariant: a dictionary is attached only while a page is compressed. The content of a window
//! never changes.
//!
//! Locks: a dictionary's, a leaf, held while its tables are attached; a window's, a leaf, which is
//! only tried.

use super::kept::number_of_dictionary;
use super::lz4::{self, CONTENT_MAX};
use crate::terms::CodecError;
use lzzzz::lz4_hc;
use std::sync::{Mutex, PoisonError};

/// `LZ4_STREAMHCSIZE` of LZ4 1.10: 32768 hashes of 4 bytes, 65536 links of 2, and 56 bytes.
const STATE_BYTES: usize = (4 << 15) + (2 << 16) + 56; // 262200
/// Bytes of a page that a window has room for.
const ROOM: usize = 4096;
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
    window: Mutex<Box<[u8]>>,
}

impl Lean {
    /// The content has at most [`CONTENT_MAX`] bytes.
    pub(crate) fn new(content: &[u8]) -> Lean {
        debug_assert!(content.len() <= CONTENT_MAX);
        let window = [content, &[0; ROOM]].concat().into();
        Lean { number: number_of_dictionary(), content: content.into(), window: Mutex::new(window) }
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        2 * self.content.len() + ROOM
    }

    /// Fills `page` from `blob`. If another thread uses the window, this takes longer.
    pub(crate) fn decompress(&self, blob: &[u8], page: &mut [u8]) -> Result<(), CodecError> {
        match self.window.try_lock() {
            Ok(mut window) if page.len() <= ROOM => {
                let (content, room) = window.split_at_mut(self.content.len());
                let room = &mut room[..page.len()];
                lz4::decompress_with(content, blob, room)?;
                page.copy_from_slice(room);
                Ok(())
            }
            _ => lz4::decompress_with(&self.content, blob, page),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn text(seed: u64, len: usize) -> Vec<u8> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            state >> 33
        };
        let words: Vec<u64> = (0..40).map(|word| word * 0x0101_0305_0709_0b0d).collect();
        let bytes = (0..len / 8).flat_map(|_| {
            let word = words[next() as usize % words.len()];
            (word ^ (next() % 3)).to_le_bytes()
        });
        bytes.collect()
    }

    /// What the window gives, and what comes without it.
    fn both(lean: &Lean, blob: &[u8]) -> [Option<Vec<u8>>; 2] {
        let mut page = vec![0; ROOM];
        let alone = lean.decompress(blob, &mut page).ok().map(|()| page.clone());
        let held = lean.window.lock().expect("no panic");
        let beside = lean.decompress(blob, &mut page).ok().map(|()| page);
        drop(held);
        [alone, beside]
    }

    #[test]
    fn a_window_reads_what_is_read_without_it() {
        let (mut context, mut output) = (Context::default(), vec![0; lz4::bound(ROOM)]);
        for content_len in [8, 4000, CONTENT_MAX] {
            let lean = Lean::new(&text(1, content_len));
            let (mut whole, mut damaged) = (0, 0);
            for seed in 0..300 {
                let page = text(seed, ROOM);
                let len = context.compress_lean(&page, &mut output, 9, &lean).expect("memory");
                let mut blob = output[..len].to_vec();
                assert_eq!(both(&lean, &blob), [Some(page.clone()), Some(page)], "page {seed}");
                let at = seed as usize * 7919 % len;
                blob[at] ^= 1 << (seed % 8);
                let [alone, beside] = both(&lean, &blob);
                assert_eq!(alone, beside, "page {seed}, byte {at} changed");
                *if alone.is_some() { &mut whole } else { &mut damaged } += 1;
            }
            assert!(whole > 20 && damaged > 20, "{whole} and {damaged}");
        }
    }

    #[test]
    fn longer_pages_than_a_window_has_room_for_come_without_it() {
        let (mut context, lean) = (Context::default(), Lean::new(&text(1, 9000)));
        let page = text(2, 2 * ROOM);
        let mut output = vec![0; lz4::bound(page.len())];
        let len = context.compress_lean(&page, &mut output, 9, &lean).expect("memory");
        let mut back = vec![0; page.len()];
        lean.decompress(&output[..len], &mut back).expect("a block");
        assert!(back == page);
    }
}
