//! The twin: reads a blob bit by bit and copies byte by byte, straight from the document.

use std::collections::HashMap;

/// Words of a code, by length and bits.
type Code = HashMap<(u32, u32), usize>;

pub(crate) struct Tables {
    tokens: Code,
    literals: Vec<Code>,
}

const ESCAPE: usize = 4096;

impl Tables {
    /// The codes of tables that are known to be good.
    pub(crate) fn parse(bytes: &[u8]) -> Tables {
        assert_eq!(&bytes[..8], b"pagelz\0\x01");
        let halves: Vec<u32> = bytes[9..]
            .iter()
            .flat_map(|&byte| [u32::from(byte >> 4), u32::from(byte & 15)])
            .collect();
        let mut tokens = halves[..4096].to_vec();
        tokens.push(u32::from(bytes[8]));
        let literals = halves[4096..].chunks(256).map(code).collect();
        Tables { tokens: code(&tokens), literals }
    }
}

/// The words in order of length and then of symbol; each is the one before plus one.
fn code(lengths: &[u32]) -> Code {
    let mut code = Code::new();
    let mut word = 0;
    for len in 1..=15 {
        word *= 2;
        for (symbol, _) in lengths.iter().enumerate().filter(|(_, l)| **l == len) {
            code.insert((len, word), symbol);
            word += 1;
        }
    }
    code
}

/// Bits of some bytes, the most significant first; zeros behind them.
struct Bits<'a> {
    bytes: &'a [u8],
    taken: usize,
}

impl Bits<'_> {
    fn bit(&mut self) -> u32 {
        let byte = self.bytes.get(self.taken / 8).copied().unwrap_or(0);
        let bit = byte >> (7 - self.taken % 8) & 1;
        self.taken += 1;
        u32::from(bit)
    }

    fn number(&mut self, bits: u32) -> usize {
        (0..bits).fold(0, |number, _| number << 1 | self.bit() as usize)
    }

    fn symbol(&mut self, code: &Code) -> usize {
        let mut word = 0;
        for len in 1..=15 {
            word = word << 1 | self.bit();
            if let Some(&symbol) = code.get(&(len, word)) {
                return symbol;
            }
        }
        panic!("a code that is not complete");
    }

    /// A number whose length is told by the zeros before it.
    fn long(&mut self) -> Option<usize> {
        let mut zeros = 0;
        while self.bit() == 0 {
            zeros += 1;
            if zeros > 8 {
                return None;
            }
        }
        Some((1 << (zeros + 4) | self.number(zeros + 4)) - 16)
    }

    fn end_in_the_last_byte(&self) -> bool {
        self.taken.div_ceil(8) == self.bytes.len()
    }
}

/// The page of `len` bytes.
pub(crate) fn decompress(tables: &Tables, blob: &[u8], len: usize) -> Option<Vec<u8>> {
    let header = usize::from(u16::from_le_bytes([*blob.first()?, *blob.get(1)?]));
    let (count, coded, zero) = (header & 0x1fff, header >> 13 & 1, header >> 14);
    if zero != 0 || count > len {
        return None;
    }
    let (literals, rest) = match coded {
        0 => (blob.get(2..2 + count)?.to_vec(), blob.get(2 + count..)?),
        _ => coded_literals(tables, &blob[2..], count)?,
    };
    sequences(tables, &literals, rest, len)
}

fn coded_literals<'a>(
    tables: &Tables,
    blob: &'a [u8],
    count: usize,
) -> Option<(Vec<u8>, &'a [u8])> {
    let header = blob.get(..6)?.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
    let code = tables.literals.get((header >> 44) as usize)?;
    let mut rest = &blob[6..];
    let mut streams = Vec::new();
    for stream in 0..4 {
        let size = (header >> (11 * stream)) as usize & 0x7ff;
        streams.push(Bits { bytes: rest.get(..size)?, taken: 0 });
        rest = &rest[size..];
    }
    // Behind its end a stream is followed by what the blob has there, until it is refused.
    let literals = (0..count).map(|at| streams[at % 4].symbol(code) as u8).collect();
    streams.iter().all(Bits::end_in_the_last_byte).then_some((literals, rest))
}

fn sequences(tables: &Tables, literals: &[u8], blob: &[u8], len: usize) -> Option<Vec<u8>> {
    let mut bits = Bits { bytes: blob, taken: 0 };
    let (mut page, mut used, mut offset) = (Vec::new(), 0, 1);
    while page.len() + (literals.len() - used) < len {
        let mut token = bits.symbol(&tables.tokens);
        if token == ESCAPE {
            token = bits.number(12);
        }
        let (mut some, mut length) = (token >> 5 & 15, 4 + (token & 31));
        offset = match token >> 9 {
            0 => offset,
            1 => bits.number(4) + 1,
            2 => bits.number(8) + 1,
            3 => bits.number(12) + 1,
            4 => 8 * (bits.number(5) + 1),
            5 => 8 * (bits.number(9) + 1),
            6 => 4 * (bits.number(8) + 1),
            _ => 16 * (bits.number(8) + 1),
        };
        if some == 15 {
            some += bits.long()?;
        }
        if length == 35 {
            length += bits.long()?;
        }
        page.extend(literals.get(used..used + some)?);
        used += some;
        if offset > page.len() || page.len() + length + (literals.len() - used) > len {
            return None;
        }
        (0..length).for_each(|_| page.push(page[page.len() - offset]));
    }
    page.extend(&literals[used..]);
    bits.end_in_the_last_byte().then_some(page)
}
