//! Threads that read and write while a disk is compacted, and what each request took.
//!
//! ```text
//!   state:    COMPACTING ----------------> WITHOUT -----------> STOP
//!                      work() returned            a while passed
//! ```
//!
//! Invariants
//! - B1 every page that is left belongs to one thread, which knows what it holds.
//! - B2 a read is compared with that, after the clock has stopped.
//! - B3 a request counts for the state in which it began and ended; one that saw both was disturbed
//!   by the compaction, and counts as that.
//!
//! Locks: none; the state is one atomic number.

use super::plan::Plan;
use crate::apparatus::ours;
use crate::ground::{LabError, Rng};
use crate::pages::{Corpus, PAGE_SIZE};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};
use zram::Zram;

const SEED: u64 = 0x6275_7379;
const COMPACTING: u8 = 0;
const WITHOUT: u8 = 1;
const STOP: u8 = 2;

/// How many threads, and how long they go on afterwards.
#[derive(Clone, Copy)]
pub(super) struct Load {
    pub(super) threads: u32,
    /// Requests per second of all of them; as many as they can, where there is none.
    pub(super) pace: Option<u32>,
    pub(super) without: Duration,
}

/// What one thread saw, in nanoseconds a request, and what it left behind.
#[derive(Default)]
pub(super) struct Latencies {
    pub(super) compacting: Vec<u32>,
    pub(super) without: Vec<u32>,
    /// Position in the plan's live pages, and the page of the corpus that is there now.
    pub(super) holds: Vec<(usize, u32)>,
}

/// Runs `work` while the threads of `load` use `disk`.
pub(super) fn beside<R>(
    disk: &Zram,
    plan: &Plan,
    corpus: &Corpus,
    load: Load,
    work: impl FnOnce() -> Result<R, LabError>,
) -> Result<(R, Vec<Latencies>), LabError> {
    let (state, gate) = (AtomicU8::new(COMPACTING), Barrier::new(load.threads as usize + 1));
    thread::scope(|scope| {
        let start = |thread| {
            let client = Client::new(disk, plan, corpus, thread, load);
            let (state, gate) = (&state, &gate);
            scope.spawn(move || {
                gate.wait();
                client.run(state)
            })
        };
        let threads: Vec<_> = (0..load.threads).map(start).collect();
        gate.wait();
        let done = work();
        // relaxed: a request that reads the old value counts for the old state.
        state.store(WITHOUT, Ordering::Relaxed);
        thread::sleep(load.without);
        // relaxed: as above.
        state.store(STOP, Ordering::Relaxed);
        let seen = threads.into_iter().map(join).collect::<Result<_, _>>()?;
        Ok((done?, seen))
    })
}

fn join(thread: ScopedJoinHandle<'_, Result<Latencies, LabError>>) -> Result<Latencies, LabError> {
    thread.join().unwrap_or_else(|_| Err(LabError::Wrong("a busy thread panicked".into())))
}

struct Client<'a> {
    disk: &'a Zram,
    plan: &'a Plan,
    corpus: &'a Corpus,
    rng: Rng,
    page: Vec<u8>,
    /// From the beginning of one request to that of the next.
    interval: Option<Duration>,
    seen: Latencies,
}

impl<'a> Client<'a> {
    fn new(
        disk: &'a Zram,
        plan: &'a Plan,
        corpus: &'a Corpus,
        thread: u32,
        load: Load,
    ) -> Client<'a> {
        let own = (thread as usize..plan.live.len()).step_by(load.threads as usize);
        let holds = own.map(|position| (position, plan.live[position])).collect();
        let seen = Latencies { holds, ..Latencies::default() };
        let rng = Rng::new(SEED, u64::from(thread));
        let interval = load.pace.map(|pace| Duration::from_secs(1) * load.threads / pace);
        Client { disk, plan, corpus, rng, page: vec![0; PAGE_SIZE], interval, seen }
    }

    /// Half reads, half writes, until it is told to stop.
    fn run(mut self, state: &AtomicU8) -> Result<Latencies, LabError> {
        let mut next = Instant::now();
        while !self.seen.holds.is_empty() {
            if let Some(interval) = self.interval {
                next += interval;
                thread::sleep(next.saturating_duration_since(Instant::now()));
            }
            // relaxed: see where it is stored.
            let before = state.load(Ordering::Relaxed);
            if before == STOP {
                break;
            }
            let ns = if self.rng.below(2) == 0 { self.read()? } else { self.write()? };
            match before {
                COMPACTING => self.seen.compacting.push(ns),
                _ => self.seen.without.push(ns),
            }
        }
        Ok(self.seen)
    }

    fn read(&mut self) -> Result<u32, LabError> {
        let at = self.rng.below(self.seen.holds.len());
        let (position, page) = self.seen.holds[at];
        let slot = self.plan.live[position];
        let start = Instant::now();
        ours::read(self.disk, slot as usize, &mut self.page)?;
        let ns = nanoseconds(start);
        if self.page != self.corpus.page(page as usize) {
            return Err(LabError::Wrong(format!("slot {slot} does not hold page {page}")));
        }
        Ok(ns)
    }

    fn write(&mut self) -> Result<u32, LabError> {
        let at = self.rng.below(self.seen.holds.len());
        let slot = self.plan.live[self.seen.holds[at].0];
        let page = self.plan.live[self.rng.below(self.plan.live.len())];
        let start = Instant::now();
        ours::write(self.disk, slot as usize, self.corpus.page(page as usize))?;
        let ns = nanoseconds(start);
        self.seen.holds[at].1 = page;
        Ok(ns)
    }
}

fn nanoseconds(start: Instant) -> u32 {
    u32::try_from(start.elapsed().as_nanos()).unwrap_or(u32::MAX)
}
