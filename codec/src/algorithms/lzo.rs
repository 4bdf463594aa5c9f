//! LZO1X, with and without runs of zeros. This is our own code. It follows the description of the
//! stream in the kernel's documentation (`Documentation/staging/lzo.rst`).
//!
//! ```text
//!   lzo:                  first | instruction ... | end
//!   lzo-rle:  11 01 | first | instruction ... | end                  bytes in hex, fields in bits
//!
//!   first             00010010..11111111  byte - 17 literals (one byte, then they)
//!   long literals     0000LLLL            3 + L literals; L = 0: 18 + extension; after state 0
//!   near, short       LLLDDDSS H          L + 1 bytes from (H << 3) + D + 1 back; L of 2..7
//!   far or long       001LLLLL D14 SS     2 + L bytes from D + 1 back; L = 0: 33 + extension
//!   run of zeros      00011LLL 1..1 SS X  4 + (X << 3) + L zeros; lzo-rle only
//!   end               00010001 0 0
//!
//!   extension         zero bytes count 255 each, the first other byte counts itself
//!   SS                literals that follow without an instruction of their own: the state after
//! ```
//!
//! In other states the code of long literals means a copy of two or three bytes. Such copies are
//! decoded, but never written. A page has no copies from 16 KiB back or farther, so an instruction
//! that begins like one is the end, a run, or damage.
//!
//! A page that starts with zeros still starts with a literal, because a run in first place would
//! be read as literals.
//!
//! Invariant: `compress` writes only instructions that `decompress` reads back. Locks: none.

mod compress;
mod decompress;

pub(crate) use compress::Compressor;
pub(crate) use decompress::decompress;

/// The first byte of a stream that says its version.
const VERSIONED: u8 = 17;
/// The version that has runs of zeros.
const VERSION_RUNS: u8 = 1;
/// What the first byte adds to the number of literals.
const FIRST: usize = 17;
/// The most bytes of a near, short copy.
const NEAR_LEN_MAX: usize = 8;
/// How far back a near, short copy reaches.
const NEAR_DISTANCE_MAX: usize = 1 << 11; // 2048
/// Bytes of a far or long copy whose length takes no extension.
const FAR_LEN_MAX: usize = 33;
/// Literals of a long string whose number takes no extension.
const LITERALS_MAX: usize = 18;
/// The shortest run of zeros.
const RUN_MIN: usize = 4;
/// The longest run of zeros.
const RUN_MAX: usize = RUN_MIN + (1 << 11) - 1; // 2051
/// The 16 bits after the opcode of a run, without the state.
const RUN_MARK: u16 = 0xfffc;
/// The end of a stream.
const END: [u8; 3] = [0x11, 0, 0];

const _: () = assert!(NEAR_DISTANCE_MAX == 1 << (8 + 3), "eight bits and three");
const _: () = assert!(RUN_MAX == RUN_MIN + 0b111_1111_1111, "X and L are eleven bits");

/// The longest blob that `len` bytes can become: four zeros after four literals become nine bytes,
/// and the largest copy of literals writes beyond its end.
pub(crate) const fn bound(len: usize) -> usize {
    len + len / 8 + 64
}
