//! The decompressor. It treats a blob as hostile: it checks every index. A blob is damaged unless
//! the whole of it fills the page exactly.
//!
//! ```text
//!              .--- copy, run: SS = 0 ---.      .--- SS = 1..3: so many literals follow ---.
//!              v                         |      v                                          |
//!   first --> state 0 --long literals--> state 4 ...... copy, run ......... state 1..3 ----'
//! ```
//!
//! A byte below 16 has a different meaning in each of the three kinds of state.
//!
//! If there is room, eight or sixteen bytes are written at once, which may be more than an
//! instruction says. The next instruction overwrites the surplus. The last bytes of a page are
//! written one by one.
//!
//! Invariant: no byte is read or written outside of the blob and the page. Locks: none.

use super::{END, FAR_LEN_MAX, FIRST, LITERALS_MAX, RUN_MARK, RUN_MIN, VERSION_RUNS, VERSIONED};
use crate::terms::CodecError;

/// Bytes of a word.
const WORD: usize = size_of::<u64>();
/// Literals copied at once where there is room.
const CHUNK: usize = 16;
/// The state after a string of literals with an instruction of its own.
const AFTER_LITERALS: usize = 4;
/// The shortest blob that says its version.
const VERSIONED_LEN_MIN: usize = 5;
/// Factors by distance, shorter than a word: the product repeats that many bytes to fill a word.
const REPEAT: [u64; WORD] = [
    0,
    0x0101_0101_0101_0101,
    0x0001_0001_0001_0001,
    0x0001_0000_0100_0001,
    0x0000_0001_0000_0001,
    0x0000_0100_0000_0001,
    0x0001_0000_0000_0001,
    0x0100_0000_0000_0001,
];

/// By distance: bytes of the whole repetitions that a word holds.
const STEP: [usize; WORD] = [WORD, 8, 8, 6, 8, 5, 6, 7];

const _: () = assert!(REPEAT[3] == 1 | 1 << 24 | 1 << 48, "a one where each repetition begins");

/// Fills `page` from `blob`, of either version.
pub(crate) fn decompress(blob: &[u8], page: &mut [u8]) -> Result<(), CodecError> {
    let (runs, next) = version(blob).ok_or(CodecError::Corrupt)?;
    let len = page.len();
    let mut decoder = Decoder { blob, next, page, filled: 0, runs };
    let whole = decoder.decode() == Some(()) && decoder.filled == len;
    if whole && decoder.next == blob.len() { Ok(()) } else { Err(CodecError::Corrupt) }
}

/// Whether the blob has runs, and at which byte its instructions begin.
fn version(blob: &[u8]) -> Option<(bool, usize)> {
    match blob {
        [VERSIONED, version, ..] if blob.len() >= VERSIONED_LEN_MIN => {
            (*version <= VERSION_RUNS).then_some((*version == VERSION_RUNS, 2))
        }
        _ => Some((false, 0)),
    }
}

/// Everything is inlined into `decode`, so that `next` and `filled` stay in registers.
struct Decoder<'a> {
    blob: &'a [u8],
    /// The next byte of the blob.
    next: usize,
    page: &'a mut [u8],
    /// How many bytes of the page are filled.
    filled: usize,
    runs: bool,
}

impl Decoder<'_> {
    /// Decodes all instructions. `None` means damage. The caller compares the lengths.
    #[inline(always)]
    fn decode(&mut self) -> Option<()> {
        let mut state = self.first()?;
        loop {
            let code = usize::from(self.byte()?);
            state = match code {
                0x40.. => {
                    let high = usize::from(self.byte()?);
                    self.near_copy((high << 3) + ((code >> 2) & 7) + 1, (code >> 5) + 1)?;
                    code & 3
                }
                0x20.. => {
                    let len = self.length(code & 0x1f, 2, FAR_LEN_MAX)?;
                    let pair = self.pair()?;
                    self.copy(usize::from(pair >> 2) + 1, len)?;
                    usize::from(pair & 3)
                }
                0x10.. => match self.run_or_end(code)? {
                    Some(state) => state,
                    None => return Some(()),
                },
                _ if state == 0 => {
                    let count = self.length(code, 3, LITERALS_MAX)?;
                    self.literals(count)?;
                    state = AFTER_LITERALS;
                    continue;
                }
                _ => self.short_copy(code, state)?,
            };
            self.few_literals(state)?;
        }
    }

    /// Decodes the first byte if it stands for literals, and gives the state after it.
    #[inline(always)]
    fn first(&mut self) -> Option<usize> {
        let first = usize::from(*self.blob.get(self.next)?);
        let Some(count @ 1..) = first.checked_sub(FIRST) else { return Some(0) };
        self.next += 1;
        self.literals(count)?;
        Some(count.min(AFTER_LITERALS))
    }

    /// Decodes one of the two copies that compressors rarely write, and gives the state after it.
    #[inline(always)]
    fn short_copy(&mut self, code: usize, state: usize) -> Option<usize> {
        let (len, beyond) = if state == AFTER_LITERALS { (3, 2048) } else { (2, 0) };
        let high = usize::from(self.byte()?);
        self.near_copy((high << 2) + (code >> 2) + beyond + 1, len)?;
        Some(code & 3)
    }

    /// Decodes a run of zeros and gives the state after it, or the end, `Some(None)`.
    #[inline(always)]
    fn run_or_end(&mut self, code: usize) -> Option<Option<usize>> {
        let pair = self.pair()?;
        if self.runs && code & 0x18 == 0x18 && pair & RUN_MARK == RUN_MARK {
            let len = (usize::from(self.byte()?) << 3) + (code & 7) + RUN_MIN;
            let room = self.page.get_mut(self.filled..)?;
            match room.first_chunk_mut::<CHUNK>() {
                Some(room) if len <= CHUNK => room.fill(0),
                _ => room.get_mut(..len)?.fill(0),
            }
            self.filled += len;
            return Some(Some(usize::from(pair & 3)));
        }
        (code == usize::from(END[0]) && pair == 0).then_some(None)
    }

    #[inline(always)]
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.blob.get(self.next)?;
        self.next += 1;
        Some(byte)
    }

    #[inline(always)]
    fn pair(&mut self) -> Option<u16> {
        let pair = u16::from_le_bytes(*self.blob.get(self.next..)?.first_chunk()?);
        self.next += 2;
        Some(pair)
    }

    /// The length that an instruction says: `least` plus its field, or if the field is zero,
    /// `largest` plus what the extension says.
    #[inline(always)]
    fn length(&mut self, field: usize, least: usize, largest: usize) -> Option<usize> {
        if field != 0 {
            return Some(least + field);
        }
        let (over, bytes) = extension(self.blob.get(self.next..)?)?;
        self.next += bytes;
        Some(largest + over)
    }

    /// Copies up to three literals, as four bytes at once if there is room.
    #[inline(always)]
    fn few_literals(&mut self, count: usize) -> Option<()> {
        let source = self.blob.get(self.next..)?;
        let target = self.page.get_mut(self.filled..)?;
        match (source.first_chunk::<4>(), target.first_chunk_mut::<4>()) {
            (Some(source), Some(target)) => *target = *source,
            _ => target.get_mut(..count)?.copy_from_slice(source.get(..count)?),
        }
        self.next += count;
        self.filled += count;
        Some(())
    }

    #[inline(always)]
    fn literals(&mut self, count: usize) -> Option<()> {
        let source = self.blob.get(self.next..)?;
        let target = self.page.get_mut(self.filled..)?;
        match (source.first_chunk::<CHUNK>(), target.first_chunk_mut::<CHUNK>()) {
            (Some(source), Some(target)) if count <= CHUNK => *target = *source,
            _ => target.get_mut(..count)?.copy_from_slice(source.get(..count)?),
        }
        self.next += count;
        self.filled += count;
        Some(())
    }

    /// Repeats up to eight bytes from `distance` back.
    #[inline(always)]
    fn near_copy(&mut self, distance: usize, len: usize) -> Option<()> {
        let source = self.filled.checked_sub(distance)?;
        let end = self.filled + len;
        if self.filled + WORD <= self.page.len() {
            let word = word(self.page, source);
            let word = if distance < WORD { repeated(word, distance) } else { word };
            put(self.page, self.filled, word);
        } else {
            by_byte(self.page, source, self.filled, end)?;
        }
        self.filled = end;
        Some(())
    }

    /// Repeats `len` bytes from `distance` back.
    #[inline(always)]
    fn copy(&mut self, distance: usize, len: usize) -> Option<()> {
        let source = self.filled.checked_sub(distance)?;
        let end = self.filled + len;
        if end + WORD > self.page.len() {
            by_byte(self.page, source, self.filled, end)?;
        } else if distance >= WORD {
            by_word(self.page, source, self.filled, end);
        } else {
            by_pattern(self.page, source, self.filled, end);
        }
        self.filled = end;
        Some(())
    }
}

/// By how much a length exceeds the largest that its instruction holds, and in how many bytes
/// that is written.
#[inline(never)]
fn extension(rest: &[u8]) -> Option<(usize, usize)> {
    let zeros = rest.iter().position(|&byte| byte != 0)?;
    Some((zeros * usize::from(u8::MAX) + usize::from(rest[zeros]), zeros + 1))
}

/// Copies from a word or more back.
#[inline(always)]
fn by_word(page: &mut [u8], mut source: usize, mut at: usize, end: usize) {
    loop {
        put(page, at, word(page, source));
        at += WORD;
        source += WORD;
        if at >= end {
            break;
        }
    }
}

/// Copies from less than a word back: repeats the bytes there to a word, and writes it again and
/// again.
#[inline(always)]
fn by_pattern(page: &mut [u8], source: usize, mut at: usize, end: usize) {
    let distance = at - source;
    let pattern = repeated(word(page, source), distance);
    while at < end {
        put(page, at, pattern);
        at += STEP[distance % WORD];
    }
}

/// A word filled with repetitions of the first `distance` bytes of `word`, which are fewer than 8.
#[inline(always)]
fn repeated(word: u64, distance: usize) -> u64 {
    let bytes = word & !(u64::MAX << (distance as u32 * u8::BITS));
    bytes.wrapping_mul(REPEAT[distance % WORD])
}

/// Copies byte by byte, at the end of a page. `None` if the copy would end beyond it.
#[inline(never)]
fn by_byte(page: &mut [u8], source: usize, at: usize, end: usize) -> Option<()> {
    let page = page.get_mut(..end)?;
    (source..).zip(at..end).for_each(|(source, at)| page[at] = page[source]);
    Some(())
}

/// Eight bytes of a page. The caller knows that they are there.
#[inline(always)]
fn word(page: &[u8], at: usize) -> u64 {
    page[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

#[inline(always)]
fn put(page: &mut [u8], at: usize, word: u64) {
    if let Some(bytes) = page[at..].first_chunk_mut() {
        *bytes = word.to_le_bytes();
    }
}
