//! How densely a device keeps pages that are not used, and what it did for that.
//!
//! ```text
//!   fast       every page as it was written
//!   balanced   a page that nobody used for two ages: pagelz with tables of the device, if that
//!              saves a lot; otherwise lz4 with a longer search, in a dictionary of the device
//!   dense      pagelz after one age; after four, zstd with a dictionary of the device; after 32,
//!              zstd with its neighbours, if that saves more
//! ```
//!
//! Invariant: a density says where pages should be, and never what they read as.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use codec::{Algorithm, Codec};

/// The level of what learns. The search of the next ones takes twice as long and more, and saves
/// 1 %.
const LEARNING_LEVEL: i32 = 9;

/// How densely pages that are not used are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Density {
    /// Pages stay as they were written. Nothing works in the background.
    #[default]
    Fast,
    /// Pages that were not used for two ages are denser.
    Balanced,
    /// They are denser sooner. The cold ones are as dense as can be, also with their neighbours.
    Dense,
}

impl Density {
    /// All of them, the fastest first.
    pub const ALL: [Density; 3] = [Density::Fast, Density::Balanced, Density::Dense];

    /// An algorithm that a device of this density has besides its own, and that learns a dictionary
    /// from the device's pages.
    ///
    /// If balanced, it is LZ4 with a long search. Its pages are read by LZ4's decoder, which is
    /// somewhat slower with a dictionary. If dense, it is for the coldest pages. At level 9 a page
    /// costs 3 % less than at 3, and a dictionary of 16 KiB saves 6 % more. It takes some hundred
    /// microseconds to compress a page. Reads take as long at any level.
    pub fn learning_codec(self) -> Option<Codec> {
        let algorithm = match self {
            Density::Fast => return None,
            Density::Balanced => Algorithm::Lz4hc,
            Density::Dense => Algorithm::Zstd,
        };
        Codec::with_level(algorithm, LEARNING_LEVEL).ok()?.learning()
    }

    /// The name by which it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Density::Fast => "fast",
            Density::Balanced => "balanced",
            Density::Dense => "dense",
        }
    }
}

impl fmt::Display for Density {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Density {
    type Err = String;

    fn from_str(name: &str) -> Result<Density, String> {
        let found = Density::ALL.into_iter().find(|density| density.name() == name);
        found.ok_or_else(|| "a density is fast, balanced or dense".to_owned())
    }
}

/// The settings of tiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TiersConfig {
    /// How densely. [`Density::Fast`] has no tiers.
    pub density: Density,
    /// The length of an age, at least a second.
    pub age: Duration,
    /// The most CPU time that the thread in the background uses, in percent of one CPU: 1 to 100.
    pub cpu_percent: u32,
    /// Whether pages that were not used for a long time go to the backing disk.
    pub write_back: bool,
}

impl TiersConfig {
    /// An age of 30 seconds, at most 10 % of one CPU, and no write-back.
    pub fn new(density: Density) -> TiersConfig {
        let age = Duration::from_secs(30);
        TiersConfig { density, age, cpu_percent: 10, write_back: false }
    }
}

/// What came of training tables of pagelz, or a dictionary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The tables are generation `.0`, which pages get from now on. A device has one dictionary,
    /// which is generation 1.
    Adopted(u32),
    /// They gained too little on pages that they were not trained on.
    TooLittle,
    /// There are too few pages to train on.
    TooFewPages,
    /// Pages that need older tables are in the way. They are rewritten as they grow cold.
    NoPlace,
}

/// A training of tables of pagelz or of a dictionary, and what it gained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Training {
    /// The outcome.
    pub verdict: Verdict,
    /// Pages that tables were trained on.
    pub pages: u64,
    /// Pages that they were judged by.
    pub judged: u64,
    /// What those cost in size classes with the tables before, in bytes.
    pub cost_before: u64,
    /// What they cost with the new ones.
    pub cost_after: u64,
}

impl Training {
    /// A training that did not take place.
    pub(crate) fn none(verdict: Verdict) -> Training {
        Training { verdict, pages: 0, judged: 0, cost_before: 0, cost_after: 0 }
    }

    /// The part of the cost that the new tables save. It is negative if they cost more.
    pub fn gain(&self) -> f64 {
        1.0 - self.cost_after as f64 / self.cost_before.max(1) as f64
    }
}

/// Pages of one algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tier {
    /// The algorithm.
    pub algorithm: String,
    /// The generation of its tables, if it has some: 0 are the shipped ones.
    pub generation: Option<u32>,
    /// Pages in memory.
    pub pages: u64,
    /// Bytes of their objects.
    pub bytes: u64,
}

/// What the tiers of a device hold, and what was done for them.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct TierStat {
    /// The density that was asked for.
    pub density: Density,
    /// Why tiers are off, if they were turned off.
    pub off: Option<String>,
    /// The tiers, the fastest first.
    pub tiers: Vec<Tier>,
    /// Same-filled pages.
    pub same_pages: u64,
    /// Pages on the backing disk.
    pub written_back_pages: u64,
    /// Pages that became denser.
    pub denser: u64,
    /// Pages that came back to the algorithm of writes, because they are read often.
    pub faster: u64,
    /// Pages that were compressed again with later tables.
    pub renewed: u64,
    /// The CPU time that the thread has used, in microseconds.
    pub cpu_us: u64,
    /// Trainings of tables that were judged.
    pub trainings: u64,
    /// The last training of tables.
    pub training: Option<Training>,
    /// The last training of a dictionary.
    pub dictionary: Option<Training>,
}
