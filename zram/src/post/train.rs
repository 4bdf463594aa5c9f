//! What a device trains from its own pages, and the judgement whether it pays: tables of pagelz,
//! and a dictionary for the algorithm that learns one.
//!
//! ```text
//!   sample --training part--> tables --held-out part--> more than 3 % of class cost saved?
//!                                                          yes: the next generation
//!                                                          no: forgotten
//!          --training part--> dictionary --held-out part--> that, and more than it takes itself?
//!                                                          yes: learned, for good
//!                                                          no: tried again with more pages
//! ```
//!
//! A page of 4 KiB is too short to have much to repeat, and a dictionary is what it can repeat. So
//! pages become as dense alone as in units of four, and one page is decompressed for a read.
//!
//! Invariants
//! - I1 what was trained comes into use only if it pays on pages that it was not trained on. Older
//!   tables stay as long as a page needs them: see `Generations`.
//! - I2 a device has one dictionary. Each page says whether it needs that.
//!
//! Locks: `Settings::run` while a generation comes or goes. None while something is trained and
//! judged. A stream and a cell while the sample is taken.

use std::time::Duration;

use codec::{Algorithm, Codec, TABLES_LEN, TrainError};
use host::PAGE_SIZE;

use super::bench::Bench;
use super::sample::Sample;
use super::uses::Uses;
use crate::device::{Generation, Zram};
use crate::terms::{PRIORITIES, PostError, Training, Verdict};

/// The least part of the class cost that new tables have to save: 1/this.
const GAIN_MIN: u64 = 33; // 3 %

/// Bytes of a dictionary of Zstandard. Twice as many save a 300th part more.
const ZSTD_BYTES: usize = 16 << 10; // 16 KiB
/// Bytes of a dictionary of LZ4, which can refer to no more.
const LZ4_BYTES: usize = 64 << 10; // 64 KiB
/// Bytes that it takes while it lives: LZ4's its content, and Zstandard's that twice, and tables.
const DICTIONARY_TAKES: u64 = 64 << 10; // 64 KiB
/// A dictionary has the number of the first generation, because there is no other.
const GENERATION: u32 = 1;

impl Zram {
    /// Trains what pages that become denser gain by, and notes what came of it.
    pub(super) fn train(&self) -> Result<(), PostError> {
        self.settings.tiering.note(self.train_tables()?);
        if let Some(training) = self.learn_dictionary()? {
            self.settings.tiering.note_dictionary(training);
        }
        Ok(())
    }

    /// Trains a dictionary for the algorithm that was configured besides the first one, which gets
    /// it if that pays. `None` if the algorithm learns none, or has learned one. It takes some
    /// tenths of a second of CPU time.
    fn learn_dictionary(&self) -> Result<Option<Training>, PostError> {
        let densest = self.config.configured_densest().filter(|(_, codec)| codec.is_learning());
        let Some((_, plain)) = densest else { return Ok(None) };
        let none = |verdict| Ok(Some(Training::none(verdict)));
        let Some(sample) = self.sample()? else { return none(Verdict::TooFewPages) };
        let bytes = if plain.algorithm() == Algorithm::Zstd { ZSTD_BYTES } else { LZ4_BYTES };
        let content = match plain.train(&sample.training, bytes) {
            Ok(content) => content,
            Err(TrainError::NoMemory) => return Err(PostError::NoMemory),
            Err(_) => return none(Verdict::TooLittle),
        };
        let learned = plain.with_dictionary(&content).map_err(|_| PostError::NoMemory)?;
        let mut bench = Bench::new(self);
        let before = self.cost_of(&mut bench, &sample.held_out, plain)?;
        let after = self.cost_of(&mut bench, &sample.held_out, &learned)?;
        let mut training = training_of(&sample, before, after);
        let saved = before.saturating_sub(after);
        let of_all = saved * self.objects() / training.judged.max(1);
        if saved > before / GAIN_MIN && of_all > DICTIONARY_TAKES {
            plain.learn(&content).map_err(|_| PostError::NoMemory)?;
            training.verdict = Verdict::Adopted(GENERATION);
        }
        Ok(Some(training))
    }

    /// Trains tables of pagelz on a sample of the pages stored. If they pay, pages that are
    /// recompressed get them from now on. It takes about a tenth of a second of CPU time.
    ///
    /// # Errors
    ///
    /// [`PostError::NoMemory`].
    pub fn train_tables(&self) -> Result<Training, PostError> {
        let Some(sample) = self.sample()? else {
            return Ok(Training::none(Verdict::TooFewPages));
        };
        let now = self.generations.latest().map_or(Codec::new(Algorithm::Pagelz), |it| it.codec);
        let Some(new) = trained(&now, &sample.training)? else {
            return Ok(Training::none(Verdict::TooFewPages));
        };
        let training = self.judge(&sample, &now, &new)?;
        match training.verdict {
            Verdict::Adopted(_) => Ok(Training { verdict: self.adopt(new), ..training }),
            _ => Ok(training),
        }
    }

    /// Makes tables of pagelz those that pages get from now on. `ramfold train` makes such tables.
    /// They are not judged.
    ///
    /// # Errors
    ///
    /// [`PostError::Invalid`] if these are no tables, [`PostError::NoMemory`].
    pub fn use_tables(&self, tables: &[u8]) -> Result<Verdict, PostError> {
        let pagelz = Codec::new(Algorithm::Pagelz);
        let codec = pagelz.with_dictionary(tables).map_err(|error| match error {
            codec::ParameterError::NoMemory => PostError::NoMemory,
            _ => PostError::Invalid("these are no tables of pagelz"),
        })?;
        Ok(self.adopt(codec))
    }

    /// Compares two codecs on the pages that are held out.
    fn judge(&self, sample: &Sample, now: &Codec, new: &Codec) -> Result<Training, PostError> {
        let mut bench = Bench::new(self);
        let before = self.cost_of(&mut bench, &sample.held_out, now)?;
        let after = self.cost_of(&mut bench, &sample.held_out, new)?;
        let mut training = training_of(sample, before, after);
        if before.saturating_sub(after) > before / GAIN_MIN {
            training.verdict = Verdict::Adopted(0);
        }
        Ok(training)
    }

    /// What pages cost with a codec, in size classes.
    fn cost_of(
        &self,
        bench: &mut Bench<'_>,
        pages: &[u8],
        codec: &Codec,
    ) -> Result<u64, PostError> {
        pages.chunks(PAGE_SIZE).try_fold(0, |sum, page| {
            let blob = bench.compress(codec, 0, page).ok_or(PostError::NoMemory)?;
            Ok(sum + self.class_cost(blob.len()))
        })
    }

    /// Bytes that an object of this length takes: its share of a full zspage.
    pub(super) fn class_cost(&self, len: usize) -> u64 {
        let geometry = self.slots.pool.geometry();
        let class = geometry.class_of(len).filter(|_| len <= self.watermark);
        class.map_or(PAGE_SIZE as u64, |class| {
            let shape = geometry.shape(class);
            u64::from(shape.frames) * PAGE_SIZE as u64 / u64::from(shape.objects)
        })
    }

    /// Makes a codec the next generation, if there is a place for it.
    fn adopt(&self, codec: Codec) -> Verdict {
        let _one = self.settings.run();
        self.retire_unused();
        let taken = self.generations.all();
        let is_free = |priority: &u8| {
            self.codec(*priority).is_none() && taken.iter().all(|it| it.priority != *priority)
        };
        // Without tiers there may be no generation yet. The shipped tables are number 0 then.
        let number = taken.iter().map(|it| it.number).max().unwrap_or(0) + 1;
        match (1..PRIORITIES as u8).find(is_free).filter(|_| taken.len() < GENERATIONS_MAX) {
            Some(priority) => {
                self.generations.add(Generation { priority, number, codec });
                Verdict::Adopted(number)
            }
            None => Verdict::NoPlace,
        }
    }

    /// Removes the generations that no page needs, except the latest. The caller is the one that
    /// post-processes, so that no page gets one meanwhile.
    pub(super) fn retire_unused(&self) {
        let latest = self.generations.latest().map(|it| it.number);
        let old = self.generations.all().into_iter().filter(|it| Some(it.number) != latest);
        let old: Vec<Generation> = old.collect();
        if old.is_empty() {
            return;
        }
        let uses = Uses::of(self);
        let is_used = |it: &Generation| uses.needs(it.priority, self.config.compressed_writeback);
        let unused: Vec<&Generation> = old.iter().filter(|it| !is_used(it)).collect();
        if !unused.is_empty() && self.let_discarded_go() {
            unused.into_iter().for_each(|it| self.generations.remove(it.priority));
        }
    }

    /// Waits until no thread decodes a page of a leaf that was discarded, which no count of pages
    /// sees. False if that cannot be said.
    fn let_discarded_go(&self) -> bool {
        // Between its leaving the table and its place in the queue, a leaf is a discard's alone.
        let is_quiet = (0..QUIET_TRIES).any(|_| {
            let is_quiet = self.counters.changes().is_some();
            if !is_quiet {
                std::thread::sleep(QUIET_PAUSE);
            }
            is_quiet
        });
        if is_quiet {
            // The thread that frees the objects of a leaf waits for those that have its cells.
            self.memory().flush_deferred();
        }
        is_quiet
    }
}

/// How often a moment is looked for at which no request changes pages, and the pause between.
const QUIET_TRIES: u32 = 200;
const QUIET_PAUSE: Duration = Duration::from_micros(50);
/// Generations that a device has at a time: the latest, and one that pages still need.
const GENERATIONS_MAX: usize = 2;

/// What a training gained, too little until it is judged.
fn training_of(sample: &Sample, cost_before: u64, cost_after: u64) -> Training {
    let pages_of = |bytes: &[u8]| (bytes.len() / PAGE_SIZE) as u64;
    let (pages, judged) = (pages_of(&sample.training), pages_of(&sample.held_out));
    Training { verdict: Verdict::TooLittle, pages, judged, cost_before, cost_after }
}

/// A codec with tables that are trained on these pages. `None` if they are too few.
fn trained(like: &Codec, pages: &[u8]) -> Result<Option<Codec>, PostError> {
    match codec::train_tables(pages, TABLES_LEN) {
        Ok(tables) => {
            let codec = like.with_dictionary(&tables);
            codec.map(Some).map_err(|_| PostError::NoMemory)
        }
        Err(TrainError::NoMemory) => Err(PostError::NoMemory),
        Err(_) => Ok(None),
    }
}
