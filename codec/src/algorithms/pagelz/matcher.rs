//! Finds matches: greedily, at every place the last offset and one place that looked the same.
//!
//! ```text
//!   page  | literals ..... | match ...... | literals .. | match .. | rest
//!           ^ anchor         ^ here: eight bytes, hashed by five of them
//!   slots   hash --> epoch + the last place with this hash; place 0 if it is below the epoch
//! ```
//!
//! Both candidates are looked at before one branch decides. A match is extended backwards over
//! literals, and one place inside of it is noted. Where nothing is found for long, places are
//! passed over, so that noise takes a tenth of the time.
//!
//! Invariant: what is compared lies in the page, or is a zero behind it. So a blob depends on the
//! page alone. Locks: none.

use super::MATCH_MIN;
use super::offset::FIRST;
use crate::terms::{CodecError, PAGE_LEN_MAX};

/// Bytes behind the page, so that words and copies near its end need no care.
pub(super) const PAD: usize = 64;
/// A page with its pad.
pub(super) type Padded = [u8; PAGE_LEN_MAX + PAD];

/// Places by hash.
const SLOTS: usize = 1 << SLOT_BITS;
const SLOT_BITS: u32 = 12;
/// Every so many literals without a match, the step grows by one, as a power of two.
const STEP_SHIFT: usize = 6;
/// Bytes of a word that are hashed, and what they are multiplied by.
const HASHED_BYTES: u32 = 5;
const FACTOR: u64 = 0x9E37_79B1_85EB_CA87;
/// The last offset is preferred to a match that is longer by less than this: it takes no bits.
const LAST_IS_WORTH: usize = 2;

const _: () = assert!(SLOTS <= PAGE_LEN_MAX, "a slot for each place is enough");
const _: () = assert!(PAGE_LEN_MAX * 16 == 1 << 16, "fifteen epochs and the cleared one fit u16");
const _: () = assert!(SLOT_BITS < 64 && STEP_SHIFT < 64, "shifts of a word");

/// Takes the sequences of a page.
pub(super) trait Sink {
    /// `literals` from `start` on, and then `length` bytes as they were `offset` back.
    fn sequence(
        &mut self,
        page: &Padded,
        start: usize,
        literals: usize,
        length: usize,
        offset: usize,
    );
    /// The literals that no match follows.
    fn rest(&mut self, page: &Padded, start: usize, literals: usize);
}

/// A page and its places. A slot of an earlier page is below `epoch`, and says place 0.
pub(super) struct Matcher {
    page: Box<Padded>,
    slots: Box<[u16; SLOTS]>,
    epoch: u16,
}

/// A match that was found.
#[derive(Clone, Copy)]
struct Match {
    at: usize,
    from: usize,
    length: usize,
}

impl Matcher {
    /// Bytes on the heap.
    pub(super) const BYTES: usize = size_of::<Padded>() + size_of::<[u16; SLOTS]>();

    pub(super) fn new() -> Result<Self, CodecError> {
        Ok(Self { page: boxed()?, slots: boxed()?, epoch: 0 })
    }

    /// The table is cleared once in fifteen pages.
    fn next_epoch(&mut self) {
        self.epoch = self.epoch.wrapping_add(PAGE_LEN_MAX as u16);
        if self.epoch == 0 {
            self.slots.fill(0);
            self.epoch = PAGE_LEN_MAX as u16;
        }
    }

    /// Gives the sequences of `page` to `sink`. It has at most [`PAGE_LEN_MAX`] bytes.
    #[inline(always)]
    pub(super) fn find(&mut self, page: &[u8], sink: &mut impl Sink) {
        let len = page.len();
        self.page[..len].copy_from_slice(page);
        self.page[len..len + PAD].fill(0);
        self.next_epoch();
        let anchor = self.matches(len, sink);
        sink.rest(&self.page, anchor, len - anchor);
    }

    /// Gives all matches; says where the literals behind the last one begin.
    #[inline(always)]
    fn matches(&mut self, len: usize, sink: &mut impl Sink) -> usize {
        let (mut anchor, mut at, mut last) = (0, 1, FIRST);
        while at + MATCH_MIN <= len {
            let here = word(&self.page, at);
            let slot = &mut self.slots[hash(here)];
            let noted = usize::from(slot.saturating_sub(self.epoch));
            *slot = self.epoch + at as u16;
            let repeats = differs(here, word(&self.page, at - last)) == 0;
            let is_noted = differs(here, word(&self.page, noted)) == 0;
            if !(repeats | is_noted) {
                at += 1 + ((at - anchor) >> STEP_SHIFT);
                continue;
            }
            let from = [at - last, noted];
            let found = self.best(at, from, [repeats, is_noted], len);
            let found = self.backwards(found, anchor);
            last = found.at - found.from;
            sink.sequence(&self.page, anchor, found.at - anchor, found.length, last);
            at = found.at + found.length;
            anchor = at;
            self.note(at - 2);
        }
        anchor
    }

    /// The better of two candidates, at least one of which is there.
    #[inline(always)]
    fn best(&self, at: usize, from: [usize; 2], there: [bool; 2], len: usize) -> Match {
        let longest = |from| Match { at, from, length: common(&self.page, from, at, len - at) };
        if !there[0] {
            return longest(from[1]);
        }
        let repeated = longest(from[0]);
        if !there[1] || from[0] == from[1] {
            return repeated;
        }
        let noted = longest(from[1]);
        if noted.length > repeated.length + LAST_IS_WORTH { noted } else { repeated }
    }

    /// Takes literals from `anchor` on into a match that they continue.
    #[inline(always)]
    fn backwards(&self, mut found: Match, anchor: usize) -> Match {
        while found.at > anchor
            && found.from > 0
            && self.page[(found.at - 1) & (PAGE_LEN_MAX - 1)]
                == self.page[(found.from - 1) & (PAGE_LEN_MAX - 1)]
        {
            found = Match { at: found.at - 1, from: found.from - 1, length: found.length + 1 };
        }
        found
    }

    #[inline(always)]
    fn note(&mut self, at: usize) {
        self.slots[hash(word(&self.page, at))] = self.epoch + at as u16;
    }
}

/// Zeros on the heap.
pub(super) fn boxed<T: Copy + Default, const N: usize>() -> Result<Box<[T; N]>, CodecError> {
    let mut room = Vec::new();
    room.try_reserve_exact(N).map_err(|_| CodecError::NoMemory)?;
    room.resize(N, T::default());
    room.into_boxed_slice().try_into().map_err(|_| CodecError::NoMemory)
}

/// Eight bytes of the page from `at` on, which is below its end.
#[inline(always)]
fn word(page: &Padded, at: usize) -> u64 {
    let at = at & (PAGE_LEN_MAX - 1);
    page[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Zero if the first four bytes of two words are the same.
#[inline(always)]
fn differs(one: u64, other: u64) -> u32 {
    (one ^ other) as u32
}

#[inline(always)]
fn hash(word: u64) -> usize {
    ((word << (64 - 8 * HASHED_BYTES)).wrapping_mul(FACTOR) >> (64 - SLOT_BITS)) as usize
}

/// How many bytes from two places on are the same, at most `len_max`.
#[inline(always)]
fn common(page: &Padded, from: usize, at: usize, len_max: usize) -> usize {
    let mut len = 0;
    while len < len_max {
        let differing = word(page, from + len) ^ word(page, at + len);
        if differing != 0 {
            len += (differing.trailing_zeros() / 8) as usize;
            break;
        }
        len += 8;
    }
    len.min(len_max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// Puts a page together again.
    #[derive(Default)]
    struct Rebuilt(Vec<u8>);

    impl Sink for Rebuilt {
        fn sequence(
            &mut self,
            page: &Padded,
            start: usize,
            literals: usize,
            length: usize,
            offset: usize,
        ) {
            self.rest(page, start, literals);
            assert!(length >= MATCH_MIN && (1..=self.0.len()).contains(&offset));
            (0..length).for_each(|_| self.0.push(self.0[self.0.len() - offset]));
        }

        fn rest(&mut self, page: &Padded, start: usize, literals: usize) {
            assert_eq!(start, self.0.len(), "literals begin where the last match ended");
            self.0.extend(&page[start..start + literals]);
        }
    }

    proptest! {
        #[test]
        fn sequences_are_the_page(
            words in vec((vec(0..4_u8, 1..12), 1..40_usize), 1..60),
            len in 1..=PAGE_LEN_MAX,
        ) {
            let bytes = words.iter().flat_map(|(word, times)| word.repeat(*times));
            let page: Vec<u8> = bytes.take(len).collect();
            let mut rebuilt = Rebuilt::default();
            Matcher::new().expect("there is memory").find(&page, &mut rebuilt);
            prop_assert_eq!(rebuilt.0, page);
        }
    }
}
