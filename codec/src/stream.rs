//! What compressing and decompressing reuse from page to page.
//!
//! ```text
//!   output            one blob, for all algorithms
//!   lzo               one table
//!   lz4, lz4hc        one state each, for any level; lz4's only with dictionaries
//!   deflate, zstd     up to four compressors by their parameters, one decompressor
//! ```

use crate::dictionary::Dictionary;
use crate::{Algorithm, Codec, CodecError, PAGE_LEN_MAX, deflate, lz4, lz4hc, lzo, zstd};
use std::fmt;
use std::ops::Range;

/// The contexts and the output buffer of one thread at a time.
///
/// Empty at first; each codec's part is built when the codec is first used, and kept, so that a
/// stream serves the up to four codecs of a page store in turn and rebuilds nothing.
#[derive(Default)]
pub struct Stream {
    /// Empty until the first compression, then long enough for any algorithm's longest blob.
    output: Box<[u8]>,
    lzo: Option<lzo::Compressor>,
    lz4: lz4::Context,
    lz4hc: lz4hc::Context,
    zstd: zstd::Contexts,
    deflate: deflate::Contexts,
}

impl Stream {
    /// A stream that has allocated nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes on the heap, the libraries' own included.
    pub fn heap_bytes(&self) -> usize {
        let Self { output, lzo, lz4, lz4hc, zstd, deflate } = self;
        output.len()
            + lzo.as_ref().map_or(0, |_| lzo::Compressor::BYTES)
            + lz4.heap_bytes()
            + lz4hc.heap_bytes()
            + zstd.heap_bytes()
            + deflate.heap_bytes()
    }

    /// Compresses `page`, whose length was checked.
    pub(crate) fn compress(&mut self, codec: &Codec, page: &[u8]) -> Result<&[u8], CodecError> {
        self.prepare_output()?;
        let blob = self.compress_to_output(codec, page)?;
        Ok(&self.output[blob])
    }

    fn compress_to_output(
        &mut self,
        codec: &Codec,
        page: &[u8],
    ) -> Result<Range<usize>, CodecError> {
        let (level, winbits, dictionary) = codec.settings();
        let output = &mut self.output;
        let len = match (codec.algorithm(), dictionary) {
            (Algorithm::LzoRle, _) => lzo_table(&mut self.lzo)?.compress(page, output, true),
            (Algorithm::Lzo, _) => lzo_table(&mut self.lzo)?.compress(page, output, false),
            (Algorithm::Lz4, Some(Dictionary::Lz4(_, tables))) => {
                self.lz4.compress(page, output, level, tables)?
            }
            (Algorithm::Lz4, _) => lz4::compress(page, output, level)?,
            (Algorithm::Lz4hc, Some(Dictionary::Lz4hc(_, tables))) => {
                self.lz4hc.compress(page, output, level, Some(tables))?
            }
            (Algorithm::Lz4hc, _) => self.lz4hc.compress(page, output, level, None)?,
            (Algorithm::Zstd, Some(Dictionary::Zstd(digests))) => {
                return self.zstd.compress_with(digests, page, output, level);
            }
            (Algorithm::Zstd, _) => self.zstd.compress(page, output, level)?,
            (Algorithm::Deflate, _) => self.deflate.compress(page, output, level, winbits)?,
        };
        Ok(0..len)
    }

    /// Decompresses `blob`; the length of `page` was checked.
    pub(crate) fn decompress(
        &mut self,
        codec: &Codec,
        blob: &[u8],
        page: &mut [u8],
    ) -> Result<(), CodecError> {
        let (_, winbits, dictionary) = codec.settings();
        match (codec.algorithm(), dictionary) {
            (Algorithm::Zstd, Some(Dictionary::Zstd(digests))) => {
                self.zstd.decompress_with(digests, blob, page)
            }
            (Algorithm::Zstd, _) => self.zstd.decompress(blob, page),
            (Algorithm::Deflate, _) => self.deflate.decompress(blob, page, winbits),
            (Algorithm::LzoRle | Algorithm::Lzo | Algorithm::Lz4 | Algorithm::Lz4hc, _) => {
                codec.decompress_unchecked(blob, page)
            }
        }
    }

    fn prepare_output(&mut self) -> Result<(), CodecError> {
        if self.output.is_empty() {
            let bounds = Algorithm::ALL.iter().map(|algorithm| algorithm.bound(PAGE_LEN_MAX));
            let len = bounds.max().unwrap_or(0);
            let mut output = Vec::new();
            output.try_reserve_exact(len).map_err(|_| CodecError::NoMemory)?;
            output.resize(len, 0);
            self.output = output.into_boxed_slice();
        }
        Ok(())
    }
}

fn lzo_table(kept: &mut Option<lzo::Compressor>) -> Result<&mut lzo::Compressor, CodecError> {
    match kept {
        Some(table) => Ok(table),
        none => Ok(none.insert(lzo::Compressor::new()?)),
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("heap_bytes", &self.heap_bytes()).finish_non_exhaustive()
    }
}
