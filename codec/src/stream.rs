//! What compressing and decompressing reuse from page to page.

use crate::{Algorithm, Codec, CodecError, PAGE_LEN_MAX, lz4, zstd};
use std::fmt;

/// The contexts and the output buffer of one thread at a time.
///
/// Empty at first; each codec's part is built when the codec is first used, and kept. One stream
/// serves any codecs, but alternating between two levels of Zstandard rebuilds its context every
/// time.
#[derive(Default)]
pub struct Stream {
    /// Empty until the first compression, then long enough for any algorithm's longest blob.
    output: Box<[u8]>,
    zstd: zstd::Contexts,
}

impl Stream {
    /// A stream that has allocated nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes on the heap, the libraries' own included.
    pub fn heap_bytes(&self) -> usize {
        self.output.len() + self.zstd.heap_bytes()
    }

    /// Compresses `page`, whose length was checked.
    pub(crate) fn compress(&mut self, codec: Codec, page: &[u8]) -> Result<&[u8], CodecError> {
        self.prepare_output()?;
        let level = codec.level();
        let len = match codec.algorithm() {
            Algorithm::Lz4 => lz4::compress(page, &mut self.output, level)?,
            Algorithm::Zstd => self.zstd.compress(page, &mut self.output, level)?,
        };
        Ok(&self.output[..len])
    }

    /// Decompresses `blob`; the length of `page` was checked.
    pub(crate) fn decompress(
        &mut self,
        algorithm: Algorithm,
        blob: &[u8],
        page: &mut [u8],
    ) -> Result<(), CodecError> {
        match algorithm {
            Algorithm::Lz4 => lz4::decompress(blob, page),
            Algorithm::Zstd => self.zstd.decompress(blob, page),
        }
    }

    fn prepare_output(&mut self) -> Result<(), CodecError> {
        if self.output.is_empty() {
            let len = lz4::bound(PAGE_LEN_MAX).max(zstd::bound(PAGE_LEN_MAX));
            let mut output = Vec::new();
            output.try_reserve_exact(len).map_err(|_| CodecError::NoMemory)?;
            output.resize(len, 0);
            self.output = output.into_boxed_slice();
        }
        Ok(())
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("heap_bytes", &self.heap_bytes()).finish_non_exhaustive()
    }
}
