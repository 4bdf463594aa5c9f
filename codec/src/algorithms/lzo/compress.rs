//! The compressor. It is greedy: one table says where four bytes were last seen, and the first copy
//! that is found is taken.
//!
//! ```text
//!   table[hash of 4 bytes] = epoch + where they were last seen
//!
//!        epoch 4096            8192            12288   ...   61440      then cleared, from 4096
//!        | a page's places ... | the next page's ... |
//! ```
//!
//! A page's entries are all below the next page's epoch, so the table is cleared once in fifteen
//! pages and not for each page.
//!
//! Invariant: entries of this page lie at `epoch` and above, and all others lie below it. So a blob
//! does not depend on the pages before. Locks: none.

use super::{
    END, FAR_LEN_MAX, FIRST, LITERALS_MAX, NEAR_DISTANCE_MAX, NEAR_LEN_MAX, RUN_MARK, RUN_MAX,
    RUN_MIN, VERSION_RUNS, VERSIONED,
};
use crate::terms::{CodecError, PAGE_LEN_MAX};

/// Bits of a hash.
const HASH_BITS: u32 = 13;
/// Entries of the table: 16 KiB.
const ENTRIES: usize = 1 << HASH_BITS; // 8192
/// Bytes that are hashed, and so the length of the shortest copy.
const COPY_MIN: usize = 4;
/// No copy starts in the last bytes of a page, so that eight bytes can always be read.
const TAIL: usize = 8;
/// Literals after which the search begins to take longer steps.
const STEP_LOG: u32 = 5;
/// Bytes copied at once where there is room.
const CHUNK: usize = 16;

const _: () = assert!(PAGE_LEN_MAX * 16 == 1 << 16, "fifteen epochs and the cleared one fit u16");

/// What the compressor keeps between pages.
pub(crate) struct Compressor {
    table: Box<[u16; ENTRIES]>,
    epoch: u16,
}

impl Compressor {
    /// Bytes of the table.
    pub(crate) const BYTES: usize = ENTRIES * size_of::<u16>();

    /// An empty table.
    pub(crate) fn new() -> Result<Self, CodecError> {
        let mut table = Vec::new();
        table.try_reserve_exact(ENTRIES).map_err(|_| CodecError::NoMemory)?;
        table.resize(ENTRIES, 0);
        let table = table.into_boxed_slice().try_into().map_err(|_| CodecError::NoMemory)?;
        Ok(Self { table, epoch: 0 })
    }

    /// Compresses `page` into `output`, which must have room for its [`bound`](super::bound).
    pub(crate) fn compress(&mut self, page: &[u8], output: &mut [u8], runs: bool) -> usize {
        self.next_epoch();
        if runs { self.encode::<true>(page, output) } else { self.encode::<false>(page, output) }
    }

    fn next_epoch(&mut self) {
        self.epoch = self.epoch.wrapping_add(PAGE_LEN_MAX as u16);
        if self.epoch == 0 {
            self.table.fill(0);
            self.epoch = PAGE_LEN_MAX as u16;
        }
    }

    fn encode<const RUNS: bool>(&mut self, page: &[u8], output: &mut [u8]) -> usize {
        let mut blob = Blob::new(page, output, RUNS);
        // The first byte is a literal in any case, but may be the source of a copy.
        if let Some(word) = word_at(page, 0) {
            self.last_seen(page, 0, word as u32);
        }
        let (mut at, mut unwritten) = (1, 0);
        while let Some(word) = word_at(page, at) {
            if RUNS && word as u32 == 0 {
                let len = zeros_at(page, at);
                blob.literals(unwritten, at);
                blob.run(len);
                at += len;
                unwritten = at;
                continue;
            }
            match self.last_seen(page, at, word as u32) {
                Some(source) => {
                    let len = COPY_MIN + common(page, source + COPY_MIN, at + COPY_MIN);
                    blob.literals(unwritten, at);
                    blob.copy(at - source, len);
                    at += len;
                    unwritten = at;
                }
                None => at += 1 + ((at - unwritten) >> STEP_LOG),
            }
        }
        blob.literals(unwritten, page.len());
        blob.end()
    }

    /// Where in this page the four bytes at `at` were last seen. It notes `at` in place of that.
    #[inline(always)]
    fn last_seen(&mut self, page: &[u8], at: usize, word: u32) -> Option<usize> {
        let entry = &mut self.table[hash(word)];
        let seen = std::mem::replace(entry, self.epoch + at as u16);
        let source = usize::from(seen.checked_sub(self.epoch)?);
        let same = word_at(page, source)? as u32 == word;
        same.then_some(source)
    }
}

/// Multiplicative hashing (Knuth, volume 3, 6.4), with the golden ratio's fraction.
const fn hash(word: u32) -> usize {
    (word.wrapping_mul(0x9e37_79b1) >> (u32::BITS - HASH_BITS)) as usize
}

/// Eight bytes, the first one lowest; `None` in the last bytes of the page.
#[inline(always)]
fn word_at(page: &[u8], at: usize) -> Option<u64> {
    const { assert!(TAIL == size_of::<u64>()) };
    page.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

/// How many bytes from `source` on equal those from `at` on. `at` is the later of the two.
#[inline(always)]
fn common(page: &[u8], source: usize, at: usize) -> usize {
    let mut len = 0;
    while let (Some(old), Some(new)) = (word_at(page, source + len), word_at(page, at + len)) {
        if old != new {
            return len + ((old ^ new).trailing_zeros() / u8::BITS) as usize;
        }
        len += size_of::<u64>();
    }
    let pairs = page[source + len..].iter().zip(&page[at + len..]);
    len + pairs.take_while(|(old, new)| old == new).count()
}

/// How many bytes from `at` on are zero, but at most as many as a run can have.
#[inline(always)]
fn zeros_at(page: &[u8], at: usize) -> usize {
    let page = &page[at..page.len().min(at + RUN_MAX)];
    let mut len = 0;
    while let Some(word) = word_at(page, len) {
        if word != 0 {
            return len + (word.trailing_zeros() / u8::BITS) as usize;
        }
        len += size_of::<u64>();
    }
    len + page[len..].iter().take_while(|&&byte| byte == 0).count()
}

/// The blob as far as it is written.
struct Blob<'a> {
    page: &'a [u8],
    output: &'a mut [u8],
    len: usize,
    /// Where the instructions begin.
    start: usize,
    /// The byte whose last two bits are the state after the last instruction.
    state: usize,
}

impl<'a> Blob<'a> {
    fn new(page: &'a [u8], output: &'a mut [u8], runs: bool) -> Self {
        let mut blob = Self { page, output, len: 0, start: 0, state: 0 };
        if runs {
            blob.push([VERSIONED, VERSION_RUNS]);
            blob.start = blob.len;
        }
        blob
    }

    #[inline(always)]
    fn push<const N: usize>(&mut self, bytes: [u8; N]) {
        self.output[self.len..self.len + N].copy_from_slice(&bytes);
        self.len += N;
    }

    /// The bytes of the page from `from` up to `to`, unchanged.
    #[inline(always)]
    fn literals(&mut self, from: usize, to: usize) {
        let count = to - from;
        match count {
            0 => return,
            _ if self.len == self.start && count <= usize::from(u8::MAX) - FIRST => {
                self.push([(FIRST + count) as u8]);
            }
            1..=3 if self.len != self.start => self.output[self.state] |= count as u8,
            1..=LITERALS_MAX => self.push([(count - 3) as u8]),
            _ => {
                self.push([0]);
                self.extension(count - LITERALS_MAX);
            }
        }
        self.put(from, count);
    }

    /// Copies `count` literals. It copies a whole chunk if there is room, because the next
    /// instruction overwrites the surplus.
    #[inline(always)]
    fn put(&mut self, from: usize, count: usize) {
        let source = self.page[from..].first_chunk::<CHUNK>();
        let target = self.output[self.len..].first_chunk_mut::<CHUNK>();
        match (source, target) {
            (Some(source), Some(target)) if count <= CHUNK => *target = *source,
            _ => self.output[self.len..self.len + count]
                .copy_from_slice(&self.page[from..from + count]),
        }
        self.len += count;
    }

    #[inline(always)]
    fn copy(&mut self, distance: usize, len: usize) {
        let back = distance - 1;
        self.state = self.len;
        if len <= NEAR_LEN_MAX && distance <= NEAR_DISTANCE_MAX {
            self.push([(((len - 1) << 5) | ((back & 7) << 2)) as u8, (back >> 3) as u8]);
            return;
        }
        if len <= FAR_LEN_MAX {
            self.push([(0x20 | (len - 2)) as u8]);
        } else {
            self.push([0x20]);
            self.extension(len - FAR_LEN_MAX);
        }
        self.state = self.len;
        self.push(((back << 2) as u16).to_le_bytes());
    }

    #[inline(always)]
    fn run(&mut self, len: usize) {
        let over = len - RUN_MIN;
        self.push([(0x18 | (over & 7)) as u8]);
        self.state = self.len;
        self.push(RUN_MARK.to_le_bytes());
        self.push([(over >> 3) as u8]);
    }

    /// Writes by how much a length exceeds the largest that its instruction holds.
    fn extension(&mut self, mut over: usize) {
        while over > usize::from(u8::MAX) {
            self.push([0]);
            over -= usize::from(u8::MAX);
        }
        self.push([over as u8]);
    }

    fn end(mut self) -> usize {
        self.push(END);
        self.len
    }
}
