//! What random tests share.

/// A number from the environment.
pub(crate) fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect(name))
}

/// The seed of this run, printed.
pub(crate) fn seed() -> u64 {
    let seed = number("RAMFOLD_SEED", u64::from(std::process::id()) << 20);
    eprintln!("RAMFOLD_SEED={seed}");
    seed
}

/// A file that nobody finds.
pub(crate) fn nameless_file() -> std::fs::File {
    let path = std::env::temp_dir().join(format!("ramfold-twin-{:?}", std::thread::current().id()));
    let path = path.with_extension(std::process::id().to_string());
    let file = std::fs::File::create(&path).expect("a file");
    std::fs::remove_file(&path).expect("it is ours");
    file
}

/// Marsaglia's xorshift, seeded by splitmix.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, max: usize) -> usize {
        (self.next() >> 11) as usize % max
    }

    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }
}
