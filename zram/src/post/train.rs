//! Tables of pagelz that a device trains from its own pages, and the judgement whether they pay.
//!
//! ```text
//!   sample --training part--> tables --held-out part--> more than 3 % of class cost saved?
//!                                                          yes: the next generation
//!                                                          no: forgotten
//! ```
//!
//! Invariant: tables come into use only if they pay on pages that they were not trained on. Older
//! ones stay as long as a page needs them: see `Generations`.
//!
//! Locks: `Settings::run` while a generation comes or goes. None while tables are trained. A stream
//! while a held-out page is compressed.

use std::time::Duration;

use codec::{Algorithm, Codec, TABLES_LEN};
use host::PAGE_SIZE;

use super::sample::Sample;
use super::uses::Uses;
use crate::device::{Generation, Zram};
use crate::terms::{PRIORITIES, PostError, Training, Verdict};

/// The least part of the class cost that new tables have to save: 1/this.
const GAIN_MIN: u64 = 33; // 3 %

impl Zram {
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
        let pages_of = |bytes: &[u8]| (bytes.len() / PAGE_SIZE) as u64;
        let cost_before = self.cost_of(&sample.held_out, now)?;
        let cost_after = self.cost_of(&sample.held_out, new)?;
        let pays = cost_before.saturating_sub(cost_after) > cost_before / GAIN_MIN;
        Ok(Training {
            verdict: if pays { Verdict::Adopted(0) } else { Verdict::TooLittle },
            pages: pages_of(&sample.training),
            judged: pages_of(&sample.held_out),
            cost_before,
            cost_after,
        })
    }

    fn cost_of(&self, pages: &[u8], codec: &Codec) -> Result<u64, PostError> {
        pages.chunks(PAGE_SIZE).try_fold(0, |sum, page| {
            let len = self.with_stream(|stream| codec.compress(stream, page).map(<[u8]>::len));
            Ok(sum + self.class_cost(len.map_err(|_| PostError::NoMemory)?))
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

/// A codec with tables that are trained on these pages. `None` if they are too few.
fn trained(like: &Codec, pages: &[u8]) -> Result<Option<Codec>, PostError> {
    match codec::train(Algorithm::Pagelz, pages, TABLES_LEN) {
        Ok(tables) => {
            let codec = like.with_dictionary(&tables);
            codec.map(Some).map_err(|_| PostError::NoMemory)
        }
        Err(codec::TrainError::NoMemory) => Err(PostError::NoMemory),
        Err(_) => Ok(None),
    }
}
