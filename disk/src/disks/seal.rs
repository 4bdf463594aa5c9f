//! A keyed checksum of what was written to a disk that other processes can write to as well.
//!
//! ```text
//!   keys: twice 16 random bytes, in memory alone
//!   bytes = first half | second half | up to 7 bytes
//!   tail  = SipHash-1-3(second key, second half)
//!   sum   = SipHash-1-3(first key, place | place | first half | tail | up to 7 bytes), 32 low bits
//! ```
//!
//! Each step of SipHash waits for the one before. The two halves do not wait for each other, so a
//! CPU works on both at a time.
//!
//! A store keeps the sum in memory and compares it with the sum of what comes back. So it notices
//! damage, bytes of another place, and bytes that were forged. Without the key an attacker can only
//! guess, and a guess is right once in 2^32.
//!
//! Source: Aumasson and Bernstein, SipHash: a fast short-input PRF, 2012. The variant has one round
//! for a word and three at the end, like the hash tables of Rust and of the kernel.
//!
//! Invariant: the keys never leave this file. There are no locks and no allocations.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;

/// Bytes of a word.
const WORD: usize = size_of::<u64>();
/// The number of words that name a place.
const PLACE_WORDS: usize = 2;
/// The constant that the algorithm mixes in before its last rounds.
const LAST: u64 = 0xff;
/// Rounds at the end.
const LAST_ROUNDS: usize = 3;

/// Keys for checksums. No two that are made are the same.
pub struct Seal {
    keys: [[u64; 2]; 2],
}

impl Seal {
    /// Makes a random key.
    pub fn random() -> Seal {
        // Each `RandomState` is keyed by the system's random numbers. Only a word that depends on
        // them is taken from it.
        Seal { keys: [[(); 2]; 2].map(|key| key.map(|()| RandomState::new().hash_one(0))) }
    }

    /// The sum of bytes at a place. Any two numbers that identify the place will do.
    pub fn sum(&self, place: [u64; PLACE_WORDS], bytes: &[u8]) -> u32 {
        let [mut state, mut other] = self.keys.map(State::new);
        place.into_iter().for_each(|word| state.add(word));
        let (words, rest) = bytes.as_chunks::<WORD>();
        let (first, second) = words.split_at(words.len() / 2);
        for (word, others) in first.iter().zip(second) {
            state.add(u64::from_le_bytes(*word));
            other.add(u64::from_le_bytes(*others));
        }
        // The second half may be a word longer.
        second[first.len()..].iter().for_each(|word| other.add(u64::from_le_bytes(*word)));
        state.add(other.finish(second.len() * WORD, &[]));
        state.finish((PLACE_WORDS + first.len() + 1) * WORD, rest) as u32
    }
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seal").finish_non_exhaustive()
    }
}

/// The four words of SipHash.
struct State([u64; 4]);

impl State {
    fn new([low, high]: [u64; 2]) -> State {
        State([
            low ^ 0x736f_6d65_7073_6575,
            high ^ 0x646f_7261_6e64_6f6d,
            low ^ 0x6c79_6765_6e65_7261,
            high ^ 0x7465_6462_7974_6573,
        ])
    }

    fn add(&mut self, word: u64) {
        self.0[3] ^= word;
        self.round();
        self.0[0] ^= word;
    }

    /// Adds the last bytes of the message, which follow its first `before` bytes, and ends it.
    fn finish(mut self, before: usize, bytes: &[u8]) -> u64 {
        let (words, rest) = bytes.as_chunks::<WORD>();
        words.iter().for_each(|word| self.add(u64::from_le_bytes(*word)));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        last[7] = (before + bytes.len()) as u8;
        self.add(u64::from_le_bytes(last));
        self.0[2] ^= LAST;
        (0..LAST_ROUNDS).for_each(|_| self.round());
        self.0.into_iter().fold(0, |sum, word| sum ^ word)
    }

    #[inline]
    fn round(&mut self) {
        let [mut a, mut b, mut c, mut d] = self.0;
        a = a.wrapping_add(b);
        c = c.wrapping_add(d);
        b = b.rotate_left(13) ^ a;
        d = d.rotate_left(16) ^ c;
        a = a.rotate_left(32);
        c = c.wrapping_add(b);
        a = a.wrapping_add(d);
        b = b.rotate_left(17) ^ c;
        d = d.rotate_left(21) ^ a;
        c = c.rotate_left(32);
        self.0 = [a, b, c, d];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::hash::{DefaultHasher, Hasher};

    /// The authors' own vectors: a key of the bytes 0 to 15, and messages of none, one, two ..
    /// bytes.
    #[test]
    fn sums_are_those_of_siphash() {
        let key = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        let expected = [
            0xabac_0158_050f_c4dc,
            0xc9f4_9bf3_7d57_ca93,
            0x82cb_9b02_4dc7_d44d,
            0x8bf8_0ab8_e7dd_f7fb,
            0xcf75_5760_88d3_8328_u64,
        ];
        for (len, expected) in expected.into_iter().enumerate() {
            let message: Vec<u8> = (0..len as u8).collect();
            let sum = State::new(key).finish(0, &message);
            assert_eq!(sum, expected, "{len} bytes: {sum:#018x}");
        }
    }

    proptest! {
        /// Compares with the standard library, which has the same algorithm.
        #[test]
        fn long_messages_are_those_of_the_standard_librarys(
            place: [u64; 2],
            bytes in prop::collection::vec(any::<u8>(), 0..5000),
        ) {
            let (mut twin, mut tail) = (DefaultHasher::new(), DefaultHasher::new());
            let (words, half) = (bytes.len() / 8 * 8, bytes.len() / 8 / 2 * 8);
            tail.write(&bytes[half..words]);
            place.iter().for_each(|word| twin.write(&word.to_le_bytes()));
            twin.write(&bytes[..half]);
            twin.write(&tail.finish().to_le_bytes());
            twin.write(&bytes[words..]);
            prop_assert_eq!(Seal { keys: [[0; 2]; 2] }.sum(place, &bytes), twin.finish() as u32);
        }
    }

    #[test]
    fn every_bit_the_length_the_place_and_the_key_matter() {
        let mut bytes: Vec<u8> = (0..1237u32).map(|at| (at * 7 / 4) as u8).collect();
        let seal = Seal { keys: [[5, 6], [7, 8]] };
        let sum = seal.sum([1, 2], &bytes);
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(seal.sum([1, 2], &bytes), sum, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(seal.sum([1, 2], &bytes), sum);
        assert_ne!(seal.sum([2, 2], &bytes), sum, "another first number");
        assert_ne!(seal.sum([1, 1], &bytes), sum, "another second number");
        for keys in [[[5, 7], [7, 8]], [[5, 6], [7, 9]]] {
            assert_ne!(Seal { keys }.sum([1, 2], &bytes), sum, "another key");
        }
        bytes.push(0);
        assert_ne!(seal.sum([1, 2], &bytes), sum, "a zero more");
    }

    /// If the next process had the same sums, an attacker who has both could forge one.
    #[test]
    fn no_two_keys_are_one() {
        let keys: Vec<[[u64; 2]; 2]> = (0..100).map(|_| Seal::random().keys).collect();
        let mut words: Vec<u64> = keys.concat().concat();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), 400, "of 200 keys of two words each");
    }
}
