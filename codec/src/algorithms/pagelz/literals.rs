//! Coded literals: their table, and the streams to which they are dealt.
//!
//! ```text
//!   literal   0  1  2  3  4  5 ..       stream of each: 0  1  2  3  0  1 ..
//!   header    size of stream 0, 1, 2, 3: 11 bits each | table 3 | zero 1      little-endian
//!   streams   | stream 0 | stream 1 | stream 2 | stream 3 |                   whole bytes
//! ```
//!
//! The streams do not depend on each other, so a processor looks them up at the same time.
//!
//! Invariant: a stream is read from its own bytes and what follows them, and at the end its bits
//! must have ended in its last byte. Locks: none.

use super::bits::{Writer, ends_in_byte, load};
use super::tables::Tables;
use super::{CODED_HEADER, LITERAL_CODE_BITS, LITERAL_TABLES, SIZE_BITS, STREAMS};
use crate::terms::CodecError;

/// Words that are decoded from one load, which has at least 57 bits.
const WORDS_A_LOAD: usize = 5;
/// Literals of a round over all streams.
const ROUND: usize = WORDS_A_LOAD * STREAMS;
/// Literals whose packed prices fit a byte.
const PRICED_AT_ONCE: usize = 25;
/// Where the header has the table.
const TABLE_SHIFT: u32 = SIZE_BITS * STREAMS as u32; // 44

const _: () = assert!(WORDS_A_LOAD as u32 * LITERAL_CODE_BITS <= 57, "a load has all of them");
const _: () = assert!(PRICED_AT_ONCE as u32 * LITERAL_CODE_BITS < 256, "a sum fits a byte");
const _: () = assert!(TABLE_SHIFT + 4 == 8 * CODED_HEADER as u32, "sizes, table and a zero");
const _: () = assert!(LITERAL_TABLES == 8, "three bits of table, eight bytes of a word");

/// The table that codes `literals` in the fewest bits, and these.
pub(super) fn cheapest(tables: &Tables, literals: &[u8]) -> (usize, usize) {
    let bits = prices(tables, literals);
    let best = (0..LITERAL_TABLES).min_by_key(|&table| bits[table]).unwrap_or(0);
    (best, bits[best] as usize)
}

/// The bits that `literals` take with each table.
pub(super) fn prices(tables: &Tables, literals: &[u8]) -> [u32; LITERAL_TABLES] {
    let mut bits = [0; LITERAL_TABLES];
    for some in literals.chunks(PRICED_AT_ONCE) {
        let packed: u64 = some.iter().map(|&literal| tables.prices[usize::from(literal)]).sum();
        bits.iter_mut().zip(packed.to_le_bytes()).for_each(|(sum, some)| *sum += u32::from(some));
    }
    bits
}

/// The most bytes that header and streams take, if the literals take `bits`.
pub(super) const fn coded_len(bits: usize) -> usize {
    CODED_HEADER + bits / 8 + STREAMS
}

/// Writes header and streams to `out`, which has room for them and eight bytes more. Gives their
/// length.
pub(super) fn write(tables: &Tables, table: usize, literals: &[u8], out: &mut [u8]) -> usize {
    let (mut header, mut len) = ((table as u64) << TABLE_SHIFT, CODED_HEADER);
    for stream in 0..STREAMS {
        let room = out.get_mut(len..).unwrap_or_default();
        let size = write_stream(tables, table, literals, stream, room);
        header |= (size as u64) << (SIZE_BITS * stream as u32);
        len += size;
    }
    let header = header.to_le_bytes();
    out.iter_mut().zip(&header[..CODED_HEADER]).for_each(|(byte, &header)| *byte = header);
    len
}

fn write_stream(
    tables: &Tables,
    table: usize,
    literals: &[u8],
    stream: usize,
    out: &mut [u8],
) -> usize {
    let (words, mut writer) = (&tables.literals[table], Writer::new(out));
    for round in literals.chunks(ROUND) {
        for &literal in round.iter().skip(stream).step_by(STREAMS) {
            let word = words[usize::from(literal)];
            writer.put(u64::from(word >> 4), u32::from(word & 15));
        }
        writer.flush();
    }
    writer.finish()
}

/// Where the streams of a blob are, by bit.
struct Streams {
    next: [usize; STREAMS],
    end: [usize; STREAMS],
    table: usize,
}

impl Streams {
    /// What the header says that begins at `at`.
    fn parse(blob: &[u8], at: usize) -> Option<Self> {
        let bytes = blob.get(at..at + CODED_HEADER)?;
        let mut header = [0; 8];
        header[..CODED_HEADER].copy_from_slice(bytes);
        let header = u64::from_le_bytes(header);
        let mut streams =
            Self { next: [0; STREAMS], end: [0; STREAMS], table: (header >> TABLE_SHIFT) as usize };
        let mut start = at + CODED_HEADER;
        for stream in 0..STREAMS {
            let size = (header >> (SIZE_BITS * stream as u32)) as usize & ((1 << SIZE_BITS) - 1);
            streams.next[stream] = 8 * start;
            start += size;
            streams.end[stream] = 8 * start;
        }
        (streams.table < LITERAL_TABLES && start <= blob.len()).then_some(streams)
    }

    /// Whether each stream ended in its last byte.
    fn ended_well(&self, first: usize) -> bool {
        let starts = [first].into_iter().chain(self.end).zip(self.end);
        starts.zip(self.next).all(|((start, end), next)| {
            next >= start && ends_in_byte(next - start, (end - start) / 8)
        })
    }
}

/// Fills `literals` from the blob, whose header of literals begins at `at`. Gives where what
/// follows the streams begins.
pub(super) fn read(
    tables: &Tables,
    blob: &[u8],
    at: usize,
    literals: &mut [u8],
) -> Result<usize, CodecError> {
    let mut streams = Streams::parse(blob, at).ok_or(CodecError::Corrupt)?;
    let symbols = &tables.symbols[streams.table];
    let mut rounds = literals.chunks_exact_mut(ROUND);
    for round in &mut rounds {
        for (stream, next) in streams.next.iter_mut().enumerate() {
            let mut bits = load(blob, *next / 8) << (*next % 8);
            for word in 0..WORDS_A_LOAD {
                let symbol = symbols[(bits >> (64 - LITERAL_CODE_BITS)) as usize];
                round[word * STREAMS + stream] = (symbol >> 8) as u8;
                bits <<= symbol & 15;
                *next += usize::from(symbol & 15);
            }
        }
    }
    for (index, literal) in rounds.into_remainder().iter_mut().enumerate() {
        let next = &mut streams.next[index % STREAMS];
        let bits = load(blob, *next / 8) << (*next % 8);
        let symbol = symbols[(bits >> (64 - LITERAL_CODE_BITS)) as usize];
        *literal = (symbol >> 8) as u8;
        *next += usize::from(symbol & 15);
    }
    let first = 8 * (at + CODED_HEADER);
    let sound = streams.ended_well(first);
    sound.then_some(streams.end[STREAMS - 1] / 8).ok_or(CodecError::Corrupt)
}
