//! A checksum of a page that costs little beside a codec, and is told apart by where a byte is.
//!
//! ```text
//!   lane   words 0, 8, 16 ... | 1, 9, 17 ... | ... | 7, 15, 23 ...
//!          sum += word; twice += sum                  Fletcher's, lane by lane
//! ```

const LANES: usize = 8;

/// The checksum of whole groups of eight words.
pub(super) fn of(page: &[u8]) -> u64 {
    let (words, _) = page.as_chunks::<8>();
    let (groups, _) = words.as_chunks::<LANES>();
    let (mut sum, mut twice) = ([0_u64; LANES], [0_u64; LANES]);
    for group in groups {
        for lane in 0..LANES {
            sum[lane] = sum[lane].wrapping_add(u64::from_ne_bytes(group[lane]));
            twice[lane] = twice[lane].wrapping_add(sum[lane]);
        }
    }
    let fold = |state: u64, &lane: &u64| (state.rotate_left(7) ^ lane).wrapping_mul(ODD);
    sum.iter().chain(&twice).fold(0, fold)
}

const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
const _: () = assert!(ODD % 2 == 1, "multiplying loses nothing");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::PAGE_SIZE;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_changed_byte_and_two_exchanged_words_are_seen(
            seed in any::<u64>(),
            at in 0..PAGE_SIZE,
            flip in 1_u8..,
            other in 0..PAGE_SIZE / 8,
        ) {
            let mut rng = crate::ground::Rng::new(seed, 0);
            let page: Vec<u8> = (0..PAGE_SIZE).map(|_| rng.next() as u8).collect();
            let mut changed = page.clone();
            changed[at] ^= flip;
            prop_assert_ne!(of(&changed), of(&page));
            let mut exchanged = page.clone();
            for byte in 0..8 {
                exchanged.swap(at / 8 * 8 + byte, other * 8 + byte);
            }
            prop_assert_eq!(of(&exchanged) == of(&page), exchanged == page);
        }
    }
}
