//! Our own codec for pages of a program's memory. `docs/codec-format.md` defines its blobs.
//!
//! ```text
//!   blob     | header 2 | literals, raw or coded | sequences: bits, to the end |
//!   header   literals 13 bits, coded 1, zero 2
//!            if coded, 6 bytes more: sizes 4 * 11, table 3, zero 1
//!   sequence   token: a prefix code | raw bits of the offset | long lengths, if the token says so
//!   token      class of the offset 3 | literals, 0..15 | length - 4, 0..31
//! ```
//!
//! A page is literals and matches. A sequence is some literals and then a match. All literals come
//! first in the blob, and the sequences after them. Codes are not in the blob: they are in tables
//! (`tables`), which are shipped or trained from a sample of pages (`train`).
//!
//! ```text
//!   page --matcher--> sequences --compress--> blob --decompress--> page
//!                        |                      ^
//!                      train --> lengths --> tables, shipped
//! ```
//!
//! Invariant: whatever bytes a blob has, decoding ends after at most one step for each four bytes
//! of the page, and is an error or fills the page. Locks: none.

mod bits;
mod code;
mod compress;
mod decompress;
mod lengths;
mod literals;
mod matcher;
mod offset;
mod shipped;
mod tables;
mod train;

pub(crate) use compress::Compressor;
pub(crate) use decompress::decompress;
pub(crate) use lengths::{LENGTHS_LEN, Lengths, SHIPPED_LENGTHS, is_tables};
pub(crate) use tables::{SHIPPED, Tables};
pub(crate) use train::train;

use crate::terms::PAGE_LEN_MAX;

/// From this level on, literals are coded where that saves enough.
const LEVEL_CODED: i32 = 2;

/// The shortest match.
const MATCH_MIN: usize = 4;
/// The number of literals in a token which says that more follow.
const LITERALS_LONG: usize = 15;
/// The length in a token which says that more follows.
const LENGTH_LONG: usize = 31;
/// Where a token has its literals, and where its class.
const TOKEN_LITERALS: usize = 5;
const TOKEN_CLASS: usize = 9;
/// Tokens that there are.
const TOKENS: usize = 1 << 12; // 4096
/// Bits of the longest code of a token, and of a literal.
const TOKEN_CODE_BITS: u32 = 11;
const LITERAL_CODE_BITS: u32 = 10;
/// Tables of literals, one of which a page uses.
const LITERAL_TABLES: usize = 8;
/// Streams to which coded literals are dealt in turn.
const STREAMS: usize = 4;
/// Bytes of the header, and of what coded literals add to it.
const HEADER: usize = 2;
const CODED_HEADER: usize = 6;
/// Bits of the number of literals, and of the size of a stream.
const COUNT_BITS: u32 = 13;
const SIZE_BITS: u32 = 11;
/// A long length has at least so many bits behind its zeros.
const LONG_BITS_MIN: u32 = 5;
/// The most zeros before a long length.
const LONG_ZEROS_MAX: u32 = 8;

const _: () = assert!(TOKENS == 8 << TOKEN_CLASS, "three bits of class");
const _: () = assert!(LENGTH_LONG == (1 << TOKEN_LITERALS) - 1, "five bits of length");
const _: () = assert!(LITERALS_LONG == (1 << (TOKEN_CLASS - TOKEN_LITERALS)) - 1, "four bits");
const _: () = assert!(PAGE_LEN_MAX < 1 << COUNT_BITS, "a page may be all literals");
const _: () = assert!(
    (PAGE_LEN_MAX / STREAMS * LITERAL_CODE_BITS as usize) < 8 << SIZE_BITS,
    "a stream of the longest codes"
);
const _: () = assert!(
    PAGE_LEN_MAX + 16 < 1 << (LONG_BITS_MIN + LONG_ZEROS_MAX),
    "the longest match, with what is added to it"
);

/// The longest blob that `len` bytes can become: all of them are literals then.
pub(crate) const fn bound(len: usize) -> usize {
    HEADER + len
}
