//! Makes lengths of codes from a sample of pages.
//!
//! ```text
//!   pages --matcher--> tokens, counted  --> the most frequent get words, the others the escape
//!                `---> literals of each page, counted
//!                                       --> eight tables: k-means of pages (Lloyd, 1957) in bits
//! ```
//!
//! Pages that do not compress are left out, because a store keeps them as they are.
//!
//! Invariant: the same pages give the same lengths, so that tables can be made again from them.
//! Locks: none.

use super::code::best_lengths;
use super::compress::token;
use super::lengths::{ESCAPE, Lengths, SHIPPED_LENGTHS};
use super::matcher::{Matcher, Padded, Sink};
use super::offset::FIRST;
use super::{LITERAL_CODE_BITS, LITERAL_TABLES, TOKEN_CODE_BITS, TOKENS};
use crate::terms::{CodecError, PAGE_LEN_MAX};

/// How many tokens may get a word; the best of these is taken.
const CODED: [usize; 8] = [63, 127, 255, 383, 511, 767, 1023, 1535];
/// Raw bits behind an escape.
const ESCAPED_BITS: u64 = 12;
/// A page with more literals does not compress, unless they take fewer bytes when they are coded.
const LITERALS_MAX: u64 = 3400;
/// A page with fewer has no say in the tables of literals.
const LITERALS_MIN: u32 = 32;
/// Times that pages are dealt to tables anew.
const ROUNDS: usize = 12;
/// The weight of one, so that others can weigh less.
const ONE: u64 = 64;
/// Sequences that are added with the shipped probabilities if the sample is small.
const PRIOR_SEQUENCES: u64 = 512;
/// The most pages of a small sample.
const SMALL_PAGES: usize = 4096;

/// Literals of a page, by their value.
type Histogram = [u32; 256];

/// Lengths for pages like these, which lie one after the other. A small sample says little of rare
/// tokens, so the shipped lengths have a say in them.
pub(crate) fn train(pages: &[u8]) -> Result<Lengths, CodecError> {
    let mut counts = Counts { tokens: vec![0; TOKENS], pages: Vec::new() };
    let mut matcher = Matcher::new()?;
    for page in pages.chunks(PAGE_LEN_MAX) {
        counts.add(&mut matcher, page);
    }
    let is_small = counts.pages.len() <= SMALL_PAGES;
    let tokens = token_lengths(&counts.tokens, is_small.then_some(&SHIPPED_LENGTHS));
    Ok(Lengths { tokens, literals: literal_lengths(&counts.pages) })
}

/// What was counted of all pages.
struct Counts {
    tokens: Vec<u64>,
    pages: Vec<Histogram>,
}

/// What was counted of one.
struct Page {
    tokens: Vec<usize>,
    literals: Histogram,
    last: usize,
}

impl Counts {
    fn add(&mut self, matcher: &mut Matcher, page: &[u8]) {
        let mut counted = Page { tokens: Vec::new(), literals: [0; 256], last: FIRST };
        matcher.find(page, &mut counted);
        if is_short(&counted.literals) {
            counted.tokens.iter().for_each(|&token| self.tokens[token] += 1);
            self.pages.push(counted.literals);
        }
    }
}

/// Whether the literals of a page are few, or of so few values that a code makes them short.
fn is_short(literals: &Histogram) -> bool {
    literals.iter().map(|&count| u64::from(count)).sum::<u64>() <= LITERALS_MAX
        || bits(literals, &lengths_of(&[literals])) / 8 <= LITERALS_MAX
}

impl Sink for Page {
    fn sequence(
        &mut self,
        page: &Padded,
        start: usize,
        literals: usize,
        length: usize,
        offset: usize,
    ) {
        self.rest(page, start, literals);
        self.tokens.push(token(literals, length, offset, self.last).0);
        self.last = offset;
    }

    fn rest(&mut self, page: &Padded, start: usize, literals: usize) {
        for &literal in &page[start..start + literals] {
            self.literals[usize::from(literal)] += 1;
        }
    }
}

/// The lengths of tokens and of the escape with which all sequences take the fewest bits.
fn token_lengths(counts: &[u64], prior: Option<&Lengths>) -> [u8; TOKENS + 1] {
    let added = |token: usize| match prior.map_or(0, |prior| prior.tokens[token]) {
        0 => 0,
        len => (PRIOR_SEQUENCES * ONE) >> len,
    };
    let weights: Vec<u64> = (0..TOKENS).map(|token| counts[token] * ONE + added(token)).collect();
    let mut order: Vec<usize> = (0..TOKENS).collect();
    order.sort_by_key(|&token| (std::cmp::Reverse(weights[token]), token));
    let tried = CODED.iter().map(|&coded| with_escape(&weights, &order[..coded]));
    let best = tried.min_by_key(|(bits, _)| *bits);
    best.map_or([0; TOKENS + 1], |(_, lengths)| lengths)
}

/// The bits of all sequences if these tokens have words, and the lengths.
fn with_escape(weights: &[u64], coded: &[usize]) -> (u64, [u8; TOKENS + 1]) {
    let all: u64 = weights.iter().sum();
    let mut chosen: Vec<u64> = coded.iter().map(|&token| weights[token].max(1)).collect();
    let others = all - coded.iter().map(|&token| weights[token]).sum::<u64>();
    chosen.push(others.max(1));
    let lengths = best_lengths(&chosen, TOKEN_CODE_BITS);
    let words: u64 =
        chosen.iter().zip(&lengths).map(|(weight, &len)| weight * u64::from(len)).sum();
    let mut of_tokens = [0; TOKENS + 1];
    coded.iter().chain([&ESCAPE]).zip(&lengths).for_each(|(&token, &len)| of_tokens[token] = len);
    (words + others * ESCAPED_BITS, of_tokens)
}

/// Tables of literals for groups of pages, each page in the group whose table suits it best.
fn literal_lengths(pages: &[Histogram]) -> [[u8; 256]; LITERAL_TABLES] {
    let mut pages: Vec<&Histogram> =
        pages.iter().filter(|page| page.iter().sum::<u32>() >= LITERALS_MIN).collect();
    let all = lengths_of(&pages);
    // At first the pages are dealt by how unlike the average they are.
    pages.sort_by_key(|page| bits(page, &all) * ONE / u64::from(page.iter().sum::<u32>()));
    let share = pages.len().div_ceil(LITERAL_TABLES).max(1);
    let mut tables = [all; LITERAL_TABLES];
    let firsts = pages.chunks(share).map(lengths_of);
    tables.iter_mut().zip(firsts).for_each(|(table, first)| *table = first);
    for _ in 0..ROUNDS {
        let mut groups: [Vec<&Histogram>; LITERAL_TABLES] = Default::default();
        for page in &pages {
            let best = (0..LITERAL_TABLES).min_by_key(|&table| bits(page, &tables[table]));
            groups[best.unwrap_or(0)].push(page);
        }
        let filled = tables.iter_mut().zip(&groups).filter(|(_, group)| !group.is_empty());
        filled.for_each(|(table, group)| *table = lengths_of(group));
    }
    tables
}

/// The best lengths for the literals of some pages. Every literal gets a word.
fn lengths_of(pages: &[&Histogram]) -> [u8; 256] {
    let mut weights = [1; 256];
    for page in pages {
        weights.iter_mut().zip(*page).for_each(|(sum, &count)| *sum += ONE * u64::from(count));
    }
    let mut lengths = [0; 256];
    lengths.copy_from_slice(&best_lengths(&weights, LITERAL_CODE_BITS));
    lengths
}

/// What the literals of a page take.
fn bits(page: &Histogram, lengths: &[u8; 256]) -> u64 {
    page.iter().zip(lengths).map(|(&count, &len)| u64::from(count) * u64::from(len)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(seed: usize) -> Vec<u8> {
        let words = (0..512_u64).map(|word| (word * (seed as u64 + 3)) % 97 * 1000);
        words.flat_map(u64::to_le_bytes).collect()
    }

    /// A page without repeats of so many values.
    fn without_repeats(seed: u64, values: u64) -> Vec<u8> {
        let mut state = seed * 2 + 1;
        let next = |_| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(seed | 1);
            ((state >> 33) % values) as u8
        };
        (0..PAGE_LEN_MAX).map(next).collect()
    }

    #[test]
    fn literals_of_few_values_have_a_say_although_nothing_repeats() {
        let pages: Vec<u8> = (0..50).flat_map(|seed| without_repeats(seed, 16)).collect();
        let lengths = train(&pages).expect("there is memory");
        let most = |table: &[u8; 256]| table[..16].iter().copied().max();
        let most: Vec<_> = lengths.literals.iter().map(most).collect();
        assert!(most.iter().all(|most| *most <= Some(6)), "about five bits of each: {most:?}");
    }

    #[test]
    fn pages_that_do_not_compress_have_no_say() {
        let some: Vec<u8> = (0..20).flat_map(page).collect();
        let noise = (0..20).flat_map(|seed| without_repeats(seed, 256));
        let mixed: Vec<u8> = some.iter().copied().chain(noise).collect();
        assert_eq!(train(&mixed), train(&some));
    }

    #[test]
    fn whatever_the_pages_the_tables_are_valid() {
        let some: Vec<u8> = (0..20).flat_map(page).collect();
        for pages in [&[][..], &[7], &[0; 4096], &some, &some[..5000]] {
            let lengths = train(pages).expect("there is memory");
            assert_eq!(Lengths::parse(&lengths.to_bytes()), Ok(lengths));
        }
    }
}
