//! A checksum of what is on the disk: against damage and against what was there before, not against
//! malice.
//!
//! Eight bytes at a time are mixed into a state by a multiplication and a rotation, as in the
//! non-cryptographic hashes of the FNV and wyhash kind; the length is mixed in last.

const PRIME: u64 = 0x9E37_79B9_7F4A_7C15; // 2^64 / golden ratio, odd
const TURN: u32 = 29;

/// The checksum of `bytes`, by a seed.
pub(super) fn of(seed: u64, bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut state = words.iter().fold(seed, |state, word| mix(state, u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    state = mix(mix(state, u64::from_le_bytes(last)), bytes.len() as u64);
    (state ^ state >> u32::BITS) as u32
}

fn mix(state: u64, word: u64) -> u64 {
    (state ^ word).wrapping_mul(PRIME).rotate_left(TURN)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::of;

    #[test]
    fn every_bit_of_a_blob_its_length_and_the_seed_matter() {
        let mut blob: Vec<u8> = (0..1237u32).map(|at| (at * 7 / 4) as u8).collect();
        let sum = of(5, &blob);
        for bit in 0..blob.len() * 8 {
            blob[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(of(5, &blob), sum, "bit {bit}");
            blob[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(of(5, &blob), sum);
        assert_ne!(of(6, &blob), sum);
        blob.push(0);
        assert_ne!(of(5, &blob), sum, "a zero more");
    }
}
