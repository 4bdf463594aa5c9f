//! Writes a page as a blob.
//!
//! ```text
//!   matcher --sequence--> bits of sequences        in their own place, because they come last
//!      '------literals--> literals, one after the other
//!
//!   blob = header | literals or their streams | bits of sequences
//! ```
//!
//! Literals are coded where that saves a sixteenth of them and [`SAVES_MIN`] bytes: a size class is
//! that wide, and decoding them takes time. If all of that is no shorter than the page, the page is
//! stored as literals.
//!
//! Invariant: a blob has at most two bytes more than its page. Locks: none.

use super::bits::{Held, Writer};
use super::lengths::ESCAPE;
use super::matcher::{Matcher, PAD, Padded, Sink, boxed};
use super::offset::{CLASSES, FIRST, LAST, class_of, raw};
use super::tables::Tables;
use super::{
    COUNT_BITS, HEADER, LENGTH_LONG, LEVEL_CODED, LITERALS_LONG, LONG_BITS_MIN, MATCH_MIN,
    TOKEN_CLASS, TOKEN_LITERALS, literals,
};
use crate::terms::{CodecError, PAGE_LEN_MAX};

/// The least that coding literals has to save: a share of them as a power of two, and bytes.
const SAVES_SHIFT: usize = 4;
const SAVES_MIN: usize = 24;
/// Room for the bits of all sequences. One takes at most 77 bits, of which 42 are for lengths that
/// are so long that few fit a page.
const SEQUENCES_BYTES: usize = 2 * PAGE_LEN_MAX; // 8192
/// Bytes that are copied at once.
const COPIED: usize = 16;
/// What is added to a long length, so that its first bit is set.
const LONG_ADDED: usize = 1 << (LONG_BITS_MIN - 1);

const _: () = assert!(SAVES_SHIFT < 64 && LONG_ADDED == 16, "a share, and the fifth bit");
const _: () = assert!(COPIED <= PAD, "a copy may go beyond the page");

/// What compressing keeps from page to page: only memory.
pub(crate) struct Compressor {
    matcher: Matcher,
    coder: Coder,
}

/// What the sequences of a page become.
struct Coder {
    literals: Box<Padded>,
    count: usize,
    sequences: Box<[u8; SEQUENCES_BYTES]>,
}

impl Compressor {
    /// Bytes on the heap.
    pub(crate) const BYTES: usize = Matcher::BYTES + size_of::<Padded>() + SEQUENCES_BYTES; // 24704

    pub(crate) fn new() -> Result<Self, CodecError> {
        let coder = Coder { literals: boxed()?, count: 0, sequences: boxed()? };
        Ok(Self { matcher: Matcher::new()?, coder })
    }

    /// Compresses `page` into `output`, which must have room for the [`bound`](super::bound) and
    /// eight bytes more.
    pub(crate) fn compress(
        &mut self,
        tables: &Tables,
        page: &[u8],
        output: &mut [u8],
        level: i32,
    ) -> usize {
        let Self { matcher, coder } = self;
        coder.count = 0;
        let mut pass = Pass { coder, tables, held: Held::default(), last: FIRST };
        matcher.find(page, &mut pass);
        let sequences = Writer::resume(&mut pass.coder.sequences[..], pass.held).finish();
        let len = coder.write(tables, sequences, output, level);
        if len < HEADER + page.len() { len } else { store(page, output) }
    }
}

/// The page as literals.
fn store(page: &[u8], output: &mut [u8]) -> usize {
    let header = page.len() as u16;
    output[..HEADER].copy_from_slice(&header.to_le_bytes());
    output[HEADER..HEADER + page.len()].copy_from_slice(page);
    HEADER + page.len()
}

impl Coder {
    /// Puts a blob together, if it is shorter than `output`. Gives its length.
    fn write(&self, tables: &Tables, sequences: usize, output: &mut [u8], level: i32) -> usize {
        let literals = &self.literals[..self.count];
        let saves_min = SAVES_MIN.max(self.count >> SAVES_SHIFT);
        let mut header = self.count as u16;
        let mut len = HEADER;
        let coded = (level >= LEVEL_CODED && self.count > saves_min)
            .then(|| literals::cheapest(tables, literals))
            .filter(|&(_, bits)| literals::coded_len(bits) + saves_min <= self.count);
        if let Some((table, _)) = coded {
            header |= 1 << COUNT_BITS;
            len += literals::write(tables, table, literals, &mut output[HEADER..]);
        } else {
            output[HEADER..HEADER + self.count].copy_from_slice(literals);
            len += self.count;
        }
        output[..HEADER].copy_from_slice(&header.to_le_bytes());
        if let Some(place) = output.get_mut(len..len + sequences) {
            place.copy_from_slice(&self.sequences[..sequences]);
        }
        len + sequences
    }

    /// Adds literals of the page.
    #[inline(always)]
    fn add(&mut self, page: &Padded, start: usize, count: usize) {
        let at = self.count & (PAGE_LEN_MAX - 1);
        let start = start & (PAGE_LEN_MAX - 1);
        self.literals[at..at + COPIED].copy_from_slice(&page[start..start + COPIED]);
        if count > COPIED {
            let count = count.min(PAGE_LEN_MAX - start.max(at));
            self.literals[at..at + count].copy_from_slice(&page[start..start + count]);
        }
        self.count += count;
    }
}

/// One page on its way.
struct Pass<'a> {
    coder: &'a mut Coder,
    tables: &'a Tables,
    held: Held,
    last: usize,
}

impl Sink for Pass<'_> {
    #[inline(always)]
    fn sequence(
        &mut self,
        page: &Padded,
        start: usize,
        literals: usize,
        length: usize,
        offset: usize,
    ) {
        self.coder.add(page, start, literals);
        let (token, class) = token(literals, length, offset, self.last);
        self.last = offset;
        let word = u32::from(self.tables.tokens[token]);
        let (mut bits, mut len) = (u64::from(word >> 4), word & 15);
        if word == 0 {
            (bits, len) = escaped(self.tables, token);
        }
        let (raw_len, _) = CLASSES[class];
        if class != LAST {
            bits = bits << raw_len | raw(offset, class);
            len += raw_len;
        }
        let mut writer = Writer::resume(&mut self.coder.sequences[..], self.held);
        writer.put(bits, len);
        writer.flush();
        if literals >= LITERALS_LONG {
            writer = put_long(writer, literals - LITERALS_LONG);
        }
        if length >= MATCH_MIN + LENGTH_LONG {
            writer = put_long(writer, length - MATCH_MIN - LENGTH_LONG);
        }
        self.held = writer.pause();
    }

    fn rest(&mut self, page: &Padded, start: usize, literals: usize) {
        if literals > 0 {
            self.coder.add(page, start, literals);
        }
    }
}

/// The token of a sequence, and its class.
#[inline(always)]
pub(super) fn token(literals: usize, length: usize, offset: usize, last: usize) -> (usize, usize) {
    let class = if offset == last { LAST } else { class_of(offset) };
    let literals = literals.min(LITERALS_LONG);
    let length = (length - MATCH_MIN).min(LENGTH_LONG);
    (class << TOKEN_CLASS | literals << TOKEN_LITERALS | length, class)
}

/// The bits of a token that has no word: those of the escape, and the token.
fn escaped(tables: &Tables, token: usize) -> (u64, u32) {
    let escape = u32::from(tables.tokens[ESCAPE]);
    (u64::from(escape >> 4) << 12 | token as u64, (escape & 15) + 12)
}

/// Writes what a long length has beyond the token: zeros, as many as tell how long it is, and it.
/// The writer goes by value, so that it needs no place in memory.
#[inline(never)]
fn put_long(mut writer: Writer<'_>, more: usize) -> Writer<'_> {
    let value = more + LONG_ADDED;
    let bits = usize::BITS - value.leading_zeros();
    writer.put(value as u64, 2 * bits - LONG_BITS_MIN);
    writer.flush();
    writer
}
