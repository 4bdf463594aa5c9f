//! Same-filled pages: of a page that repeats one 8-byte word, only the word is stored.
//!
//! ```text
//!   word = two equal halves   the cell holds the half                      tag HALF
//!   any other word            the cell holds a number; the table, its word tag INTERNED
//! ```
//!
//! A cell has room for 41 bits. Nearly all same-filled pages are zeros or one repeated byte, so the
//! two halves of their word are equal. The other words share a bounded table with use counts. If
//! that table is full, the page is compressed like any other, to a few dozen bytes.
//!
//! Invariants
//! - I1 The use count of a number is the number of cells that hold it.
//! - I2 The word of a number changes only while its use count is 0. So a thread that has locked a
//!   cell with that number reads the word without the table's lock. A fault handler needs this.
//!
//! Lock: the table's. It is taken while a cell is locked, and no lock is taken under it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::terms::PAGE_LEN_MAX;

/// Tag of a cell whose value is half of the word.
const HALF: u8 = 1;
/// Tag of a cell whose value is a number in the table.
const INTERNED: u8 = 2;
/// The most words that the table holds.
const WORDS_MAX: usize = 1 << 16; // 65536
/// Words that are allocated together: 8 KiB. They are never freed.
const CHUNK: usize = 1 << 10; // 1024 words, 8 KiB
/// Chunks of words.
const CHUNKS: usize = WORDS_MAX / CHUNK; // 64
const _: () = assert!(WORDS_MAX <= u32::MAX as usize, "numbers fit the table's u32");

/// A same-filled page in the form in which a cell keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Same {
    /// The cell's tag: which kind of value it holds.
    pub tag: u8,
    /// The cell's value, of at most 41 bits.
    pub value: u64,
}

impl Same {
    /// The page of zeros.
    pub const ZERO: Same = Same { tag: HALF, value: 0 };

    /// What a cell with this tag and value holds; `None` if it holds no same-filled page.
    pub fn from_cell(tag: u8, value: u64) -> Option<Same> {
        matches!(tag, HALF | INTERNED).then_some(Same { tag, value })
    }

    /// Whether the word is in the table.
    pub fn is_interned(self) -> bool {
        self.tag == INTERNED
    }
}

/// The 8-byte word that a page of [`PAGE_LEN_MAX`] bytes repeats, if it repeats one.
///
/// The second word is compared first, because it is in the cache line of the first. Most pages need
/// no further look. The last word is next, because many pages begin with a run of equal words.
pub fn repeated_word(page: &[u8]) -> Option<u64> {
    debug_assert_eq!(page.len(), PAGE_LEN_MAX);
    let (words, _) = page.as_chunks::<8>();
    let (first, last) = (words.first()?, words.last()?);
    let same = words.get(1) == Some(first) && first == last && words.iter().all(|it| it == first);
    same.then(|| u64::from_ne_bytes(*first))
}

/// Fills `page` with `word`. Bytes after the last whole word stay as they are.
pub fn fill(page: &mut [u8], word: u64) {
    for chunk in page.as_chunks_mut::<8>().0 {
        *chunk = word.to_ne_bytes();
    }
}

/// The table of words that do not fit a cell.
#[derive(Debug)]
pub struct Words {
    table: Mutex<Table>,
    /// Words by number. A chunk is allocated when it is first used.
    chunks: [OnceLock<Box<[AtomicU64]>>; CHUNKS],
}

impl Default for Words {
    fn default() -> Words {
        Words { table: Mutex::default(), chunks: [const { OnceLock::new() }; CHUNKS] }
    }
}

#[derive(Debug, Default)]
struct Table {
    numbers: HashMap<u64, u32>,
    /// Use count by number.
    uses: Vec<u64>,
    free: Vec<u32>,
}

impl Words {
    /// The form in which a cell keeps a page of `word`; `None` if the table is full. The caller
    /// gives it back by [`release`](Self::release).
    pub fn intern(&self, word: u64) -> Option<Same> {
        if word >> 32 == word & 0xffff_ffff {
            return Some(Same { tag: HALF, value: word >> 32 });
        }
        let mut table = self.lock();
        let number = table.take(word)?;
        let chunk = self.chunks[number as usize / CHUNK].get_or_init(new_chunk);
        // relaxed: unlocking the cell that the number goes into publishes the word. If other cells
        // hold the number already, the same word is stored again, which changes nothing (I2).
        chunk[number as usize % CHUNK].store(word, Ordering::Relaxed);
        Some(Same { tag: INTERNED, value: u64::from(number) })
    }

    /// The word of a locked cell. Takes no lock (I2). The word is 0 for a number that was never in
    /// use, but no cell holds such a number.
    pub fn word(&self, same: Same) -> u64 {
        if same.tag == HALF {
            return same.value << 32 | same.value;
        }
        let number = same.value as usize;
        let chunk = self.chunks.get(number / CHUNK).and_then(OnceLock::get);
        // relaxed: the lock of the cell makes the word visible that was stored with the number.
        chunk.map_or(0, |chunk| chunk[number % CHUNK].load(Ordering::Relaxed))
    }

    /// Counts one use less, because a cell gave up its value.
    pub fn release(&self, same: Same) {
        if same.is_interned() {
            self.lock().give(same.value as u32, self.word(same));
        }
    }

    /// The sum of all use counts, for a check.
    pub fn uses(&self) -> u64 {
        self.lock().uses.iter().sum()
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> u64 {
        let table = self.lock();
        let per_number = size_of::<(u64, u32)>() + 1; // one control byte per bucket
        let chunks = self.chunks.iter().filter(|chunk| chunk.get().is_some()).count();
        (table.numbers.capacity() * per_number
            + chunks * CHUNK * size_of::<u64>()
            + table.uses.capacity() * size_of::<u64>()
            + table.free.capacity() * size_of::<u32>()) as u64
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // Nothing that runs under the lock panics half-way, so poison is ignored.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn new_chunk() -> Box<[AtomicU64]> {
    (0..CHUNK).map(|_| AtomicU64::new(0)).collect()
}

impl Table {
    fn take(&mut self, word: u64) -> Option<u32> {
        if let Some(&number) = self.numbers.get(&word) {
            self.uses[number as usize] += 1;
            return Some(number);
        }
        let number = match self.free.pop() {
            Some(number) => number,
            None if self.uses.len() < WORDS_MAX => {
                self.uses.push(0);
                self.uses.len() as u32 - 1
            }
            None => return None,
        };
        self.uses[number as usize] = 1;
        self.numbers.insert(word, number);
        Some(number)
    }

    fn give(&mut self, number: u32, word: u64) {
        let uses = &mut self.uses[number as usize];
        *uses -= 1;
        if *uses == 0 {
            self.numbers.remove(&word);
            self.free.push(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    fn page_of(word: u64) -> Vec<u8> {
        let mut page = vec![0; PAGE_LEN_MAX];
        fill(&mut page, word);
        page
    }

    #[test]
    fn a_page_that_differs_in_one_byte_is_not_same_filled() {
        for at in [0, 1, 7, 8, 2047, 4088, 4095] {
            let mut page = page_of(0x0102_0304_0506_0708);
            assert_eq!(repeated_word(&page), Some(0x0102_0304_0506_0708));
            page[at] ^= 1;
            assert_eq!(repeated_word(&page), None, "byte {at} differs");
        }
    }

    #[test]
    fn words_come_back_and_numbers_are_used_again() {
        let words = Words::default();
        for word in [0, u64::MAX, 0x5555_5555_5555_5555, 1, 0x1234_5678_9abc_def0] {
            let same = words.intern(word).expect("the table is empty");
            assert_eq!(words.word(same), word);
            words.release(same);
        }
        assert_eq!(words.uses(), 0);
        let first = words.intern(1).expect("room");
        assert_eq!(words.intern(1), Some(first), "one number per word");
        words.release(first);
        assert_eq!(words.word(first), 1, "still used once");
    }

    proptest! {
        /// Compares with a list of the pages that have a word, after every step.
        #[test]
        fn words_are_those_of_the_pages_that_have_them(
            steps in prop::collection::vec((0..6_u64, prop::option::of(0..40_usize)), 0..200),
        ) {
            let (words, mut pages) = (Words::default(), Vec::new());
            for (word, gone) in steps {
                match gone.filter(|_| !pages.is_empty()) {
                    None => pages.push((word, words.intern(word).expect("room"))),
                    Some(which) => {
                        let (_, same) = pages.swap_remove(which % pages.len());
                        words.release(same);
                    }
                }
                let counted = pages.iter().filter(|(_, same)| same.is_interned()).count();
                prop_assert_eq!(words.uses(), counted as u64);
                for (word, same) in &pages {
                    prop_assert_eq!(words.word(*same), *word);
                }
                let table = words.lock();
                prop_assert_eq!(table.numbers.len() + table.free.len(), table.uses.len());
            }
        }
    }

    /// Otherwise two words would share a number, and pages of one would read as the other.
    #[test]
    fn a_number_that_is_given_up_belongs_to_its_next_word_alone() {
        let words = Words::default();
        let first = words.intern(1).expect("room");
        words.intern(1).into_iter().for_each(|again| words.release(again));
        assert_eq!(words.uses(), 1, "still used once");
        assert_ne!(words.intern(2), Some(first), "still the first word's");
        words.release(first);
        assert_eq!(words.intern(3), Some(first), "given up, so it is used again");
        let one = words.intern(1).expect("room");
        assert_eq!((words.word(one), words.word(first)), (1, 3));
    }

    /// A fault handler needs this, because it may interrupt the thread that has the lock.
    #[test]
    fn a_word_is_read_while_the_table_is_locked() {
        const HANG: Duration = Duration::from_secs(60); // only a deadlock takes so long
        let words = Arc::new(Words::default());
        let same = words.intern(7).expect("room");
        let (reader, (send, read)) = (Arc::clone(&words), mpsc::channel());
        let locked = words.lock();
        std::thread::spawn(move || send.send(reader.word(same)));
        assert_eq!(read.recv_timeout(HANG), Ok(7), "no lock is waited for");
        drop(locked);
    }

    #[test]
    fn a_full_table_refuses_and_recovers() {
        let words = Words::default();
        let all: Vec<Same> =
            (1..=WORDS_MAX as u64).map(|word| words.intern(word).expect("room")).collect();
        assert_eq!(words.intern(u64::MAX / 3 + 1), None, "the table is full");
        assert_eq!(words.intern(0), Some(Same::ZERO), "halves need no room");
        words.release(all[7]);
        assert!(words.intern(u64::MAX / 3 + 1).is_some(), "a number became free again");
    }
}
