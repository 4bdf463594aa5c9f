//! The synthetic corpus: a seeded mix for machines without a dump of real memory.
//!
//! Invariant: every page is made from its own number alone, so a larger corpus begins with the
//! smaller one.
//!
//! Real memory differs; rows name this mix so that nobody takes its figures for a workload's.

use super::PAGE_SIZE;
use crate::ground::Rng;

const SEED: u64 = 0x7261_6D66_6F6C_6421;

/// The first `length` bytes of the mix.
pub(crate) fn bytes(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length.next_multiple_of(PAGE_SIZE)];
    for (index, page) in bytes.chunks_exact_mut(PAGE_SIZE).enumerate() {
        fill(index, page);
    }
    bytes.truncate(length);
    bytes
}

/// Of 20 pages: 7 text, 6 structures with pointers, 2 zeros, 2 random, 3 repetitive.
fn fill(index: usize, page: &mut [u8]) {
    let rng = &mut Rng::new(SEED, index as u64);
    match rng.below(20) {
        0..7 => text(rng, page),
        7..13 => structures(rng, page),
        13..15 => page.fill(0),
        15..17 => random(rng, page),
        _ => repetitive(rng, page),
    }
}

/// Words of a small vocabulary, the frequent ones first.
fn text(rng: &mut Rng, page: &mut [u8]) {
    const WORDS: [&str; 24] = [
        "the ", "of ", "and ", "to ", "in ", "is ", "page", "memory", "store", "\n", ", ", ". ",
        "request", "handle", "error: ", "index", "0x", "user", "path=/", "value", "true", "null",
        "count", "time",
    ];
    let mut at = 0;
    while at < page.len() {
        let rank = rng.below(WORDS.len()) * rng.below(WORDS.len()) / WORDS.len();
        let digits = format!("{:x} ", rng.next() >> (40 + rng.below(20)));
        let word = if rng.below(6) == 0 { digits.as_str() } else { WORDS[rank] };
        let room = word.len().min(page.len() - at);
        page[at..at + room].copy_from_slice(&word.as_bytes()[..room]);
        at += room;
    }
}

/// Records of one size: pointers into one heap, small counters, flags and holes.
fn structures(rng: &mut Rng, page: &mut [u8]) {
    let heap = 0x7f00_0000_0000 | (rng.next() & 0xff_fff0_0000);
    let fields: Vec<usize> = (0..4 + rng.below(12)).map(|_| rng.below(5)).collect();
    for (word, field) in page.chunks_exact_mut(8).zip(fields.iter().cycle()) {
        let value = match field {
            0 | 1 => heap + (rng.next() & 0xf_fff0),
            2 => rng.next() & 0xff,
            3 => rng.next() & 0xffff_ffff,
            _ => 0,
        };
        word.copy_from_slice(&value.to_le_bytes());
    }
}

fn random(rng: &mut Rng, page: &mut [u8]) {
    for word in page.chunks_exact_mut(8) {
        word.copy_from_slice(&rng.next().to_le_bytes());
    }
}

/// A short pattern repeated, a few bytes of it changed; now and then exactly one word.
fn repetitive(rng: &mut Rng, page: &mut [u8]) {
    let period = [8, 24, 100, 256][rng.below(4)];
    let pattern: Vec<u8> = (0..period).map(|_| rng.next() as u8).collect();
    for (byte, value) in page.iter_mut().zip(pattern.iter().cycle()) {
        *byte = *value;
    }
    for _ in 0..rng.below(4) * 20 {
        page[rng.below(PAGE_SIZE)] = rng.next() as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::is_same_filled;

    #[test]
    fn a_larger_mix_begins_with_the_smaller_one() {
        let large = bytes(64 * PAGE_SIZE);
        assert_eq!(bytes(10 * PAGE_SIZE + 5), large[..10 * PAGE_SIZE + 5]);
    }

    #[test]
    fn the_mix_holds_same_filled_and_other_pages() {
        let mix = bytes(1000 * PAGE_SIZE);
        let same = mix.chunks_exact(PAGE_SIZE).filter(|page| is_same_filled(page)).count();
        assert!((60..200).contains(&same), "{same} of 1000 pages are same-filled");
    }
}
