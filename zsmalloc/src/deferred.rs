//! Deferred work: values are set aside now, and another thread drains them later.
//!
//! ```text
//!   push --> shard of this CPU | a b c . . . |  one page, under a lock that is only tried
//!            next shard        | x y . . . . |
//!                                    |  full: changed for a free buffer, and `full` is called
//!   depot     free [ ] [ ] [ ]       v
//!             queued [a b c d e f] [u v w ...] ---- drain_some, flush ----> drain function
//! ```
//!
//! The queue does not know what a client defers: it has values of a type, and the bytes of payload
//! that each stands for. It does not drain by itself. A thread of the client calls
//! [`Queue::drain_some`] and [`Queue::flush`]; the `full` hook may wake it.
//!
//! Source: study S3. Its per-CPU buffers need no atomic, because the kernel can keep a thread on
//! its CPU. A process cannot do so without restartable sequences. Here the CPU is a hint, and a
//! lock that is tried costs one exchange to take and one to give up.
//!
//! Invariants
//! - I1 a push never waits and never allocates: it finds room in one of two shards, or hands the
//!   value back.
//! - I2 a value that was pushed is in a shard's buffer, in a queued one, or in the one that is
//!   being drained, and it leaves that once. Only [`Queue::flush`] carries a buffer from a shard to
//!   the depot with neither lock held. It has the turn then, so no other thread drains.
//! - I3 pending payload never exceeds the budget, at any moment (depot I2).
//!
//! Locks: the turn to drain, and under it one shard's or the depot's, which are leaves. The drain
//! function is called with the turn held, and no other.

mod buffer;
mod check;
mod depot;
mod error;
mod lag;

use std::collections::TryReserveError;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use host::sync::atomic::{AtomicU64, Ordering};
use host::{Lock, PAGE_SIZE, Rank, RankedMutex, RankedMutexGuard, cpu};

pub use buffer::Values;
use buffer::{Buffer, Load};
use depot::Depot;
pub use error::{NotQueued, QueueDefect};
pub(crate) use lag::{LAG_MAX, Lag};

/// Shards that a push tries.
const TRIES: usize = 2;
/// Buffers in shards get this share of the payload budget together, at most.
const SHARDS_SHARE: u64 = 4; // a quarter

/// How large a queue is; fixed for its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueConfig {
    /// Shards; `None`: one for each CPU.
    pub shards: Option<usize>,
    /// Bytes of buffers beside one page for each shard; whole pages of it are used.
    pub buffer_bytes: usize,
    /// Payload that may be pending, in bytes.
    pub pending_bytes_max: u64,
}

impl Default for QueueConfig {
    /// 64 MiB of payload, and buffers for 65536 values of 8 bytes, which is as many objects of
    /// 1 KiB.
    fn default() -> QueueConfig {
        QueueConfig { shards: None, buffer_bytes: 512 << 10, pending_bytes_max: 64 << 20 }
    }
}

/// What a queue can say about itself. While others push or drain, each number is of its own moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Meters {
    /// Values pushed and not drained to the end: of a buffer being drained, all.
    pub pending_values: u64,
    /// Payload of those, in bytes.
    pub pending_bytes: u64,
    /// How long the oldest of them has waited; zero when there is none.
    pub behind: Duration,
    /// Values handed back by [`Queue::push`], ever.
    pub fallbacks: u64,
    /// Buffers drained to the end, ever.
    pub drains: u64,
    /// Values drained, ever.
    pub drained_values: u64,
    /// Bytes of the queue's own buffers and lists, used or not.
    pub heap_bytes: u64,
}

/// What drains values.
type Drain<T> = dyn Fn(&mut Values<'_, T>) + Send + Sync;

/// A bounded queue of values that are drained later, in any order. See the module documentation.
pub struct Queue<T> {
    shards: Box<[Shard<T>]>,
    depot: Lock<Depot<T>>,
    /// Held by the thread that drains.
    turn: RankedMutex<()>,
    drain: Box<Drain<T>>,
    full: Box<dyn Fn() + Send + Sync>,
    fallbacks: AtomicU64,
    heap_bytes: u64,
    /// Payload that may be pending, in bytes, and buffers there are.
    budget: u64,
    buffers: usize,
}

impl QueueConfig {
    /// Room for every page of a store of so many pages, so that the store can be given up at once
    /// without one free in the call. It takes 8 bytes of buffers for each page when the queue is
    /// made, and at least those of the default. Only the store bounds the payload.
    pub fn for_pages(pages: u64) -> QueueConfig {
        let default = QueueConfig::default();
        let buffers = usize::try_from(pages.saturating_mul(8)).unwrap_or(usize::MAX);
        let buffer_bytes = buffers.max(default.buffer_bytes);
        QueueConfig { buffer_bytes, pending_bytes_max: u64::MAX, ..default }
    }
}

/// The buffer that a CPU pushes into; on cache lines of its own.
#[repr(align(128))]
struct Shard<T>(Lock<Buffer<T>>);

impl<T> Queue<T> {
    /// An empty queue, with all its buffers.
    ///
    /// One thread at a time gives `drain` the values of one buffer, and it takes them all. It must
    /// not drain this queue itself, and may push. A push that filled a buffer, or found none free,
    /// calls `full` with no lock held. `full` must not wait. It may wake a thread that drains, or
    /// do nothing.
    ///
    /// # Errors
    ///
    /// When there is no memory for the buffers.
    pub fn new(
        config: QueueConfig,
        drain: impl Fn(&mut Values<'_, T>) + Send + Sync + 'static,
        full: impl Fn() + Send + Sync + 'static,
    ) -> Result<Queue<T>, TryReserveError> {
        let shards = config.shards.unwrap_or_else(cpu::count).max(1);
        let buffers = shards.saturating_add(config.buffer_bytes / PAGE_SIZE);
        let budget = config.pending_bytes_max;
        let grant = (budget / SHARDS_SHARE / shards as u64).max(1);
        let depot = Depot::new(buffers, budget, grant)?;
        let heap_bytes = buffers * Buffer::<T>::CAPACITY * size_of::<T>()
            + depot.heap_bytes()
            + shards * size_of::<Shard<T>>();
        let shard = |_| Shard(Lock::new(Rank::Leaf, Buffer::NONE));
        Ok(Queue {
            shards: (0..shards).map(shard).collect(),
            depot: Lock::new(Rank::Leaf, depot),
            turn: RankedMutex::new(Rank::Draining, ()),
            drain: Box::new(drain),
            full: Box::new(full),
            fallbacks: AtomicU64::new(0),
            heap_bytes: heap_bytes as u64,
            budget,
            buffers,
        })
    }

    /// Sets a value aside that stands for `bytes` of payload. Never waits, never allocates.
    ///
    /// # Errors
    ///
    /// [`NotQueued`] with the value, if no buffer or no payload budget is left, or if other threads
    /// are at both shards that were tried. The caller then does what the drain function would.
    #[inline]
    pub fn push(&self, value: T, bytes: u64) -> Result<(), NotQueued<T>> {
        let home = cpu::current_hint();
        let (mut pushed, mut filled) = (Err(value), false);
        for step in 0..TRIES.min(self.shards.len()) {
            let Err(value) = pushed else { break };
            let shard = &self.shards[home.wrapping_add(step) % self.shards.len()];
            pushed = self.push_in(shard, value, bytes, &mut filled);
        }
        if pushed.is_err() {
            // relaxed: a total.
            self.fallbacks.fetch_add(1, Ordering::Relaxed);
        }
        if filled || pushed.is_err() {
            (self.full)();
        }
        pushed.map_err(NotQueued)
    }

    /// Tries one shard, and says whether a buffer was filled.
    #[inline]
    fn push_in(&self, shard: &Shard<T>, value: T, bytes: u64, filled: &mut bool) -> Result<(), T> {
        let Some(mut buffer) = shard.0.try_lock() else { return Err(value) };
        if !buffer.has_room(bytes) {
            *filled |= self.rotate(&mut buffer);
            if !buffer.has_room(bytes) {
                return Err(value);
            }
        }
        buffer.push(value, bytes);
        if buffer.is_full() {
            *filled |= self.rotate(&mut buffer);
        }
        Ok(())
    }

    /// Changes a shard's buffer for a free one, or for none. Leaves it if other threads are at the
    /// depot. True if a buffer with values was queued.
    #[cold]
    fn rotate(&self, buffer: &mut Buffer<T>) -> bool {
        let Some(mut depot) = self.depot.try_lock() else { return false };
        let queued = depot.put(std::mem::replace(buffer, Buffer::NONE));
        *buffer = depot.give_free();
        queued
    }

    /// Drains up to so many of the buffers that are queued now, oldest first. Returns how many
    /// values that were. Values in the shards' buffers stay: [`Queue::flush`] drains them. It waits
    /// for a thread that drains.
    ///
    /// # Panics
    ///
    /// If the drain function panics, or leaves values behind. What it has not taken by then stays
    /// pending, and comes first the next time.
    pub fn drain_some(&self, buffers_max: usize) -> u64 {
        // What is queued meanwhile is left, because others may fill buffers as fast as one is
        // drained.
        let last = self.depot.lock().tail();
        self.drain_up_to(last, buffers_max, &*self.drain)
    }

    /// Drains everything that was pushed before, in buffers that are full or not, and waits for
    /// what another thread is draining. Returns how many values this one drained.
    ///
    /// # Panics
    ///
    /// As [`Queue::drain_some`].
    pub fn flush(&self) -> u64 {
        self.flush_by(&*self.drain)
    }

    /// As [`Queue::flush`], with another drain function: for an owner that is itself being dropped.
    ///
    /// # Panics
    ///
    /// As [`Queue::drain_some`].
    pub fn flush_with(&mut self, drain: impl Fn(&mut Values<'_, T>) + Send + Sync) -> u64 {
        self.flush_by(&drain)
    }

    fn flush_by(&self, drain: &(dyn Fn(&mut Values<'_, T>) + Send + Sync)) -> u64 {
        self.drain_up_to(self.queue_all(), usize::MAX, drain)
    }

    /// Drains up to so many buffers, until as many as `last` have been drained ever.
    fn drain_up_to(
        &self,
        last: u64,
        buffers_max: usize,
        drain: &(dyn Fn(&mut Values<'_, T>) + Send + Sync),
    ) -> u64 {
        let mut drained = 0;
        for _ in 0..buffers_max {
            let turn = self.turn.lock();
            // No other thread drains during the turn: what was queued is drained, or still there
            // (I2).
            if self.depot.lock().head() >= last {
                break;
            }
            drained += self.drain_one(&turn, drain).unwrap_or(0);
        }
        drained
    }

    /// Queues the shards' buffers. Returns how many buffers have been queued by then.
    fn queue_all(&self) -> u64 {
        let _turn = self.turn.lock();
        for shard in &self.shards {
            let buffer = std::mem::replace(&mut *shard.0.lock(), Buffer::NONE);
            if buffer.exists() {
                self.depot.lock().put(buffer);
            }
        }
        self.depot.lock().tail()
    }

    /// Drains the oldest buffer, in the caller's turn. Returns how many values it had.
    fn drain_one(
        &self,
        _turn: &RankedMutexGuard<'_, ()>,
        drain: &(dyn Fn(&mut Values<'_, T>) + Send + Sync),
    ) -> Option<u64> {
        let buffer = self.depot.lock().take()?;
        let values = buffer.len() as u64;
        let mut draining = Draining { queue: self, buffer };
        drain(&mut draining.buffer.values());
        assert!(draining.buffer.is_empty(), "a drain function takes all the values");
        Some(values)
    }

    /// Payload that is pending, in bytes; see [`Meters::pending_bytes`].
    pub fn pending_bytes(&self) -> u64 {
        self.load().bytes
    }

    /// Everything that the queue counts.
    pub fn meters(&self) -> Meters {
        let load = self.load();
        let depot = self.depot.lock();
        Meters {
            pending_values: load.values,
            pending_bytes: load.bytes,
            behind: load.since.map_or(Duration::ZERO, |since| since.elapsed()),
            // relaxed: a total.
            fallbacks: self.fallbacks.load(Ordering::Relaxed),
            drains: depot.head(),
            drained_values: depot.drained(),
            heap_bytes: self.heap_bytes,
        }
    }

    /// What is pending. The shards first: a buffer that is queued meanwhile counts twice, not
    /// never.
    fn load(&self) -> Load {
        let mut load = Load::default();
        self.shards.iter().for_each(|shard| load.add(shard.0.lock().load()));
        load.add(self.depot.lock().load());
        load
    }
}

/// The buffer being drained: back in the depot whatever becomes of the drain function.
struct Draining<'q, T> {
    queue: &'q Queue<T>,
    buffer: Buffer<T>,
}

impl<T> Drop for Draining<'_, T> {
    fn drop(&mut self) {
        let buffer = std::mem::replace(&mut self.buffer, Buffer::NONE);
        self.queue.depot.lock().finish(buffer);
    }
}

impl<T> Drop for Queue<T> {
    /// Drains what is pending. If the drain function panics, it is called again for the rest as
    /// long as it takes values at all. What it never takes is dropped with the queue. The first
    /// panic goes on once that is done, unless one is under way already.
    fn drop(&mut self) {
        let mut first = None;
        loop {
            let drained = self.depot.lock().drained();
            let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.flush_by(&*self.drain))) else {
                break;
            };
            first.get_or_insert(panic);
            if self.depot.lock().drained() == drained {
                break;
            }
        }
        if let Some(panic) = first.filter(|_| !std::thread::panicking()) {
            resume_unwind(panic);
        }
    }
}

impl<T> std::fmt::Debug for Queue<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("shards", &self.shards.len()).finish_non_exhaustive()
    }
}
