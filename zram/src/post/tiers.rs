//! The thread that keeps each page in the tier where it should be.
//!
//! ```text
//!   sleep --> a slice of the pages --> sleep until the CPU time is within its share --> the next
//!                                      after the last slice: a quarter of an age
//!   pages are to become denser, and tables are due: train them first
//! ```
//!
//! Invariant: the thread's CPU time, measured by its own clock, is at most its share of the time
//! since a slice began, when the next one begins. A device has one such thread at a time. It keeps
//! the device alive only while it works.
//!
//! Lock: one, by which it is told to stop. It is a leaf.

use std::io;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use host::clock;

use super::rule::Rule;
use super::sample::OBJECTS_MIN;
use super::tend::{SLICE_PAGES, Slice};
use crate::cells::bump;
use crate::device::{Stop, Zram};
use crate::terms::{Density, TiersConfig};

/// Passes in an age.
const PASSES_PER_AGE: u32 = 4;
/// After so many passes tables are due again, if anything changed: 32 ages.
const RETRAIN_PASSES: u32 = 32 * PASSES_PER_AGE; // 128

/// While this lives, the pages of a device go to the tiers where they should be.
#[derive(Debug)]
pub struct Tiers {
    device: Weak<Zram>,
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

impl Tiers {
    /// Starts the thread of a device.
    ///
    /// # Errors
    ///
    /// `InvalidInput` in these cases: the density is fast, the age is less than a second, the share
    /// of CPU time is not 1 to 100, the device does not note ages (`ZramConfig::track_ages`), or it
    /// has tiers already. Otherwise, no thread could be started.
    pub fn start(device: &Arc<Zram>, config: TiersConfig) -> io::Result<Tiers> {
        let pass = TierPass::begin(device, config, SLICE_PAGES)?;
        let (weak, stop) = (Arc::downgrade(device), Arc::new(Stop::new()));
        let (of, told) = (Weak::clone(&weak), Arc::clone(&stop));
        let thread = host::thread::spawn("zram tiers", move || run(&of, &told, pass));
        let thread = thread.inspect_err(|_| device.settings.tiering.give_up())?;
        Ok(Tiers { device: weak, stop, thread: Some(thread) })
    }

    /// Ends the thread, and says why there are no tiers any more. Pages stay as they are.
    pub fn turn_off(self, why: &str) {
        let device = Weak::clone(&self.device);
        drop(self);
        if let Some(device) = device.upgrade() {
            device.settings.tiering.turned_off(why.to_owned());
        }
    }
}

impl Drop for Tiers {
    fn drop(&mut self) {
        self.stop.tell();
        if let Some(thread) = self.thread.take() {
            // If it panicked, the panic has reported that.
            let _ = thread.join();
        }
        if let Some(device) = self.device.upgrade() {
            device.settings.tiering.give_up();
        }
    }
}

fn run(device: &Weak<Zram>, stop: &Stop, mut pass: TierPass) {
    let mut pause = pass.between;
    while !stop.sleep(pause) {
        let Some(device) = device.upgrade() else { return };
        pause = pass.turn(&device);
    }
}

/// The work of [`Tiers`], for an owner of a device that has a thread for it: where it is, and what
/// it remembers.
#[derive(Debug)]
pub struct TierPass {
    rule: Rule,
    /// Pages that one turn looks at.
    slice_pages: u64,
    /// The time between two passes.
    between: Duration,
    cpu_percent: u32,
    /// The next page to look at.
    page: u64,
    /// Passes since tables were trained, and the objects and changes that there were then.
    trained: Option<(u32, u64, Option<u64>)>,
}

impl TierPass {
    /// Begins with the first page. A turn looks at `slice_pages` pages, of which it may compress
    /// all. The device has tiers from now on, as long as it lives.
    ///
    /// # Errors
    ///
    /// As for [`Tiers::start`], except that no thread is started.
    pub fn begin(device: &Zram, config: TiersConfig, slice_pages: u64) -> io::Result<TierPass> {
        let invalid = |what| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        match config {
            TiersConfig { density: Density::Fast, .. } => {
                return invalid("the density fast has no tiers");
            }
            _ if config.age < Duration::from_secs(1) => {
                return invalid("an age of tiers has at least a second");
            }
            _ if !(1..=100).contains(&config.cpu_percent) => {
                return invalid("tiers use 1 to 100 percent of one CPU");
            }
            _ if device.ages().is_none() => {
                return invalid("tiers need a device that notes when its pages are used");
            }
            _ => {}
        }
        // This is one step, so that if two threads start tiers, one of them is refused.
        if !device.settings.tiering.take(config.density) {
            return invalid("the device has tiers already");
        }
        Ok(TierPass {
            rule: Rule::new(&config),
            slice_pages: slice_pages.max(1),
            between: config.age / PASSES_PER_AGE,
            cpu_percent: config.cpu_percent,
            page: 0,
            trained: None,
        })
    }

    /// As `begin`, for a forked child that has its parent's device: passes of the parent do not
    /// count.
    ///
    /// # Errors
    ///
    /// As for `begin`.
    pub fn begin_anew(
        device: &Zram,
        config: TiersConfig,
        slice_pages: u64,
    ) -> io::Result<TierPass> {
        device.settings.tiering.give_up();
        TierPass::begin(device, config, slice_pages)
    }

    /// Works on a slice, or trains tables. Returns how long the owner is to leave it alone, so that
    /// it keeps within its share of CPU time.
    pub fn turn(&mut self, device: &Zram) -> Duration {
        let (begun, cpu) = (Instant::now(), clock::thread_cpu());
        let pause = self.work(device);
        let used = clock::thread_cpu().saturating_sub(cpu);
        bump(&device.settings.tiering.cpu_us, used.as_micros() as u64);
        let share = used * 100 / self.cpu_percent;
        share.saturating_sub(begun.elapsed()).max(pause)
    }

    /// Returns how long there is nothing to do.
    fn work(&mut self, device: &Zram) -> Duration {
        let due = self.is_training_due(device);
        match device.tend_slice(&self.rule, self.page..self.page + self.slice_pages, due) {
            Ok(Slice::Next(page)) => {
                self.page = page;
                Duration::ZERO
            }
            Ok(Slice::Train) => {
                self.train(device);
                Duration::ZERO
            }
            // Without memory, a later pass may succeed.
            Ok(Slice::Last) | Err(_) => {
                self.page = 0;
                self.trained.iter_mut().for_each(|(passes, ..)| *passes += 1);
                self.between
            }
        }
    }

    fn train(&mut self, device: &Zram) {
        // It is remembered before, so that a training that fails is not repeated at once.
        self.trained = Some((0, device.objects(), device.counters.changes()));
        // Without memory, the device goes on with what it has.
        let _ = device.train();
    }

    /// Training is due when there are enough pages, when there are twice as many as the last time,
    /// and after a long time in which something changed.
    fn is_training_due(&self, device: &Zram) -> bool {
        let objects = device.objects();
        objects >= OBJECTS_MIN
            && self.trained.is_none_or(|(passes, at, changes)| {
                objects >= at * 2
                    || passes >= RETRAIN_PASSES && device.counters.changes() != changes
            })
    }
}
