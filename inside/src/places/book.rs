//! The book of a process's memory: where each page is that is out, and which ranges are registered.
//!
//! ```text
//!   address >> 21 -> chunk: 512 words, a bit for each group that is in the queue; or all closed
//!   registered: ranges that do not touch each other
//! ```
//!
//! A chunk in which all pages are closed and no group is queued has no words. So memory that a
//! program maps and does not touch takes little here.
//!
//! Invariants
//! - B1: a page whose word says that it is out is missing in the program's memory.
//! - B2: a range that is `registered` here is registered with the kernel too, unless an event is
//!   unread that says otherwise. While one is unread, the kernel moves no page.
//! - B3: a chunk without a word and without a queued group is not kept, except if it is all closed.
//!
//! Lock: the caller's, for the whole book.

use super::terms::{GROUP, GROUP_PAGES, PAGE, Place, Word};
use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes of a chunk.
pub(crate) const CHUNK: usize = 2 << 20; // 2 MiB
/// The end of each registered range stays. On a thread's stack it has what the kernel writes when
/// the thread ends, and the kernel does not wait for a page then.
const KEPT: usize = 4 * PAGE; // 16 KiB
const CHUNK_PAGES: usize = CHUNK / PAGE; // 512

#[derive(Clone)]
struct Chunk {
    words: [Word; CHUNK_PAGES],
    /// Words that say that a page is out.
    out: u32,
    queued: u8,
}

/// Where the pages of one process are.
#[derive(Clone, Default)]
pub(crate) struct Book {
    /// Those of which something is known; `None` if all is closed and nothing queued.
    chunks: BTreeMap<usize, Option<Box<Chunk>>>,
    registered: BTreeMap<usize, usize>,
}

impl Book {
    /// The word of the page at an address.
    pub(crate) fn word(&self, address: usize) -> Word {
        let chunk = self.chunks.get(&(address / CHUNK));
        chunk.map_or(Word::PROGRAM, |chunk| words(chunk)[page_in_chunk(address)])
    }

    /// Writes the word of the page at an address.
    pub(crate) fn set(&mut self, address: usize, word: Word) {
        let number = address / CHUNK;
        match self.chunks.get(&number) {
            None if word == Word::PROGRAM => return,
            Some(None) if word == Word::CLOSED => return,
            _ => {}
        }
        let chunk = self.chunk(number);
        let old = std::mem::replace(&mut chunk.words[page_in_chunk(address)], word);
        chunk.out += u32::from(word != Word::PROGRAM);
        chunk.out -= u32::from(old != Word::PROGRAM);
        if chunk.is_empty() {
            self.chunks.remove(&number);
        }
    }

    /// A chunk with words.
    fn chunk(&mut self, number: usize) -> &mut Chunk {
        let entry = self.chunks.entry(number).or_insert_with(|| Some(Chunk::empty()));
        entry.get_or_insert_with(Chunk::closed)
    }

    /// Whether nothing is known of the chunk at an address: no page is out, no group is queued.
    pub(crate) fn is_vacant(&self, start: usize) -> bool {
        !self.chunks.contains_key(&(start / CHUNK))
    }

    /// All pages of a vacant chunk are closed.
    pub(crate) fn close(&mut self, start: usize) {
        debug_assert!(self.is_vacant(start), "it would forget words");
        self.chunks.insert(start / CHUNK, None);
    }

    /// Whether all pages of the chunk at an address are closed, and none was touched since.
    pub(crate) fn is_all_closed(&self, start: usize) -> bool {
        matches!(self.chunks.get(&(start / CHUNK)), Some(None))
    }

    /// Forgets the chunks of a range that are all closed, and lie in it with all of their pages.
    /// Returns where they begin.
    pub(crate) fn open(&mut self, range: &Range<usize>) -> Vec<usize> {
        let chunks = range.start.div_ceil(CHUNK)..range.end / CHUNK;
        let known = self.chunks.range(chunks.start..chunks.end.max(chunks.start));
        let closed: Vec<usize> = known.filter(|it| it.1.is_none()).map(|it| *it.0).collect();
        closed.iter().for_each(|number| drop(self.chunks.remove(number)));
        closed.into_iter().map(|number| number * CHUNK).collect()
    }

    /// The pages of a range that are out, in order.
    pub(crate) fn out(&self, range: &Range<usize>) -> impl Iterator<Item = (usize, Word)> {
        let (start, end) = (range.start, range.end);
        let chunks = start / CHUNK..end.div_ceil(CHUNK);
        let chunks = self.chunks.range(chunks.start..chunks.end.max(chunks.start));
        let is_out = |chunk: &Option<Box<Chunk>>| chunk.as_ref().is_none_or(|it| it.out > 0);
        chunks.filter(move |(_, chunk)| is_out(chunk)).flat_map(move |(number, chunk)| {
            let base = number * CHUNK;
            let first = start.saturating_sub(base).div_ceil(PAGE);
            let last = (end - base).div_ceil(PAGE).clamp(first, CHUNK_PAGES);
            let pages = words(chunk)[first..last].iter().zip(first..);
            let placed = pages.map(move |(word, page)| (base + page * PAGE, *word));
            placed.filter(move |&(_, word)| word != Word::PROGRAM)
        })
    }

    /// Forgets the pages of a range. Returns where their content was.
    pub(crate) fn forget(&mut self, range: &Range<usize>) -> Vec<Word> {
        let gone: Vec<(usize, Word)> = self.out(range).collect();
        gone.iter().for_each(|&(address, _)| self.set(address, Word::PROGRAM));
        gone.into_iter().map(|(_, word)| word).collect()
    }

    /// Memory moved: the words of `len` bytes go along. Nothing is out at the new place.
    pub(crate) fn moved(&mut self, from: usize, to: usize, len: usize) {
        let along: Vec<(usize, Word)> = self.out(&(from..from + len)).collect();
        along.iter().for_each(|&(address, _)| self.set(address, Word::PROGRAM));
        along.iter().for_each(|&(address, word)| self.set(address - from + to, word));
        self.unregistered(&(from..from + len));
        self.registered(&(to..to + len));
    }

    /// Notes that a range is registered.
    pub(crate) fn registered(&mut self, range: &Range<usize>) {
        self.unregistered(range);
        let (mut start, mut end) = (range.start, range.end);
        if let Some((&before, &until)) = self.registered.range(..start).next_back()
            && until == start
        {
            start = before;
        }
        if let Some(until) = self.registered.remove(&end) {
            end = until;
        }
        self.registered.insert(start, end);
    }

    /// Notes that a range is not registered any more.
    pub(crate) fn unregistered(&mut self, range: &Range<usize>) {
        let (start, end) = (range.start, range.end);
        let touching: Vec<(usize, usize)> = self
            .registered
            .range(..end)
            .rev()
            .take_while(|&(_, &until)| until > start)
            .map(|(&from, &until)| (from, until))
            .collect();
        for (from, until) in touching {
            self.registered.remove(&from);
            if from < start {
                self.registered.insert(from, start);
            }
            if until > end {
                self.registered.insert(end, until);
            }
        }
    }

    /// The parts of a group that are registered and may leave; mostly all of it is one.
    pub(crate) fn registered_parts(&self, group: usize) -> Vec<Range<usize>> {
        self.registered_parts_of(&(group..group + GROUP))
    }

    /// The parts of a range that are registered and may leave.
    pub(crate) fn registered_parts_of(&self, range: &Range<usize>) -> Vec<Range<usize>> {
        let Range { start, end } = *range;
        let before = self.registered.range(..end).rev();
        let overlapping = before.take_while(|&(_, &until)| until > start);
        let parts = overlapping.map(|(&from, &until)| from.max(start)..(until - KEPT).min(end));
        parts.filter(|part| part.start < part.end).collect()
    }

    /// All registered ranges.
    pub(crate) fn all_registered(&self) -> impl Iterator<Item = Range<usize>> {
        self.registered.iter().map(|(&start, &end)| start..end)
    }

    /// Whether any of a range is registered.
    pub(crate) fn is_any_registered(&self, range: &Range<usize>) -> bool {
        let found = self.registered.range(..range.end).next_back();
        found.is_some_and(|(_, &until)| until > range.start)
    }

    /// Whether all of a range is registered.
    pub(crate) fn is_registered(&self, range: &Range<usize>) -> bool {
        let found = self.registered.range(..=range.start).next_back();
        found.is_some_and(|(_, &until)| until >= range.end)
    }

    /// Notes that a group is in the queue. False if it was.
    pub(crate) fn queue(&mut self, group: usize) -> bool {
        let chunk = self.chunk(group / CHUNK);
        let bit = 1 << (group % CHUNK / GROUP);
        let new = chunk.queued & bit == 0;
        chunk.queued |= bit;
        new
    }

    /// Notes that a group was taken off the queue.
    pub(crate) fn unqueue(&mut self, group: usize) {
        let number = group / CHUNK;
        let Some(Some(chunk)) = self.chunks.get_mut(&number) else { return };
        chunk.queued &= !(1 << (group % CHUNK / GROUP));
        if chunk.is_empty() {
            self.chunks.remove(&number);
        }
    }

    /// The pages of a group whose words are as `is` says, as bits.
    pub(crate) fn pages(&self, group: usize, is: impl Fn(usize, Word) -> bool) -> u64 {
        let Some(chunk) = self.chunks.get(&(group / CHUNK)) else { return 0 };
        let words = words(chunk)[page_in_chunk(group)..][..GROUP_PAGES].iter().enumerate();
        words.filter(|&(page, &word)| is(page, word)).fold(0, |all, (page, _)| all | 1 << page)
    }

    /// The pages of a group that the store has, as bits.
    pub(crate) fn stored(&self, group: usize) -> u64 {
        self.pages(group, |_, word| matches!(word.place(), Place::Slot(_)))
    }
}

impl Chunk {
    fn empty() -> Box<Chunk> {
        Box::new(Chunk { words: [Word::PROGRAM; CHUNK_PAGES], out: 0, queued: 0 })
    }

    fn closed() -> Box<Chunk> {
        Box::new(Chunk { words: ALL_CLOSED, out: CHUNK_PAGES as u32, queued: 0 })
    }

    fn is_empty(&self) -> bool {
        self.out == 0 && self.queued == 0
    }
}

static ALL_CLOSED: [Word; CHUNK_PAGES] = [Word::CLOSED; CHUNK_PAGES];

fn words(chunk: &Option<Box<Chunk>>) -> &[Word; CHUNK_PAGES] {
    chunk.as_ref().map_or(&ALL_CLOSED, |chunk| &chunk.words)
}

fn page_in_chunk(address: usize) -> usize {
    address % CHUNK / PAGE
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeSet, HashMap};

    #[derive(Debug, Clone)]
    enum Step {
        Set(usize, u32),
        Forget(usize, usize),
        Move(usize, usize, usize),
        Register(usize, usize),
        Unregister(usize, usize),
        Queue(usize),
        Unqueue(usize),
        /// A chunk closes, if nothing is known of it.
        Close(usize),
        /// Those of a range open that are all closed.
        Open(usize, usize),
    }

    const PAGES: usize = 3000;

    fn step() -> impl Strategy<Value = Step> {
        let page = 0..PAGES;
        prop_oneof![
            4 => (page.clone(), 0u32..5).prop_map(|(page, slot)| Step::Set(page, slot)),
            1 => (page.clone(), 0..400usize).prop_map(|(at, len)| Step::Forget(at, len)),
            1 => (page.clone(), page.clone(), 1..300usize)
                .prop_map(|(from, to, len)| Step::Move(from, to + 2 * PAGES, len)),
            2 => (page.clone(), 1..200usize).prop_map(|(at, len)| Step::Register(at, len)),
            1 => (page.clone(), 1..200usize).prop_map(|(at, len)| Step::Unregister(at, len)),
            1 => (0..PAGES / GROUP_PAGES).prop_map(Step::Queue),
            1 => (0..PAGES / GROUP_PAGES).prop_map(Step::Unqueue),
            2 => (0..PAGES / CHUNK_PAGES).prop_map(Step::Close),
            1 => (page, 0..1500usize).prop_map(|(at, len)| Step::Open(at, len)),
        ]
    }

    /// The twin: a map of pages, a set of registered pages, a set of queued groups.
    #[derive(Default)]
    struct Twin {
        words: HashMap<usize, Word>,
        registered: BTreeSet<usize>,
        queued: BTreeSet<usize>,
    }

    impl Twin {
        fn step(&mut self, step: &Step) {
            match *step {
                Step::Set(page, 0) => drop(self.words.remove(&page)),
                Step::Set(page, slot) => drop(self.words.insert(page, word(slot))),
                Step::Forget(at, len) => {
                    self.words.retain(|page, _| !(at..at + len).contains(page))
                }
                Step::Move(from, to, len) => {
                    for page in from..from + len {
                        self.registered.remove(&page);
                        if let Some(word) = self.words.remove(&page) {
                            self.words.insert(page - from + to, word);
                        }
                    }
                    self.registered.extend(to..to + len);
                }
                Step::Register(at, len) => self.registered.extend(at..at + len),
                Step::Unregister(at, len) => {
                    self.registered.retain(|page| !(at..at + len).contains(page));
                }
                Step::Queue(group) => drop(self.queued.insert(group)),
                Step::Unqueue(group) => drop(self.queued.remove(&group)),
                Step::Close(chunk) => {
                    self.words.extend(pages(chunk).map(|page| (page, Word::CLOSED)));
                }
                Step::Open(..) => {}
            }
        }

        fn is_vacant(&self, chunk: usize) -> bool {
            !pages(chunk).any(|page| {
                self.words.contains_key(&page) || self.queued.contains(&(page / GROUP_PAGES))
            })
        }

        /// Which chunks have no words, the book says.
        fn open(&mut self, book: &Book, at: usize, len: usize) -> Result<(), TestCaseError> {
            let chunks = at.div_ceil(CHUNK_PAGES)..(at + len) / CHUNK_PAGES;
            for chunk in chunks.filter(|chunk| book.is_all_closed(chunk * CHUNK)) {
                prop_assert!(self.is_all_closed(chunk));
                self.words.retain(|page, _| !pages(chunk).contains(page));
            }
            Ok(())
        }

        fn is_all_closed(&self, chunk: usize) -> bool {
            pages(chunk).all(|page| {
                self.words.get(&page) == Some(&Word::CLOSED)
                    && !self.queued.contains(&(page / GROUP_PAGES))
            })
        }
    }

    fn word(number: u32) -> Word {
        if number == 4 { Word::CLOSED } else { Word::slot(number) }
    }

    fn pages(chunk: usize) -> Range<usize> {
        chunk * CHUNK_PAGES..(chunk + 1) * CHUNK_PAGES
    }

    fn act(book: &mut Book, step: &Step) {
        let bytes = |at: usize, len: usize| at * PAGE..(at + len) * PAGE;
        match *step {
            Step::Set(page, 0) => book.set(page * PAGE, Word::PROGRAM),
            Step::Set(page, slot) => book.set(page * PAGE, word(slot)),
            Step::Forget(at, len) => drop(book.forget(&bytes(at, len))),
            Step::Move(from, to, len) => {
                drop(book.forget(&bytes(to, len)));
                book.moved(from * PAGE, to * PAGE, len * PAGE);
            }
            Step::Register(at, len) => book.registered(&bytes(at, len)),
            Step::Unregister(at, len) => book.unregistered(&bytes(at, len)),
            Step::Queue(group) => drop(book.queue(group * GROUP)),
            Step::Unqueue(group) => book.unqueue(group * GROUP),
            Step::Close(chunk) => book.close(chunk * CHUNK),
            Step::Open(at, len) => drop(book.open(&bytes(at, len))),
        }
    }

    proptest! {
        #[test]
        fn the_book_is_a_map_of_pages(steps in prop::collection::vec(step(), 1..120)) {
            let (mut book, mut twin) = (Book::default(), Twin::default());
            for step in &steps {
                match *step {
                    Step::Move(_, to, len) => twin.step(&Step::Forget(to, len)),
                    Step::Close(chunk) => {
                        let is_vacant = book.is_vacant(chunk * CHUNK);
                        prop_assert_eq!(is_vacant, twin.is_vacant(chunk));
                        if !is_vacant {
                            continue;
                        }
                    }
                    Step::Open(at, len) => twin.open(&book, at, len)?,
                    _ => {}
                }
                act(&mut book, step);
                twin.step(step);
            }
            let all = 0..5 * PAGES * PAGE;
            let mut known: Vec<(usize, Word)> =
                twin.words.iter().map(|(&page, &word)| (page * PAGE, word)).collect();
            known.sort_unstable_by_key(|&(address, _)| address);
            prop_assert_eq!(book.out(&all).collect::<Vec<_>>(), known);
            let pages = book.all_registered().flat_map(|it| it.start / PAGE..it.end / PAGE);
            let known: Vec<usize> = twin.registered.iter().copied().collect();
            prop_assert_eq!(pages.collect::<Vec<_>>(), known);
            let starts: Vec<usize> = book.all_registered().map(|it| it.start).collect();
            let ends: Vec<usize> = book.all_registered().map(|it| it.end).collect();
            prop_assert!(ends.iter().all(|end| !starts.contains(end)), "ranges that touch are one");
            for group in 0..PAGES / GROUP_PAGES {
                let new = book.clone().queue(group * GROUP);
                prop_assert_eq!(new, !twin.queued.contains(&group));
            }
            let kept = book.chunks.values().flatten();
            prop_assert!(kept.clone().all(|chunk| !chunk.is_empty()), "B3");
            let closed = book.chunks.values().filter(|chunk| chunk.is_none()).count();
            let out = kept.map(|chunk| chunk.out as usize).sum::<usize>() + closed * CHUNK_PAGES;
            prop_assert_eq!(out, twin.words.len());
        }
    }

    #[test]
    fn pages_of_a_group_are_bits() {
        let mut book = Book::default();
        (60..70).for_each(|page| book.set(page * PAGE, Word::slot(page as u32)));
        assert_eq!(book.stored(0), 0xf << 60);
        book.set(66 * PAGE, Word::tray(1, 2));
        assert_eq!(book.stored(GROUP), 0x3b);
        assert_eq!(book.pages(GROUP, |page, word| word == Word::tray(1, page)), 1 << 2);
        assert_eq!(book.stored(CHUNK), 0, "nothing is known of it");
    }

    #[test]
    fn a_group_may_have_several_registered_parts() {
        let mut book = Book::default();
        assert_eq!(book.registered_parts(GROUP), []);
        book.registered(&(GROUP / 2..GROUP + 8 * PAGE));
        assert_eq!(book.registered_parts(GROUP), vec![GROUP..GROUP + 4 * PAGE; 1]);
        book.registered(&(GROUP + 16 * PAGE..GROUP + 19 * PAGE));
        book.registered(&(GROUP + 30 * PAGE..GROUP + 40 * PAGE));
        let parts = [GROUP + 30 * PAGE..GROUP + 36 * PAGE, GROUP..GROUP + 4 * PAGE];
        assert_eq!(book.registered_parts(GROUP), parts);
        let all = [GROUP + 30 * PAGE..GROUP + 36 * PAGE, GROUP / 2..GROUP + 4 * PAGE];
        assert_eq!(book.registered_parts_of(&(0..4 * GROUP)), all);
    }
}
