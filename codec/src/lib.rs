//! Compression algorithms: bytes in, bytes out, one page at a time.
//!
//! ```text
//!   "zstd:7" --> Codec { algorithm, level, .. }   what to do; clones share a dictionary
//!                  |          |
//!      page -------+-compress-+--> blob         at most a page in, borrowed from the Stream
//!      page <------+decompress+--- blob
//!                  |
//!               Stream                          contexts and output buffer, reused
//!                  |
//!               Streams                         a few of them, shared by all threads
//! ```
//!
//! A blob does not say which algorithm made it or how long the page was: the store knows both,
//! and every byte spent here is spent once per page. Decoders treat a blob as hostile: a damaged
//! one is [`CodecError::Corrupt`] or decodes to a page of the right length, nothing else.
//!
//! # Which libraries, and why
//!
//! - LZ4 is the C library through `lzzzz`, which keeps the hash table between pages and resets
//!   it only as far as it must. `lz4_flex` 0.14 with a reused table is pure Rust; on the pages of
//!   a live process its blobs are as small, but it compresses 6 % slower and decompresses 30 %
//!   slower, checked or not. A read decompresses and does little else, so that decides.
//! - Zstandard is the C library through `zstd-safe`.
//! - Deflate is `zlib-rs`, which has zlib's levels, winbits and memory level, so that the kernel's
//!   parameters mean here what they mean there, and takes its memory where it can be counted.
//!   `libdeflate` decompresses faster and compresses as well, but has no window to choose, other
//!   levels, and 32 KiB windows for pages of 4 KiB.
//! - LZO is our own (`lzo`): no library has runs of zeros, the better ones are under the GPL, and
//!   `lzokay` (MIT), which the tests compare with, takes many times as long to compress.
//!
//! # Memory
//!
//! A [`Stream`] owns what it uses, and says how much ([`Stream::heap_bytes`]), with two
//! exceptions: `lzzzz` keeps the LZ4 table per thread that compresses, not per stream
//! ([`Codec::thread_bytes`]), and a dictionary belongs to its codec ([`Codec::dictionary_bytes`]).
//! Whole pages allocate nothing after a stream's first use of a codec.
#![forbid(unsafe_code)]

mod algorithm;
mod deflate;
mod dictionary;
mod error;
mod kept;
mod lz4;
mod lz4hc;
mod lzo;
mod page_codec;
pub mod same;
mod stream;
mod streams;
mod train;
mod zstd;

pub use algorithm::Algorithm;
pub use error::{CodecError, ParameterError, ParseCodecError, UnknownAlgorithm};
pub use page_codec::{Codec, PAGE_LEN_MAX, Parameters};
pub use stream::Stream;
pub use streams::Streams;
pub use train::{DICTIONARY_LEN_MIN, TrainError, train};
