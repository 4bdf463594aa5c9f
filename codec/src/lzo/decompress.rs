//! The decompressor. A blob is hostile: every index is checked, and what does not fill the page
//! exactly, from exactly the whole blob, is damaged.
//!
//! ```text
//!              .--- copy, run: SS = 0 ---.      .--- SS = 1..3: so many literals follow ---.
//!              v                         |      v                                          |
//!   first --> state 0 --long literals--> state 4 ...... copy, run ......... state 1..3 ----'
//! ```
//!
//! Bytes below 16 mean something else in each of the three kinds of state.

use super::{END, FAR_LEN_MAX, FIRST, LITERALS_MAX, RUN_MARK, RUN_MIN, VERSION_RUNS, VERSIONED};
use crate::CodecError;

/// Bytes copied at once where there is room.
const CHUNK: usize = 16;
/// The state after a string of literals with an instruction of its own.
const AFTER_LITERALS: usize = 4;
/// The shortest blob that says its version.
const VERSIONED_LEN_MIN: usize = 5;

/// Fills `page` from `blob`, of either version.
pub(crate) fn decompress(blob: &[u8], page: &mut [u8]) -> Result<(), CodecError> {
    let len = page.len();
    let (runs, start) = version(blob).ok_or(CodecError::Corrupt)?;
    let mut decoder = Decoder { blob, next: start, page, filled: 0, runs };
    let whole = decoder.decode() == Some(()) && decoder.filled == len;
    if whole && decoder.next == blob.len() { Ok(()) } else { Err(CodecError::Corrupt) }
}

/// Whether the blob has runs, and where its instructions begin.
fn version(blob: &[u8]) -> Option<(bool, usize)> {
    match blob {
        [VERSIONED, version, ..] if blob.len() >= VERSIONED_LEN_MIN => {
            (*version <= VERSION_RUNS).then_some((*version == VERSION_RUNS, 2))
        }
        _ => Some((false, 0)),
    }
}

struct Decoder<'a> {
    blob: &'a [u8],
    /// The next byte of the blob.
    next: usize,
    page: &'a mut [u8],
    /// Bytes of the page that are there.
    filled: usize,
    runs: bool,
}

impl Decoder<'_> {
    /// All instructions. `None` for damage; the caller compares the lengths.
    fn decode(&mut self) -> Option<()> {
        let mut state = self.first()?;
        loop {
            let code = usize::from(self.byte()?);
            state = match code {
                0x40.. => {
                    let high = usize::from(self.byte()?);
                    self.copy((high << 3) + (code >> 2 & 7) + 1, (code >> 5) + 1)?;
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
                _ => {
                    state = self.low(code, state)?;
                    if state == AFTER_LITERALS {
                        continue;
                    }
                    state
                }
            };
            self.few_literals(state)?;
        }
    }

    /// The first byte, where it is one of literals; the state after it.
    fn first(&mut self) -> Option<usize> {
        let first = usize::from(*self.blob.get(self.next)?);
        let Some(count @ 1..) = first.checked_sub(FIRST) else { return Some(0) };
        self.next += 1;
        self.literals(count)?;
        Some(count.min(AFTER_LITERALS))
    }

    /// An instruction below 16: long literals or one of two short copies. Returns the state.
    #[inline(always)]
    fn low(&mut self, code: usize, state: usize) -> Option<usize> {
        if state == 0 {
            let count = self.length(code, 3, LITERALS_MAX)?;
            self.literals(count)?;
            return Some(AFTER_LITERALS);
        }
        let (len, beyond) = if state == AFTER_LITERALS { (3, 2048) } else { (2, 0) };
        let high = usize::from(self.byte()?);
        self.copy((high << 2) + (code >> 2) + beyond + 1, len)?;
        Some(code & 3)
    }

    /// A run of zeros, and the state after it, or the end, `Some(None)`.
    fn run_or_end(&mut self, code: usize) -> Option<Option<usize>> {
        let pair = self.pair()?;
        if self.runs && code & 0x18 == 0x18 && pair & RUN_MARK == RUN_MARK {
            let len = (usize::from(self.byte()?) << 3) + (code & 7) + RUN_MIN;
            self.page.get_mut(self.filled..self.filled + len)?.fill(0);
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

    /// The length that a field of an instruction says: so many more than `least`, or when it is
    /// zero, what the extension says more than `largest`.
    #[inline(always)]
    fn length(&mut self, field: usize, least: usize, largest: usize) -> Option<usize> {
        if field != 0 { Some(least + field) } else { self.extension(largest) }
    }

    #[cold]
    fn extension(&mut self, largest: usize) -> Option<usize> {
        let rest = &self.blob[self.next..];
        let zeros = rest.iter().position(|&byte| byte != 0)?;
        self.next += zeros + 1;
        Some(largest + zeros * usize::from(u8::MAX) + usize::from(rest[zeros]))
    }

    /// Up to three literals: four bytes in one go where there is room, of which the rest is
    /// written over by what comes next.
    #[inline(always)]
    fn few_literals(&mut self, count: usize) -> Option<()> {
        let source = self.blob.get(self.next..)?.first_chunk::<4>();
        let target = self.page.get_mut(self.filled..)?.first_chunk_mut::<4>();
        if let (Some(source), Some(target)) = (source, target) {
            *target = *source;
            self.next += count;
            self.filled += count;
            return Some(());
        }
        self.literals(count)
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

    /// Repeats `len` bytes from `distance` back.
    #[inline(always)]
    fn copy(&mut self, distance: usize, len: usize) -> Option<()> {
        let source = self.filled.checked_sub(distance)?;
        let end = self.filled + len;
        if distance >= 8 && end + 8 <= self.page.len() {
            self.words(source, len);
        } else if end <= self.page.len() {
            self.bytes(source, distance, len);
        } else {
            return None;
        }
        self.filled = end;
        Some(())
    }

    /// Eight bytes at a time, up to seven too many.
    #[inline(always)]
    fn words(&mut self, source: usize, len: usize) {
        let mut done = 0;
        while done < len {
            self.page.copy_within(source + done..source + done + 8, self.filled + done);
            done += 8;
        }
    }

    /// Where source and target overlap, or near the end of the page: what is there already,
    /// again and again, twice as much each time.
    fn bytes(&mut self, source: usize, distance: usize, len: usize) {
        let (mut done, mut have) = (0, distance);
        while done < len {
            let count = have.min(len - done);
            self.page.copy_within(source..source + count, self.filled + done);
            done += count;
            have += count;
        }
    }
}
