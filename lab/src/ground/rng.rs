//! SplitMix64: every random choice of a study comes from a printed seed, so a run can be repeated.

/// A seeded generator.
#[derive(Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    /// The generator of `seed` and a stream number; different streams do not overlap in practice.
    pub(crate) fn new(seed: u64, stream: u64) -> Rng {
        Rng(mix(seed ^ mix(stream.wrapping_add(GOLDEN))))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// A number below `bound`, which must not be 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// The numbers below `count` in random order (Fisher-Yates).
    pub(crate) fn permutation(&mut self, count: usize) -> Vec<u32> {
        let mut order: Vec<u32> = (0..count as u32).collect();
        for last in (1..count).rev() {
            order.swap(last, self.below(last + 1));
        }
        order
    }
}

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

const _: () = assert!(GOLDEN % 2 == 1, "an even step would not visit every state");

#[cfg(test)]
mod tests {
    use super::*;

    /// The published first outputs of SplitMix64 for seed 1234567.
    #[test]
    fn outputs_are_splitmix64s() {
        let mut rng = Rng(1_234_567);
        assert_eq!(
            [rng.next(), rng.next(), rng.next()],
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn a_permutation_holds_every_number_once() {
        let mut order = Rng::new(1, 0).permutation(1000);
        assert_ne!(order, (0..1000).collect::<Vec<u32>>(), "not shuffled");
        order.sort_unstable();
        assert_eq!(order, (0..1000).collect::<Vec<u32>>());
    }

    #[test]
    fn streams_of_one_seed_differ() {
        assert_ne!(Rng::new(7, 0).next(), Rng::new(7, 1).next());
    }
}
