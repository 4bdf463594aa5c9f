//! Reads a page from a blob, whatever bytes that has.
//!
//! ```text
//!   page  | written .......... | gap: bytes of matches to come | literals to come |
//!         0                  end                             next               len
//! ```
//!
//! All literals are put at the end of the page first. A sequence moves some of them to the front
//! and fills as much of the gap as its match is long. The gap is as long as all matches that are
//! left. When it is gone, the literals behind it are where they belong, and the page is whole.
//!
//! While the gap is wide, copies are of fixed lengths and may write more than is wanted. What they
//! write too much lies in the gap and is overwritten later.
//!
//! Invariant: `end <= next <= len`, and no copy that is too long reaches `next`. Locks: none.

use super::bits::Reader;
use super::tables::{Entry, Tables};
use super::{
    COUNT_BITS, HEADER, LENGTH_LONG, LITERALS_LONG, LONG_BITS_MIN, LONG_ZEROS_MAX, MATCH_MIN,
    TOKEN_CODE_BITS, literals, offset,
};
use crate::terms::{CodecError, PAGE_LEN_MAX};

/// The gap that copies of fixed lengths need: 14 literals, and then three copies of a match.
const ROOM: usize = 64;
/// The gap that a sequence needs whose match has at most [`COPIED`] bytes.
const LITTLE_ROOM: usize = 24;
/// Bits of a token.
const TOKEN_BITS: u32 = 12;
/// Bytes of a copy.
const COPIED: usize = 16;
/// Bytes of a word.
const WORD: usize = 8;
/// The coded flag of the header.
const CODED: u16 = 1 << COUNT_BITS;

const _: () = assert!(LITERALS_LONG - 1 + 3 * COPIED <= ROOM, "literals, then the longest match");
const _: () = assert!(MATCH_MIN + LENGTH_LONG - 1 <= 3 * COPIED - WORD, "words may go beyond it");
const _: () = assert!(LITERALS_LONG - 1 <= COPIED, "one copy has all literals");
const _: () = assert!(COPIED + WORD <= LITTLE_ROOM, "words may go beyond a short match");
const _: () = assert!(TOKEN_CODE_BITS < 64 && CODED == 0x2000, "the bit behind the count");

/// Fills `page` from `blob`.
pub(crate) fn decompress(tables: &Tables, blob: &[u8], page: &mut [u8]) -> Result<(), CodecError> {
    let header = blob.first_chunk::<HEADER>().ok_or(CodecError::Corrupt)?;
    let header = u16::from_le_bytes(*header);
    if header >= CODED << 1 {
        return Err(CodecError::Corrupt);
    }
    let count = usize::from(header & (CODED - 1));
    let next = page.len().checked_sub(count).ok_or(CodecError::Corrupt)?;
    let last = &mut page[next..];
    let start = match header & CODED {
        0 => copy_literals(blob, last)?,
        _ => literals::read(tables, blob, HEADER, last)?,
    };
    let reader = Reader::new(blob, start);
    // A whole page is by far the most frequent, and its length is a constant then.
    match <&mut [u8; PAGE_LEN_MAX]>::try_from(&mut *page) {
        Ok(whole) => sequences(tables, reader, whole, next),
        Err(_) => sequences(tables, reader, page, next),
    }
}

fn copy_literals(blob: &[u8], literals: &mut [u8]) -> Result<usize, CodecError> {
    let end = HEADER + literals.len();
    literals.copy_from_slice(blob.get(HEADER..end).ok_or(CodecError::Corrupt)?);
    Ok(end)
}

/// The lengths of a sequence.
#[derive(Clone, Copy)]
struct Sequence {
    literals: usize,
    length: usize,
}

#[inline(always)]
fn sequences(
    tables: &Tables,
    mut reader: Reader<'_>,
    page: &mut [u8],
    mut next: usize,
) -> Result<(), CodecError> {
    let (mut end, mut last) = (0, offset::FIRST);
    let mut entry = look_up(tables, &reader);
    while next - end >= ROOM || has_little_room(entry, next - end) {
        if entry.is_escape() {
            entry = read_escaped(entry, &mut reader);
        }
        let (literals, length) = (entry.literals(), entry.length());
        last = read_offset(entry, &mut reader, last);
        if entry.is_slow() {
            let sequence;
            (sequence, reader) = read_long_lengths(literals, length, reader)?;
            (end, next) = apply(page, sequence, last, end, next)?;
            entry = look_up(tables, &reader);
            continue;
        }
        entry = look_up(tables, &reader);
        move_literals(page, next, end, literals)?;
        (end, next) = (end + literals, next + literals);
        if last > end {
            return Err(CodecError::Corrupt);
        }
        copy_match(page, end, last, length);
        end += length;
    }
    while next > end {
        if entry.is_escape() {
            entry = read_escaped(entry, &mut reader);
        }
        last = read_offset(entry, &mut reader, last);
        let sequence;
        (sequence, reader) = read_long_lengths(entry.literals(), entry.length(), reader)?;
        (end, next) = apply(page, sequence, last, end, next)?;
        entry = look_up(tables, &reader);
    }
    if reader.ends_well() { Ok(()) } else { Err(CodecError::Corrupt) }
}

/// Whether a gap is enough for a sequence whose match is one copy.
#[inline(always)]
fn has_little_room(entry: Entry, gap: usize) -> bool {
    gap >= LITTLE_ROOM && entry.length() <= COPIED && !entry.is_slow()
}

#[inline(always)]
fn look_up(tables: &Tables, reader: &Reader<'_>) -> Entry {
    Entry(tables.entries[(reader.bits() >> (64 - TOKEN_CODE_BITS)) as usize])
}

/// The entry of a token that stands behind the escape. It has only the bits of the offset.
#[inline(always)]
fn read_escaped(escape: Entry, reader: &mut Reader<'_>) -> Entry {
    reader.skip(escape.bits());
    let entry = Entry::of_token(reader.peek(TOKEN_BITS) as usize);
    reader.skip(TOKEN_BITS);
    entry
}

/// The offset of a sequence. There may be no bit of it.
#[inline(always)]
fn read_offset(entry: Entry, reader: &mut Reader<'_>, last: usize) -> usize {
    let offset = entry.offset(reader.peek(entry.bits()), last);
    reader.skip(entry.bits());
    reader.refill();
    offset
}

/// The lengths of a sequence. The reader goes by value, so that it needs no place in memory.
#[inline(never)]
fn read_long_lengths(
    mut literals: usize,
    mut length: usize,
    mut reader: Reader<'_>,
) -> Result<(Sequence, Reader<'_>), CodecError> {
    if literals == LITERALS_LONG {
        literals += read_long(&mut reader)?;
    }
    if length == MATCH_MIN + LENGTH_LONG {
        length += read_long(&mut reader)?;
    }
    Ok((Sequence { literals, length }, reader))
}

/// What a long length has beyond the token.
fn read_long(reader: &mut Reader<'_>) -> Result<usize, CodecError> {
    let zeros = reader.bits().leading_zeros();
    if zeros > LONG_ZEROS_MAX {
        return Err(CodecError::Corrupt);
    }
    let bits = 2 * zeros + LONG_BITS_MIN;
    let value = reader.peek(bits) as usize;
    reader.skip(bits);
    reader.refill();
    Ok(value - (1 << (LONG_BITS_MIN - 1)))
}

/// Does what a sequence says, and no byte more. Gives what is written then, and the next literal.
fn apply(
    page: &mut [u8],
    sequence: Sequence,
    offset: usize,
    end: usize,
    next: usize,
) -> Result<(usize, usize), CodecError> {
    let Sequence { literals, length } = sequence;
    if literals > page.len() - next || length > next - end || offset > end + literals {
        return Err(CodecError::Corrupt);
    }
    page.copy_within(next..next + literals, end);
    let end = end + literals;
    let mut done = 0;
    while done < length {
        // What was copied repeats with the offset, so as much again can be copied at once.
        let some = (offset + done).min(length - done);
        page.copy_within(end - offset..end - offset + some, end + done);
        done += some;
    }
    Ok((end + length, next + literals))
}

/// Moves at most [`COPIED`] literals from `next` to `end`.
#[inline(always)]
fn move_literals(page: &mut [u8], next: usize, end: usize, count: usize) -> Result<(), CodecError> {
    if let Some(literals) = page.get(next..).and_then(<[u8]>::first_chunk::<COPIED>) {
        let literals = *literals;
        put(page, end, literals);
        return Ok(());
    }
    move_last_literals(page, next, end, count)
}

#[inline(never)]
fn move_last_literals(
    page: &mut [u8],
    next: usize,
    end: usize,
    count: usize,
) -> Result<(), CodecError> {
    if count > page.len() - next {
        return Err(CodecError::Corrupt);
    }
    (0..count).for_each(|at| page[end + at] = page[next + at]);
    Ok(())
}

#[inline(always)]
fn get<const N: usize>(page: &[u8], at: usize) -> [u8; N] {
    page.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; N])
}

#[inline(always)]
fn put<const N: usize>(page: &mut [u8], at: usize, bytes: [u8; N]) {
    if let Some(place) = page.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        *place = bytes;
    }
}

/// Copies a match that has no long length, and perhaps some bytes behind it.
#[inline(always)]
fn copy_match(page: &mut [u8], end: usize, offset: usize, length: usize) {
    let from = end - offset;
    if offset < COPIED {
        return copy_near(page, end, offset, length);
    }
    put(page, end, get::<COPIED>(page, from));
    if length > COPIED {
        put(page, end + COPIED, get::<COPIED>(page, from + COPIED));
        put(page, end + 2 * COPIED, get::<COPIED>(page, from + 2 * COPIED));
    }
}

/// For each offset below a word: a factor that repeats so many bytes, and how many bytes of the
/// product are whole repetitions.
const REPEATS: [(u64, usize); WORD] = [
    (0, WORD),
    (0x0101_0101_0101_0101, 8),
    (0x0001_0001_0001_0001, 8),
    (0x0001_0000_0100_0001, 6),
    (0x0000_0001_0000_0001, 8),
    (0x0000_0100_0000_0001, 5),
    (0x0001_0000_0000_0001, 6),
    (0x0100_0000_0000_0001, 7),
];

/// The same for a match that begins so near that a copy would overlap it.
#[inline(always)]
fn copy_near(page: &mut [u8], end: usize, offset: usize, length: usize) {
    let mut at = end;
    if offset >= WORD {
        put(page, at, get::<WORD>(page, at - offset));
        at += WORD;
        while at < end + length {
            put(page, at, get::<WORD>(page, at - offset));
            at += WORD;
        }
        return;
    }
    let (factor, step) = REPEATS[offset & (WORD - 1)];
    let bytes = u64::from_le_bytes(get(page, end - offset)) & ((1 << (8 * offset)) - 1);
    let repeated = bytes.wrapping_mul(factor).to_le_bytes();
    // Most are no longer than this, and no branch has to be foreseen.
    put(page, at, repeated);
    put(page, at + step, repeated);
    at += 2 * step;
    while at < end + length {
        put(page, at, repeated);
        at += step;
    }
}
