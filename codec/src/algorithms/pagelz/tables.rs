//! Tables of codes, in which both directions look up what they need.
//!
//! ```text
//!   token       (class, literals, length) --> word, or escape and 12 raw bits
//!   entry   31   30    29..27  26..15  14..9   8..5      4..0
//!           slow last  unit    mask    length  literals  bits of word and offset
//! ```
//!
//! The token's table is looked up by the next eleven bits. An entry has all that a sequence needs,
//! if it has no long length and no escape. A literal's table is looked up by the next ten bits, and
//! its entries are the symbol and the length of its word.
//!
//! Invariant: all codes are complete, so that every entry of every table means something.
//! Locks: none.

use super::code::Words;
use super::lengths::{ESCAPE, Lengths, SHIPPED_LENGTHS};
use super::offset::{CLASSES, LAST};
use super::{
    LENGTH_LONG, LITERAL_CODE_BITS, LITERAL_TABLES, LITERALS_LONG, MATCH_MIN, TOKEN_CLASS,
    TOKEN_CODE_BITS, TOKEN_LITERALS, TOKENS,
};

/// Entries of the table of tokens, and of one of literals.
const TOKEN_ENTRIES: usize = 1 << TOKEN_CODE_BITS; // 2048
const LITERAL_ENTRIES: usize = 1 << LITERAL_CODE_BITS; // 1024

/// Where an entry has its fields.
const LITERALS_SHIFT: u32 = 5;
const LENGTH_SHIFT: u32 = 9;
const MASK_SHIFT: u32 = 15;
const UNIT_SHIFT: u32 = 27;
const LAST_BIT: u32 = 1 << 30;
const SLOW_BIT: u32 = 1 << 31;

const _: () = assert!(TOKEN_CODE_BITS + 12 < 1 << LITERALS_SHIFT, "bits of word and offset");
const _: () = assert!(LENGTH_SHIFT - LITERALS_SHIFT == 4, "literals of a token");
const _: () = assert!(MATCH_MIN + LENGTH_LONG < 1 << (MASK_SHIFT - LENGTH_SHIFT), "a length");
const _: () = assert!(UNIT_SHIFT - MASK_SHIFT == 12, "a mask has the most raw bits");
const _: () = assert!(TOKEN_LITERALS + 4 == TOKEN_CLASS, "the fields of a token");

/// The shipped tables, made when this is compiled.
pub(crate) static SHIPPED: Tables = Tables::new(&SHIPPED_LENGTHS);

/// A word of a code: its bits above its length.
pub(super) type Word = u16;

/// What both directions look up.
pub(crate) struct Tables {
    pub(super) entries: [u32; TOKEN_ENTRIES],
    /// A symbol above the length of its word.
    pub(super) symbols: [[u16; LITERAL_ENTRIES]; LITERAL_TABLES],
    /// The word of each token and of the escape; zero is none.
    pub(super) tokens: [Word; TOKENS + 1],
    pub(super) literals: [[Word; 256]; LITERAL_TABLES],
    /// The length of a literal's word in each table, in a byte each.
    pub(super) prices: [u64; 256],
}

impl Tables {
    pub(crate) const fn new(lengths: &Lengths) -> Self {
        let mut tables = Self {
            entries: [0; TOKEN_ENTRIES],
            symbols: [[0; LITERAL_ENTRIES]; LITERAL_TABLES],
            tokens: [0; TOKENS + 1],
            literals: [[0; 256]; LITERAL_TABLES],
            prices: [0; 256],
        };
        tables.add_tokens(&lengths.tokens);
        let mut table = 0;
        while table < LITERAL_TABLES {
            tables.add_literals(table, &lengths.literals[table]);
            table += 1;
        }
        tables
    }

    const fn add_tokens(&mut self, lengths: &[u8; TOKENS + 1]) {
        let mut words = Words::first(lengths, TOKEN_CODE_BITS);
        while words.len > 0 {
            self.tokens[words.symbol] = (words.word << 4 | words.len) as Word;
            let entry = entry(words.symbol, words.len);
            let mut at = (words.word << (TOKEN_CODE_BITS - words.len)) as usize;
            let end = at + (1 << (TOKEN_CODE_BITS - words.len));
            while at < end {
                self.entries[at] = entry;
                at += 1;
            }
            words = words.next(lengths, TOKEN_CODE_BITS);
        }
    }

    const fn add_literals(&mut self, table: usize, lengths: &[u8; 256]) {
        let mut words = Words::first(lengths, LITERAL_CODE_BITS);
        while words.len > 0 {
            self.literals[table][words.symbol] = (words.word << 4 | words.len) as Word;
            self.prices[words.symbol] |= (words.len as u64) << (8 * table);
            let mut at = (words.word << (LITERAL_CODE_BITS - words.len)) as usize;
            let end = at + (1 << (LITERAL_CODE_BITS - words.len));
            while at < end {
                self.symbols[table][at] = (words.symbol << 8) as u16 | words.len as u16;
                at += 1;
            }
            words = words.next(lengths, LITERAL_CODE_BITS);
        }
    }
}

const _: () = assert!(TOKEN_CODE_BITS + 4 <= Word::BITS, "a word and its length");

/// The entry of a token or the escape whose word has `len` bits.
const fn entry(token: usize, len: u32) -> u32 {
    if token == ESCAPE {
        return SLOW_BIT | len;
    }
    let (class, literals) = (token >> TOKEN_CLASS, (token >> TOKEN_LITERALS) & LITERALS_LONG);
    let length = token & LENGTH_LONG;
    let (bits, unit) = CLASSES[class];
    let mut entry = (len + bits)
        | ((literals as u32) << LITERALS_SHIFT)
        | (((length + MATCH_MIN) as u32) << LENGTH_SHIFT)
        | (((1 << bits) - 1) << MASK_SHIFT)
        | (unit << UNIT_SHIFT);
    if class == LAST {
        entry |= LAST_BIT;
    }
    if literals == LITERALS_LONG || length == LENGTH_LONG {
        entry |= SLOW_BIT;
    }
    entry
}

/// An entry's fields. Those of the escape mean nothing, except the bits of its word.
#[derive(Clone, Copy)]
pub(super) struct Entry(pub(super) u32);

impl Entry {
    /// The entry that a token without a word would have, to take its fields from.
    pub(super) const fn of_token(token: usize) -> Self {
        Self(entry(token, 0))
    }

    /// Whether it is the escape.
    pub(super) const fn is_escape(self) -> bool {
        self.0 >> LITERALS_SHIFT == SLOW_BIT >> LITERALS_SHIFT
    }

    /// Whether something follows besides the raw bits of the offset.
    #[inline(always)]
    pub(super) const fn is_slow(self) -> bool {
        self.0 & SLOW_BIT != 0
    }

    #[inline(always)]
    pub(super) const fn bits(self) -> u32 {
        self.0 & ((1 << LITERALS_SHIFT) - 1)
    }

    #[inline(always)]
    pub(super) const fn literals(self) -> usize {
        (self.0 >> LITERALS_SHIFT) as usize & LITERALS_LONG
    }

    #[inline(always)]
    pub(super) const fn length(self) -> usize {
        (self.0 >> LENGTH_SHIFT) as usize & ((1 << (MASK_SHIFT - LENGTH_SHIFT)) - 1)
    }

    /// The offset, from the bits of word and offset, and from the last one.
    #[inline(always)]
    pub(super) const fn offset(self, bits: u64, last: usize) -> usize {
        let raw = bits as usize & (self.0 >> MASK_SHIFT) as usize & ((1 << 12) - 1);
        let offset = (raw + 1) << ((self.0 >> UNIT_SHIFT) & 7);
        if self.0 & LAST_BIT == 0 { offset } else { last }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_the_fields_of_its_token() {
        for token in 0..TOKENS {
            let entry = Entry(entry(token, 7));
            let (bits, unit) = CLASSES[token >> 9];
            assert_eq!(entry.literals(), (token >> 5) & 15);
            assert_eq!(entry.length(), 4 + (token & 31));
            assert_eq!(entry.bits(), 7 + bits);
            let largest = if token >> 9 == LAST { 77 } else { 1 << bits << unit };
            assert_eq!(entry.offset(u64::MAX, 77), largest);
            assert!(!entry.is_escape());
        }
        assert!(Entry(entry(ESCAPE, 5)).is_escape());
    }
}
