//! Seeded numbers, and the bytes that writes write.
//!
//! Invariant: everything here is a function of its seed, so a failure's message is enough to repeat
//! it.

/// A generator of 64-bit numbers (Steele, Lea, Flood: SplitMix, 2014).
pub(super) struct Rng(pub(super) u64);

impl Rng {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not zero.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// What a write writes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pattern {
    /// One byte, repeated.
    Byte(u8),
    /// One word, repeated from the start of the request.
    Word(u64),
    /// Words of a small vocabulary: compresses well.
    Text(u64),
    /// Does not compress.
    Random(u64),
    /// Does not compress, and no byte is zero.
    NonZero(u64),
}

impl Pattern {
    /// `len` bytes of it.
    pub(super) fn bytes(self, len: u64) -> Vec<u8> {
        let len = len as usize;
        match self {
            Self::Byte(byte) => vec![byte; len],
            Self::Word(word) => word.to_le_bytes().into_iter().cycle().take(len).collect(),
            Self::Text(seed) => text(seed, len),
            Self::Random(seed) => noise(seed, len),
            Self::NonZero(seed) => noise(seed, len).into_iter().map(|byte| byte | 1).collect(),
        }
    }

    pub(super) fn any(rng: &mut Rng) -> Self {
        match rng.below(6) {
            0 => Self::Byte(0),
            1 => Self::Byte(rng.next() as u8),
            2 => Self::Word(rng.next()),
            3 => Self::Random(rng.next()),
            _ => Self::Text(rng.next()),
        }
    }
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng(seed);
    let words = (0..len.div_ceil(8)).flat_map(|_| rng.next().to_le_bytes());
    words.take(len).collect()
}

fn text(seed: u64, len: usize) -> Vec<u8> {
    const WORDS: [&str; 8] = ["page ", "frame ", "slot ", "class ", "of ", "and ", "zspage ", "\n"];
    let mut rng = Rng(seed);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(WORDS[rng.below(8) as usize].as_bytes());
    }
    bytes.truncate(len);
    bytes
}
