//! One mix on one pool, by several threads.
//!
//! ```text
//!   thread   store own ... read back ... get ready | gate | work | what is left is freed
//!                                                         ^    ^
//!                                        first start of all    last end of all
//! ```
//!
//! Invariants
//! - T1 an object begins with its length and its thread; a thread that reads it compares both.
//! - T2 a rate counts only if all threads got through and a recount finds an empty pool.
//!
//! Lock: none but the gate, which is passed once, whatever happened before it.

use super::gate::Gate;
use super::ours::Layout;
use crate::ground::{LabError, Rng};
use crate::pages::PAGE_SIZE;
use std::hint::black_box;
use std::sync::Arc;
use std::thread::{self, ScopedJoinHandle};
use std::time::Instant;
use zsmalloc::study::{Release, Study};
use zsmalloc::{AllocError, Handle, Memory, MemoryConfig, Pool, PoolConfig};

pub(crate) mod count;

/// Objects freed by one call of `free_batch`.
const BATCH: usize = 512;
const SEED: u64 = 0x6C6F_636B;
/// Bytes of the mark at the start of an object: length, thread.
const MARK_BYTES: usize = 4;

/// Room for so many objects of a page each, twice.
pub(crate) fn memory_config(objects: usize) -> MemoryConfig {
    const SPARE: usize = 1 << 16;
    MemoryConfig {
        arena_frames: (2 * objects + SPARE) as u32,
        entries_max: (2 * objects + SPARE) as u64,
        expected_bytes: ((2 * objects + SPARE) * PAGE_SIZE) as u64,
        worker: false,
    }
}

/// A memory of that.
pub(crate) fn memory(objects: usize) -> Result<Arc<Memory>, LabError> {
    Memory::new(memory_config(objects)).map_err(LabError::store("memory"))
}

/// The work of the threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Mix {
    Free,
    FreeAtOnce,
    FreeBatch,
    Mixed,
    Pin,
    Alloc,
}

impl Mix {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Mix::Free => "free",
            Mix::FreeAtOnce => "free-at-once",
            Mix::FreeBatch => "free-batch",
            Mix::Mixed => "mixed",
            Mix::Pin => "pin",
            Mix::Alloc => "alloc",
        }
    }

    /// Whether it is measured with more than one thread.
    pub(crate) fn scales(self) -> bool {
        !matches!(self, Mix::Pin | Mix::Alloc)
    }

    /// The pool it is done with.
    pub(crate) fn config(self, layout: Layout, release: Release) -> PoolConfig {
        let study = Study { design: layout.design, release };
        let shards = layout.shards.asked();
        let config = PoolConfig { study, shards, ..PoolConfig::default() };
        match self {
            Mix::FreeAtOnce => PoolConfig { lag: 0, ..config },
            _ => config,
        }
    }
}

/// One measurement.
pub(crate) struct Trial<'a> {
    /// One for all threads, or one for each.
    pub(crate) memories: &'a [Arc<Memory>],
    pub(crate) config: PoolConfig,
    pub(crate) mix: Mix,
    /// The lengths of every thread's objects.
    pub(crate) shares: &'a [Vec<u16>],
    pub(crate) run: u32,
}

/// When a thread worked, and how much it did.
struct Span {
    start: Instant,
    end: Instant,
    operations: usize,
}

impl Trial<'_> {
    /// Operations of all threads in a second.
    pub(crate) fn ops_per_s(&self) -> Result<f64, LabError> {
        let pool = |memory| Pool::new(Arc::clone(memory), self.config);
        let pools: Vec<Arc<Pool>> = self
            .memories
            .iter()
            .map(pool)
            .collect::<Result<_, _>>()
            .map_err(LabError::store("pool"))?;
        let gate = Gate::new(self.shares.len() as u32);
        let spans = thread::scope(|scope| {
            let start = |number: usize| {
                let pool = &pools[number % pools.len()];
                let worker = Worker::new(pool, number, &self.shares[number], self.run);
                let (gate, mix) = (&gate, self.mix);
                scope.spawn(move || worker.go(mix, gate))
            };
            let threads: Vec<_> = (0..self.shares.len()).map(start).collect();
            threads.into_iter().map(join).collect::<Result<Vec<Span>, LabError>>()
        })?;
        pools.iter().try_for_each(|pool| is_empty(pool))?;
        Ok(rate(&spans))
    }
}

fn is_empty(pool: &Pool) -> Result<(), LabError> {
    let left = pool.check().map_err(LabError::store("check"))?.objects;
    let wrong = || LabError::Wrong(format!("{left} objects are left when all are freed"));
    (left == 0).then_some(()).ok_or_else(wrong)
}

fn rate(spans: &[Span]) -> f64 {
    let operations: usize = spans.iter().map(|span| span.operations).sum();
    let start = spans.iter().map(|span| span.start).min();
    let end = spans.iter().map(|span| span.end).max();
    let seconds = end.zip(start).map_or(f64::NAN, |(end, start)| (end - start).as_secs_f64());
    operations as f64 / seconds
}

fn join(thread: ScopedJoinHandle<'_, Result<Span, LabError>>) -> Result<Span, LabError> {
    thread.join().unwrap_or_else(|_| Err(LabError::Wrong("a thread panicked".into())))
}

/// A thread and its objects.
struct Worker<'a> {
    pool: &'a Pool,
    number: usize,
    lengths: &'a [u16],
    handles: Vec<Handle>,
    rng: Rng,
}

impl<'a> Worker<'a> {
    fn new(pool: &'a Pool, number: usize, lengths: &'a [u16], run: u32) -> Worker<'a> {
        let handles = Vec::with_capacity(lengths.len());
        let rng = Rng::new(SEED + u64::from(run), number as u64);
        Worker { pool, number, lengths, handles, rng }
    }

    fn go(mut self, mix: Mix, gate: &Gate) -> Result<Span, LabError> {
        let ready = self.prepare(mix);
        gate.pass();
        ready?;
        let start = Instant::now();
        let operations = self.work(mix, self.lengths.len())?;
        let end = Instant::now();
        self.free_all()?;
        Ok(Span { start, end, operations })
    }

    /// Stores the objects, reads them back, and leaves the handles as the mix wants them.
    fn prepare(&mut self, mix: Mix) -> Result<(), LabError> {
        for &length in self.lengths {
            self.store(length)?;
        }
        for (handle, &length) in self.handles.iter().zip(self.lengths) {
            if self.read(handle)? != usize::from(length) {
                return Err(self.wrong());
            }
        }
        match mix {
            Mix::Free | Mix::FreeAtOnce => self.shuffle(),
            Mix::Alloc => self.free_all()?,
            Mix::FreeBatch | Mix::Mixed | Mix::Pin => {}
        }
        Ok(())
    }

    /// The mix; at most `most` operations, of which it gives the number done.
    fn work(&mut self, mix: Mix, most: usize) -> Result<usize, LabError> {
        match mix {
            Mix::Free | Mix::FreeAtOnce => {
                for handle in self.handles.drain(self.handles.len().saturating_sub(most)..) {
                    self.pool.free_handle(handle).map_err(|_| foreign())?;
                }
            }
            Mix::FreeBatch => {
                let mut handles = self.handles.drain(..most.min(self.handles.len()));
                while handles.len() > 0 {
                    let batch = handles.by_ref().take(BATCH);
                    self.pool.free_batch(batch).map_err(|_| foreign())?;
                }
            }
            Mix::Mixed => {
                for _ in 0..most {
                    self.any()?;
                }
            }
            Mix::Pin => {
                let Some(hot) = self.handles.first() else { return Ok(0) };
                for _ in 0..most {
                    black_box(self.pool.read(hot).map_err(|_| foreign())?.len());
                }
            }
            Mix::Alloc => {
                for &length in &self.lengths[..most] {
                    let handle = self.pool.alloc_unzeroed_with(usize::from(length), |_| {});
                    self.handles.push(handle.map_err(refused)?);
                }
            }
        }
        Ok(most)
    }

    /// One operation of the mixed mix.
    fn any(&mut self) -> Result<(), LabError> {
        let draw = self.rng.below(4);
        if draw == 0 || self.handles.is_empty() {
            let length = self.lengths[self.rng.below(self.lengths.len())];
            return self.store(length);
        }
        let at = self.rng.below(self.handles.len());
        if draw == 1 {
            let handle = self.handles.swap_remove(at);
            return self.pool.free_handle(handle).map_err(|_| foreign());
        }
        black_box(self.read(&self.handles[at])?);
        Ok(())
    }

    fn store(&mut self, length: u16) -> Result<(), LabError> {
        let mark = self.mark(length);
        let fill = |object: &mut [u8]| {
            let marked = object.len().min(MARK_BYTES);
            object[..marked].copy_from_slice(&mark[..marked]);
        };
        let handle = self.pool.alloc_unzeroed_with(usize::from(length), fill);
        self.handles.push(handle.map_err(refused)?);
        Ok(())
    }

    /// The length of an object that is this thread's.
    fn read(&self, handle: &Handle) -> Result<usize, LabError> {
        let object = self.pool.read(handle).map_err(|_| foreign())?;
        let marked = object.len().min(MARK_BYTES);
        let right = object[..marked] == self.mark(object.len() as u16)[..marked];
        if right { Ok(object.len()) } else { Err(self.wrong()) }
    }

    fn mark(&self, length: u16) -> [u8; MARK_BYTES] {
        let ([a, b], [c, d]) = (length.to_le_bytes(), (self.number as u16).to_le_bytes());
        [a, b, c, d]
    }

    fn shuffle(&mut self) {
        for last in (1..self.handles.len()).rev() {
            self.handles.swap(last, self.rng.below(last + 1));
        }
    }

    fn free_all(&mut self) -> Result<(), LabError> {
        self.pool.free_batch(self.handles.drain(..)).map_err(|_| foreign())
    }

    fn wrong(&self) -> LabError {
        LabError::Wrong(format!("an object of thread {} is not what it stored", self.number))
    }
}

/// Made when it is needed: an error made in advance would be part of every operation's time.
fn refused(error: AllocError) -> LabError {
    LabError::store("alloc")(error)
}

fn foreign() -> LabError {
    LabError::Wrong("the pool does not know its own handle".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;
    use std::time::Duration;

    #[test]
    fn every_mix_gets_through_and_leaves_nothing() {
        let memories = [(); 2].map(|()| memory(2000).unwrap());
        let lengths: Vec<u16> = (0..700).map(|index| 1 + index * 5).collect();
        let shares = [lengths.clone(), lengths];
        for &mix in Mix::value_variants() {
            for memories in [&memories[..1], &memories[..]] {
                let config = PoolConfig::default();
                let trial = Trial { memories, config, mix, shares: &shares, run: 0 };
                assert!(trial.ops_per_s().unwrap() > 0.0, "{mix:?}");
            }
        }
    }

    #[test]
    fn an_object_of_another_is_not_taken_for_ones_own() {
        let memory = memory(100).unwrap();
        let pool = Pool::new(memory, PoolConfig::default()).unwrap();
        let lengths = [100, 200];
        let mut workers = [0, 1].map(|number| Worker::new(&pool, number, &lengths, 0));
        for worker in &mut workers {
            worker.prepare(Mix::Pin).unwrap();
        }
        let [first, second] = &mut workers;
        std::mem::swap(&mut first.handles, &mut second.handles);
        let error = first.read(&first.handles[0]).unwrap_err().to_string();
        assert_eq!(error, "wrong answer: an object of thread 0 is not what it stored");
        first.free_all().and(second.free_all()).unwrap();
    }

    #[test]
    fn a_rate_is_from_the_first_start_to_the_last_end() {
        let zero = Instant::now();
        let at = |ms| zero + Duration::from_millis(ms);
        let spans = [
            Span { start: at(0), end: at(60), operations: 500 },
            Span { start: at(20), end: at(100), operations: 500 },
        ];
        assert!((rate(&spans) - 10_000.0).abs() < 1e-6);
    }
}
