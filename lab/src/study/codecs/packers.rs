//! What compresses a unit, and gives it back: a codec of ours for pages, the libraries for units of
//! several pages.
//!
//! Invariant: a blob is that of the last unit. Locks: none.

use crate::ground::LabError;
use codec::{Codec, Stream};
use lzzzz::lz4;
use zstd_safe::{CCtx, CParameter, DCtx, DParameter, FrameFormat};

/// Compresses units of one length.
pub(super) trait Packer {
    fn pack(&mut self, unit: &[u8]) -> Result<&[u8], LabError>;
    fn unpack(&mut self, blob: &[u8], unit: &mut [u8]) -> Result<(), LabError>;
}

/// Single pages.
pub(super) struct Pages {
    codec: Codec,
    stream: Stream,
}

impl Pages {
    pub(super) fn new(codec: &Codec) -> Self {
        Self { codec: codec.clone(), stream: Stream::new() }
    }
}

impl Packer for Pages {
    fn pack(&mut self, unit: &[u8]) -> Result<&[u8], LabError> {
        self.codec.compress(&mut self.stream, unit).map_err(LabError::store("compress"))
    }

    fn unpack(&mut self, blob: &[u8], unit: &mut [u8]) -> Result<(), LabError> {
        let codec = &self.codec;
        codec.decompress(&mut self.stream, blob, unit).map_err(|why| corrupt(&why.to_string()))
    }
}

/// Units with lz4.
pub(super) struct Lz4Units {
    output: Vec<u8>,
}

impl Lz4Units {
    pub(super) fn new(unit_bytes: usize) -> Self {
        Self { output: vec![0; lz4::max_compressed_size(unit_bytes)] }
    }
}

impl Packer for Lz4Units {
    fn pack(&mut self, unit: &[u8]) -> Result<&[u8], LabError> {
        let len = lz4::compress(unit, &mut self.output, lz4::ACC_LEVEL_DEFAULT);
        Ok(&self.output[..len.map_err(LabError::store("compress"))?])
    }

    fn unpack(&mut self, blob: &[u8], unit: &mut [u8]) -> Result<(), LabError> {
        lz4::decompress(blob, unit).map_err(|why| corrupt(&why.to_string())).map(drop)
    }
}

/// Units with zstd, without magic number, length and checksum.
pub(super) struct ZstdUnits {
    compressor: CCtx<'static>,
    decompressor: DCtx<'static>,
    output: Vec<u8>,
}

impl ZstdUnits {
    pub(super) fn new(level: i32, unit_bytes: usize) -> Result<Self, LabError> {
        let refused = |code| LabError::Store {
            what: "zstd".into(),
            why: zstd_safe::get_error_name(code).to_owned(),
        };
        let (mut compressor, mut decompressor) = (CCtx::create(), DCtx::create());
        let parameters = [
            CParameter::Format(FrameFormat::Magicless),
            CParameter::ContentSizeFlag(false),
            CParameter::ChecksumFlag(false),
            CParameter::WindowLog(unit_bytes.ilog2()),
            CParameter::CompressionLevel(level),
        ];
        for parameter in parameters {
            compressor.set_parameter(parameter).map_err(refused)?;
        }
        let magicless = DParameter::Format(FrameFormat::Magicless);
        decompressor.set_parameter(magicless).map_err(refused)?;
        let output = vec![0; zstd_safe::compress_bound(unit_bytes)];
        Ok(Self { compressor, decompressor, output })
    }
}

impl Packer for ZstdUnits {
    fn pack(&mut self, unit: &[u8]) -> Result<&[u8], LabError> {
        let output = self.output.as_mut_slice();
        let len = self.compressor.compress2(output, unit);
        let len = len.map_err(|code| corrupt(zstd_safe::get_error_name(code)))?;
        Ok(&self.output[..len])
    }

    fn unpack(&mut self, blob: &[u8], unit: &mut [u8]) -> Result<(), LabError> {
        let len = self.decompressor.decompress(unit, blob);
        len.map_err(|code| corrupt(zstd_safe::get_error_name(code))).map(drop)
    }
}

fn corrupt(why: &str) -> LabError {
    LabError::Wrong(format!("a blob that is not read back: {why}"))
}
