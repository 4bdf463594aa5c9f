//! What compressing and decompressing reuse from page to page, and which algorithm does it.
//!
//! ```text
//!   output            one blob, for all algorithms
//!   lzo               one table
//!   lz4, lz4hc        one state each, for any level; lz4's only with dictionaries
//!   pagelz            one state, for any level and tables
//!   deflate, zstd     up to four compressors by their parameters, one decompressor
//!   unit              the last unit of several pages that was decompressed, and its frame
//! ```
//!
//! Invariant: `output` is empty, or it has room for the longest blob of any algorithm, and a byte
//! more.
//!
//! Locks: those of a dictionary.

use super::dictionary::Dictionary;
use super::unit::UnitRoom;
use crate::algorithms::{deflate, lz4, lz4hc, lzo, pagelz, zstd};
use crate::terms::{Algorithm, CodecError, PAGE_LEN_MAX, UNIT_LEN_MAX};
use std::fmt;
use std::ops::Range;

/// What a codec says of its work.
#[derive(Clone, Copy)]
pub(crate) struct Settings<'d> {
    pub(crate) algorithm: Algorithm,
    pub(crate) level: i32,
    pub(crate) winbits: i32,
    pub(crate) dictionary: Option<&'d Dictionary>,
}

/// The contexts and the output buffer of one thread at a time.
///
/// A stream is empty at first. The part of a codec is built when the codec is first used, and then
/// kept. So a stream serves the four codecs of a page store in turn, and rebuilds nothing.
#[derive(Default)]
pub struct Stream {
    /// Empty until the first compression.
    output: Box<[u8]>,
    /// The last blob in it.
    made: Range<usize>,
    /// Of the pages that are compressed now.
    place: u64,
    /// Pages until the next sample of a codec that samples.
    unsampled: u32,
    lzo: Option<lzo::Compressor>,
    lz4: lz4::Context,
    lz4hc: lz4hc::Context,
    zstd: zstd::Contexts,
    deflate: deflate::Contexts,
    pagelz: Option<pagelz::Compressor>,
    unit: UnitRoom,
}

impl Stream {
    /// A stream that has allocated nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Says where the next pages are from, for codecs that
    /// [sample](crate::Codec::with_sampled_shuffle). Pages with the same number are likely to hold
    /// the same kind of data: those of one stretch of addresses, or of one array. It is 0 at first.
    pub fn set_place(&mut self, place: u64) {
        self.place = place;
    }

    pub(crate) fn place(&self) -> u64 {
        self.place
    }

    /// Whether the next page is a sample, one of `every` pages. The first is.
    pub(crate) fn is_sample(&mut self, every: u32) -> bool {
        let is_sample = self.unsampled == 0;
        self.unsampled = if is_sample { every } else { self.unsampled.min(every) } - 1;
        is_sample
    }

    /// The blob that was made last, which is empty if none was. It is what a codec returned, once
    /// more.
    pub fn last_blob(&self) -> &[u8] {
        &self.output[self.made.clone()]
    }

    /// The blob that was made last, with a byte behind it.
    pub(crate) fn with_end(&mut self, end: u8) -> &[u8] {
        self.output[self.made.end] = end;
        self.made.end += 1;
        self.last_blob()
    }

    /// Bytes on the heap, with those that the libraries have allocated.
    pub fn heap_bytes(&self) -> usize {
        let Self { output, lzo, lz4, lz4hc, zstd, deflate, pagelz, unit, .. } = self;
        output.len()
            + lzo.as_ref().map_or(0, |_| lzo::Compressor::BYTES)
            + lz4.heap_bytes()
            + lz4hc.heap_bytes()
            + zstd.heap_bytes()
            + deflate.heap_bytes()
            + pagelz.as_ref().map_or(0, |_| pagelz::Compressor::BYTES)
            + unit.heap_bytes()
    }

    /// Decompresses a unit of `unit_len` bytes that a [`UnitPacker`](crate::UnitPacker) made.
    /// `fill` gets room for the `frame_len` bytes of its frame, and says whether it could fill it.
    /// The unit lies in the stream until the next one.
    ///
    /// # Errors
    ///
    /// [`CodecError::Corrupt`] if the frame was not filled, or is none of a unit of this length.
    /// [`CodecError::NoMemory`].
    pub fn unpack_unit(
        &mut self,
        frame_len: usize,
        unit_len: usize,
        fill: impl FnOnce(&mut [u8]) -> bool,
    ) -> Result<&[u8], CodecError> {
        let (frame, unit) = self.unit.room(frame_len, unit_len)?;
        if !fill(frame) {
            return Err(CodecError::Corrupt);
        }
        self.zstd.decompress(frame, unit)?;
        Ok(unit)
    }

    /// Makes room for any unit whose frame has at most `frame_len` bytes, and what decompresses it.
    pub(crate) fn prepare_units(&mut self, frame_len: usize) -> Result<(), CodecError> {
        self.unit.room(frame_len, UNIT_LEN_MAX)?;
        self.zstd.prepare_to_read()
    }

    /// Compresses `page`, whose length was checked.
    pub(crate) fn compress(
        &mut self,
        settings: Settings<'_>,
        page: &[u8],
    ) -> Result<&[u8], CodecError> {
        self.prepare_output()?;
        let blob = self.compress_to_output(settings, page)?;
        self.made = blob;
        Ok(self.last_blob())
    }

    fn compress_to_output(
        &mut self,
        settings: Settings<'_>,
        page: &[u8],
    ) -> Result<Range<usize>, CodecError> {
        let Settings { algorithm, level, winbits, dictionary } = settings;
        let output = &mut self.output;
        let len = match (algorithm, dictionary) {
            (Algorithm::LzoRle, _) => lzo_table(&mut self.lzo)?.compress(page, output, true),
            (Algorithm::Lzo, _) => lzo_table(&mut self.lzo)?.compress(page, output, false),
            (Algorithm::Lz4, Some(Dictionary::Lz4(_, tables))) => {
                self.lz4.compress(page, output, level, tables)?
            }
            (Algorithm::Lz4, _) => lz4::compress(page, output, level)?,
            (Algorithm::Lz4hc, Some(Dictionary::Lz4hc(_, tables))) => {
                self.lz4hc.compress(page, output, level, Some(tables))?
            }
            (Algorithm::Lz4hc, Some(Dictionary::LeanLz4hc(lean))) => {
                self.lz4hc.compress_lean(page, output, level, lean)?
            }
            (Algorithm::Lz4hc, _) => self.lz4hc.compress(page, output, level, None)?,
            (Algorithm::Zstd, Some(Dictionary::Zstd(digests))) => {
                return self.zstd.compress_with(digests, page, output, level);
            }
            (Algorithm::Zstd, _) => self.zstd.compress(page, output, level)?,
            (Algorithm::Deflate, _) => self.deflate.compress(page, output, level, winbits)?,
            (Algorithm::Pagelz, tables) => {
                let tables = Dictionary::pagelz_tables(tables);
                pagelz_work(&mut self.pagelz)?.compress(tables, page, output, level)
            }
        };
        Ok(0..len)
    }

    /// Decompresses `blob` into `page`, whose length was checked.
    pub(crate) fn decompress(
        &mut self,
        settings: Settings<'_>,
        blob: &[u8],
        page: &mut [u8],
    ) -> Result<(), CodecError> {
        match (settings.algorithm, settings.dictionary) {
            (Algorithm::Zstd, Some(Dictionary::Zstd(digests))) => {
                self.zstd.decompress_with(digests, blob, page)
            }
            (Algorithm::Zstd, _) => self.zstd.decompress(blob, page),
            (Algorithm::Deflate, _) => self.deflate.decompress(blob, page, settings.winbits),
            (Algorithm::LzoRle | Algorithm::Lzo | Algorithm::Lz4 | Algorithm::Lz4hc, _)
            | (Algorithm::Pagelz, _) => decompress_stateless(settings, blob, page),
        }
    }

    fn prepare_output(&mut self) -> Result<(), CodecError> {
        if self.output.is_empty() {
            let bounds = Algorithm::ALL.iter().map(|&algorithm| bound(algorithm, PAGE_LEN_MAX));
            let len = bounds.max().unwrap_or(0) + 1;
            let mut output = Vec::new();
            output.try_reserve_exact(len).map_err(|_| CodecError::NoMemory)?;
            output.resize(len, 0);
            self.output = output.into_boxed_slice();
        }
        Ok(())
    }
}

/// Decompresses `blob` into `page`, whose length was checked, without a stream.
/// [`CodecError::NeedsStream`] if the algorithm cannot.
#[inline]
pub(crate) fn decompress_stateless(
    settings: Settings<'_>,
    blob: &[u8],
    page: &mut [u8],
) -> Result<(), CodecError> {
    match (settings.algorithm, settings.dictionary) {
        (Algorithm::LzoRle | Algorithm::Lzo, _) => lzo::decompress(blob, page),
        (Algorithm::Lz4 | Algorithm::Lz4hc, None) => lz4::decompress(blob, page),
        (Algorithm::Lz4 | Algorithm::Lz4hc, Some(dictionary)) => {
            dictionary.decompress_lz4(blob, page)
        }
        (Algorithm::Pagelz, tables) => {
            pagelz::decompress(Dictionary::pagelz_tables(tables), blob, page)
        }
        (Algorithm::Zstd | Algorithm::Deflate, _) => Err(CodecError::NeedsStream),
    }
}

/// The longest blob that a page of `len` bytes can become.
fn bound(algorithm: Algorithm, len: usize) -> usize {
    match algorithm {
        Algorithm::LzoRle | Algorithm::Lzo => lzo::bound(len),
        Algorithm::Lz4 | Algorithm::Lz4hc => lz4::bound(len),
        Algorithm::Zstd => zstd::bound(len),
        Algorithm::Deflate => deflate::bound(len),
        Algorithm::Pagelz => pagelz::bound(len),
    }
}

fn lzo_table(kept: &mut Option<lzo::Compressor>) -> Result<&mut lzo::Compressor, CodecError> {
    match kept {
        Some(table) => Ok(table),
        none => Ok(none.insert(lzo::Compressor::new()?)),
    }
}

fn pagelz_work(
    kept: &mut Option<pagelz::Compressor>,
) -> Result<&mut pagelz::Compressor, CodecError> {
    match kept {
        Some(work) => Ok(work),
        none => Ok(none.insert(pagelz::Compressor::new()?)),
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("heap_bytes", &self.heap_bytes()).finish_non_exhaustive()
    }
}
