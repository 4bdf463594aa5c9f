//! Lengths of the words of all codes: what tables are made from, and what is kept of them.
//!
//! ```text
//!   as bytes    magic 8 | escape 1 | tokens: 4096 lengths | 8 times literals: 256 lengths
//!                                    two lengths in a byte, the first in its high half
//! ```
//!
//! Invariant: all codes are complete. [`Lengths::parse`] refuses others, and so does the compiler
//! for the shipped ones. Locks: none.

use super::code::is_complete;
use super::{LITERAL_CODE_BITS, LITERAL_TABLES, TOKEN_CODE_BITS, TOKENS, shipped};
use crate::terms::ParameterError;

/// The first bytes of tables. The last of them is the version of the format.
pub(crate) const MAGIC: [u8; 8] = *b"pagelz\0\x01";
/// Bytes of lengths.
pub(crate) const LENGTHS_LEN: usize = AT_LITERALS + LITERAL_TABLES * 256 / 2; // 3081

/// Where the bytes have the escape, the tokens and the literals.
const AT_ESCAPE: usize = MAGIC.len();
const AT_TOKENS: usize = AT_ESCAPE + 1;
const AT_LITERALS: usize = AT_TOKENS + TOKENS / 2;
/// The symbol behind all tokens.
pub(super) const ESCAPE: usize = TOKENS;

/// The shipped lengths.
pub(crate) const SHIPPED_LENGTHS: Lengths = match Lengths::parse(&from_digits(shipped::DIGITS)) {
    Ok(lengths) => lengths,
    Err(_) => panic!("the shipped lengths make no complete codes"),
};

/// Lengths of the words of all codes. Zero is a token without a word.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Lengths {
    /// The escape is the last of them.
    pub(super) tokens: [u8; TOKENS + 1],
    pub(super) literals: [[u8; 256]; LITERAL_TABLES],
}

impl Lengths {
    /// The lengths in `bytes`, if these are tables of this version and nothing else.
    pub(crate) const fn parse(bytes: &[u8]) -> Result<Self, ParameterError> {
        if bytes.len() != LENGTHS_LEN || !begins(bytes) {
            return Err(ParameterError::DamagedDictionary);
        }
        let mut lengths = Self { tokens: [0; TOKENS + 1], literals: [[0; 256]; LITERAL_TABLES] };
        lengths.tokens[ESCAPE] = bytes[AT_ESCAPE];
        let mut token = 0;
        while token < TOKENS {
            lengths.tokens[token] = nibble(bytes, AT_TOKENS, token);
            token += 1;
        }
        let mut literal = 0;
        while literal < LITERAL_TABLES * 256 {
            lengths.literals[literal / 256][literal % 256] = nibble(bytes, AT_LITERALS, literal);
            literal += 1;
        }
        if lengths.is_valid() { Ok(lengths) } else { Err(ParameterError::DamagedDictionary) }
    }

    /// Whether all codes are complete, and the escape and every literal have a word.
    const fn is_valid(&self) -> bool {
        let mut valid = is_complete(&self.tokens, TOKEN_CODE_BITS) && self.tokens[ESCAPE] > 0;
        let mut literal = 0;
        while literal < LITERAL_TABLES * 256 {
            let table = &self.literals[literal / 256];
            valid &= table[literal % 256] > 0;
            if literal % 256 == 0 {
                valid &= is_complete(table, LITERAL_CODE_BITS);
            }
            literal += 1;
        }
        valid
    }

    /// The same as bytes.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let halves = |lengths: &[u8]| -> Vec<u8> {
            lengths.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
        };
        let mut bytes = MAGIC.to_vec();
        bytes.push(self.tokens[ESCAPE]);
        bytes.extend(halves(&self.tokens[..TOKENS]));
        self.literals.iter().for_each(|table| bytes.extend(halves(table)));
        bytes
    }
}

/// Whether `bytes` begin as tables do, of whatever version.
pub(crate) fn is_tables(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC[..MAGIC.len() - 1])
}

const fn begins(bytes: &[u8]) -> bool {
    let mut at = 0;
    while at < MAGIC.len() {
        if bytes[at] != MAGIC[at] {
            return false;
        }
        at += 1;
    }
    true
}

const fn nibble(bytes: &[u8], start: usize, index: usize) -> u8 {
    let pair = bytes[start + index / 2];
    if index.is_multiple_of(2) { pair >> 4 } else { pair & 15 }
}

/// The bytes that hex digits stand for.
const fn from_digits(digits: &[u8]) -> [u8; LENGTHS_LEN] {
    let mut bytes = [0; LENGTHS_LEN];
    let mut at = 0;
    while at < LENGTHS_LEN {
        bytes[at] = value(digits[2 * at]) << 4 | value(digits[2 * at + 1]);
        at += 1;
    }
    bytes
}

const fn value(digit: u8) -> u8 {
    if digit <= b'9' { digit - b'0' } else { digit - b'a' + 10 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_come_back_from_their_bytes() {
        let bytes = SHIPPED_LENGTHS.to_bytes();
        assert_eq!(bytes.len(), LENGTHS_LEN);
        assert_eq!(Lengths::parse(&bytes).as_ref(), Ok(&SHIPPED_LENGTHS));
    }

    /// Any change makes a code that has gaps or overlaps, or another magic.
    #[test]
    fn damaged_tables_are_refused() {
        let bytes = SHIPPED_LENGTHS.to_bytes();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(Lengths::parse(&damaged), Err(ParameterError::DamagedDictionary), "{at}");
        }
        for len in [0, 8, bytes.len() - 1] {
            assert!(Lengths::parse(&bytes[..len]).is_err());
        }
    }
}
