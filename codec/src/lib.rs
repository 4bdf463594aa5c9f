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
//! A blob does not say which algorithm made it or how long the page was. The store knows both, and
//! a byte in the blob would be spent for every page. Decoders treat a blob as hostile. A damaged
//! blob is [`CodecError::Corrupt`], or it decodes to a page of the right length.
//!
//! # Which libraries, and why
//!
//! - LZ4 is the C library through `lzzzz`. It keeps the hash table between pages and resets it only
//!   as far as it must. `lz4_flex` 0.14 with a reused table is pure Rust. On the pages of a live
//!   process its blobs are as small. But it compresses 6 % slower and decompresses 30 % slower,
//!   checked or not. A read decompresses and does little else, so this decides.
//! - Zstandard is the C library through `zstd-safe`.
//! - Deflate is `zlib-rs`. It has zlib's levels, winbits and memory level, so the kernel's
//!   parameters mean the same here. It takes its memory where it can be counted. `libdeflate`
//!   decompresses faster and compresses as well. But its levels are others, and its window is
//!   32 KiB for pages of 4 KiB and cannot be chosen.
//! - LZO is our own (`lzo`). No library has runs of zeros, and the better ones are under the GPL.
//!   The tests compare it with `lzokay` (MIT), which takes many times as long to compress.
//! - pagelz is our own, format and code. `docs/codec-format.md` has the format.
//! - The shuffle is our own, because it is a page of safe code.
//!
//! # Memory
//!
//! A [`Stream`] owns the memory it uses, and [`Stream::heap_bytes`] says how much. There are two
//! exceptions. `lzzzz` keeps an LZ4 table for each thread that compresses
//! ([`Codec::thread_bytes`]). A dictionary belongs to its codec ([`Codec::dictionary_bytes`]).
//! After a stream's first use of a codec, whole pages allocate nothing. A [`UnitPacker`] owns what
//! it uses.
//!
//! Invariants: a codec has only parameters that its algorithm has, and every blob that it makes is
//! read back as the same page.
//!
//! Locks: one for each stream of [`Streams`], one in a dictionary of LZ4, and one in the table of
//! words of [`same`]. The last two are leaves.
#![forbid(unsafe_code)]

// Rooms, from the top down. Each of them stands only on rooms that are named after it:
// codecs, algorithms, algorithms/pagelz, same, terms.
mod algorithms;
mod codecs;
pub mod same;
mod terms;

pub use codecs::{
    Codec, DICTIONARY_LEN_MIN, Parameters, Stream, Streams, TABLES_LEN, TrainError, UnitPacker,
    shipped_tables, train, train_samples, train_tables,
};
pub use terms::{
    Algorithm, CodecError, PAGE_LEN_MAX, ParameterError, ParseCodecError, UNIT_LEN_MAX,
    UnknownAlgorithm,
};
