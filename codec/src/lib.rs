//! Compression algorithms: bytes in, bytes out, one page at a time.
//!
//! ```text
//!   "zstd:7" --> Codec { algorithm, level }     what to do; two words, Copy
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
//!
//! # Memory
//!
//! A [`Stream`] owns what it uses, and says how much ([`Stream::heap_bytes`]), with one
//! exception: `lzzzz` keeps the LZ4 table per thread that compresses, not per stream
//! ([`Codec::thread_bytes`]). Whole pages allocate nothing after a stream's first use of a codec.
#![forbid(unsafe_code)]

mod algorithm;
mod error;
mod lz4;
mod page_codec;
pub mod same;
mod stream;
mod streams;
mod zstd;

pub use algorithm::Algorithm;
pub use error::{CodecError, LevelError, ParseCodecError, UnknownAlgorithm};
pub use page_codec::{Codec, PAGE_LEN_MAX};
pub use stream::Stream;
pub use streams::Streams;
