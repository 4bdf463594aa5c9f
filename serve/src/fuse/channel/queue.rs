//! The thread of one ring: it takes requests from its queues, and answers them or gives them away.
//!
//! ```text
//!                      quick, or little data in memory, or more if that is all there is
//!   ring --FuseEntry-----------------------------------> answered here --> ring
//!     ^          |- much data ----> workers                                  ^
//!     |          '- waits --------> waiters --> Back, and its bell ----------'
//!     '--- a new entry, if few are left that the kernel can fill
//! ```
//!
//! An entry that is given away cannot take another request until it is answered. So the thread adds
//! an entry to the queue when few are left. Requests that wait for a disk therefore do not keep
//! those behind them from coming in.
//!
//! A request that found no entry waits in the kernel. It gets the entry of the next answer, and no
//! new one. So for each request that is given away while few entries are left, the thread has the
//! kernel make a request of its own, which is answered at once.
//!
//! Invariants
//! - Q1. This thread answers by itself only what waits for nothing and works on little data, or on
//!   moderately much if it has nothing else to answer, and what is quick first. So a quick request
//!   is answered however long others take.
//! - Q2. Of each queue the kernel has an entry, or gets one as soon as this thread is done with
//!   what came. A request that would take the last one is refused if it waits. If requests wait in
//!   the kernel, each one that comes from there has the next one fetched: by its own answer, or by
//!   that of the kernel's own request.
//! - Q3. Only this thread submits to the ring. Others hand entries back through `Back`.
//!
//! Lock: one, a leaf, around the entries that come back.

use super::answering::{Files, Pace, never_wait_for_oneself, unwound};
use super::request::DATA_MAX;
use super::waiters::{self, Waiters};
use super::wire::{self, Body, Call};
use crate::doors::Meter;
use crate::terms::limits::IDLE_AFTER;
use host::unmodelled::RankedMutex;
use host::{Came, FuseEntry, FuseRing, Rank};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{self, Errno};
use std::collections::{BTreeSet, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// The most entries of a queue. The addresses of their buffers are reserved.
const ENTRIES_MAX: usize = 1024;
/// Entries that the kernel should have left in a queue when another one is given away, so that
/// requests seldom find none.
const LEFT_MIN: usize = 16;
/// Bytes of data after which finished answers are handed to the kernel.
const FLUSH_AFTER: usize = 64 << 10; // 64 KiB

/// What the threads of all rings share.
pub(super) struct Server {
    files: Arc<dyn Files>,
    workers: Waiters<Away>,
    waiters: Waiters<Away>,
    meter: Arc<Meter>,
    /// The most threads that work on much data.
    workers_max: usize,
}

/// A request that another thread answers.
struct Away {
    entry: FuseEntry,
    back: Arc<Back>,
}

/// The way of entries to the thread of their ring.
pub(super) struct Back {
    /// It can be read when there are entries.
    bell: OwnedFd,
    answered: RankedMutex<Vec<FuseEntry>>,
}

impl Back {
    pub(super) fn new() -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { bell, answered: RankedMutex::new(Rank::Leaf, Vec::new()) })
    }

    fn give(&self, entry: FuseEntry) {
        let mut answered = self.answered.lock();
        let is_first = answered.is_empty();
        answered.push(entry);
        drop(answered);
        if is_first {
            // The count cannot overflow, because it is read before the next first entry.
            let _ = io::write(&self.bell, &1_u64.to_ne_bytes());
        }
    }

    /// What came back. The bell rings for what comes later.
    fn take(&self) -> Vec<FuseEntry> {
        // Read before the entries are taken, so that it rings for any that are given afterwards.
        let _ = io::read(&self.bell, &mut [0; 8]);
        std::mem::take(&mut *self.answered.lock())
    }
}

impl Server {
    pub(super) fn new(files: Arc<dyn Files>, meter: Arc<Meter>, workers_max: usize) -> Self {
        let (workers, waiters) = (Waiters::new(workers_max), Waiters::new(waiters::THREADS_MAX));
        Self { files, workers, waiters, meter, workers_max }
    }

    /// Waits for all threads that requests were given to.
    pub(super) fn join(&self) {
        self.workers.join();
        self.waiters.join();
    }

    /// The most threads that work on much data.
    pub(super) fn workers_max(&self) -> usize {
        self.workers_max
    }

    fn pace(&self, entry: &FuseEntry) -> Pace {
        let (header, fields, data) = entry.request();
        match wire::parse_parts(header, fields, data) {
            Ok((caller, Ok(call))) => self.files.pace(&caller, &call),
            _ => Pace::Quick, // refused without being looked at further
        }
    }

    /// Puts the answer into the entry.
    fn answer(&self, entry: &mut FuseEntry, body: &mut Body) {
        let (header, fields, data) = entry.request();
        let Ok((caller, call)) = wire::parse_parts(header, fields, data) else { return };
        body.clear();
        let outcome = match call {
            Ok(Call::Read(range)) => {
                let buffer = entry.data(range.len.min(DATA_MAX as u64) as usize);
                unwound(|| self.files.read(&caller, &range, buffer))
            }
            Ok(call) => unwound(|| self.files.answer(&caller, &call, body)).map(|()| {
                let bytes = body.bytes();
                entry.data(bytes.len()).copy_from_slice(bytes);
                bytes.len()
            }),
            Err(errno) => Err(errno),
        };
        entry.set_answer(&wire::answer_header(caller.unique, outcome), outcome.unwrap_or(0));
    }

    /// One thread of `pool`, until the connection has ended.
    fn work(&self, pool: &Waiters<Away>) {
        never_wait_for_oneself();
        let mut body = Body::default();
        while let Some(Away { mut entry, back }) = pool.take() {
            self.answer(&mut entry, &mut body);
            back.give(entry);
        }
    }
}

fn refuse(entry: &mut FuseEntry, errno: Errno) {
    let (header, fields, data) = entry.request();
    if let Ok((caller, _)) = wire::parse_parts(header, fields, data) {
        entry.set_answer(&wire::answer_header(caller.unique, Err(errno)), 0);
    }
}

/// The entries of one queue.
#[derive(Clone, Copy, Debug, Default)]
struct Entries {
    all: usize,
    /// Those that other threads have.
    away: usize,
}

/// The thread of a ring.
pub(super) struct Thread {
    server: Arc<Server>,
    ring: FuseRing,
    back: Arc<Back>,
    /// By number of the queue. Queues of other threads have none here.
    queues: Vec<Entries>,
    /// The queues of this thread.
    own: BTreeSet<u16>,
    /// Entries that the kernel does not have yet.
    prepared: Vec<FuseEntry>,
    /// Requests for little data, which this thread answers next.
    short: VecDeque<FuseEntry>,
    /// Requests of its own that the kernel is to make next: by queue, and of a file that it knows.
    asks: Vec<(u16, u64)>,
    /// Why the last entry that is gone is gone.
    refused: Option<Errno>,
    /// Bytes that are counted for each entry, by its number.
    counted: Vec<usize>,
    /// Whether memory may be given back when nothing comes.
    holds_much: bool,
    /// Bytes of data of answers that the kernel does not have yet.
    unsent: usize,
    body: Body,
}

impl Thread {
    pub(super) fn new(server: Arc<Server>, ring: FuseRing, back: Arc<Back>) -> Self {
        Self {
            server,
            ring,
            back,
            queues: Vec::new(),
            own: BTreeSet::new(),
            prepared: Vec::new(),
            short: VecDeque::new(),
            asks: Vec::new(),
            refused: None,
            counted: Vec::new(),
            holds_much: false,
            unsent: 0,
            body: Body::default(),
        }
    }

    /// Prepares `depth` entries for each of some queues, and has the system show that this thread
    /// may use the ring.
    pub(super) fn prepare(&mut self, queues: &[u16], depth: usize) -> std::io::Result<()> {
        never_wait_for_oneself();
        self.ring.enable()?;
        self.ring.set_bell(self.back.bell.as_fd())?;
        self.ring.flush()?;
        let last = queues.iter().max().map_or(0, |&last| usize::from(last));
        self.queues = vec![Entries::default(); last + 1];
        for &queue in queues.iter().cycle().take(depth * queues.len()) {
            let entry = self.ring.entry(queue);
            self.prepared.push(entry.map_err(|_| std::io::ErrorKind::OutOfMemory)?);
        }
        Ok(())
    }

    /// Gives the kernel the prepared entries. It is an error if it refuses all of a queue: then no
    /// requests come here.
    pub(super) fn begin(&mut self) -> std::io::Result<()> {
        for entry in std::mem::take(&mut self.prepared) {
            self.queues[usize::from(entry.queue())].all += 1;
            self.own.insert(entry.queue());
            self.ring.register(entry)?;
        }
        self.ring.flush()?;
        self.look()?;
        let refused = self.own.iter().any(|&queue| self.queues[usize::from(queue)].all == 0);
        match self.refused {
            Some(errno) if refused => Err(errno.into()),
            _ => Ok(()),
        }
    }

    /// Serves until the connection has ended, or the system no longer lets this thread.
    pub(super) fn serve(mut self) {
        while self.queues.iter().any(|entries| entries.all > 0) {
            if self.round().is_err() {
                break;
            }
        }
        self.counted.drain(..).for_each(|counted| self.server.meter.replace(counted, 0));
    }

    /// Waits for something, and deals with all that came.
    fn round(&mut self) -> std::io::Result<()> {
        self.ring.wait(self.holds_much.then_some(IDLE_AFTER))?;
        if !self.look()? {
            self.rest();
        }
        Ok(())
    }

    /// Deals with all that came. False if that is nothing.
    fn look(&mut self) -> std::io::Result<bool> {
        self.unsent = 0;
        let mut came = false;
        loop {
            while let Some(next) = self.ring.came()? {
                came = true;
                match next {
                    Came::Request(entry) => self.take(entry)?,
                    Came::Over(queue, errno) => {
                        self.queues[usize::from(queue)].all -= 1;
                        self.refused = Some(errno);
                    }
                    Came::Bell => self.take_back()?,
                }
            }
            // Little data comes after all that is quick, and what came meanwhile is looked at.
            match self.short.pop_front() {
                Some(entry) => self.answer(entry)?,
                None => break,
            }
        }
        self.ask()?;
        Ok(came)
    }

    fn take(&mut self, mut entry: FuseEntry) -> std::io::Result<()> {
        self.count(&entry);
        match self.server.pace(&entry).among(self.short.len()) {
            Pace::Quick => self.answer(entry),
            Pace::Slow if self.leave_some(&entry) => self.give(entry, |server| &server.workers),
            Pace::Short | Pace::Moderate | Pace::Slow => {
                self.short.push_back(entry);
                Ok(())
            }
            Pace::Waiting if self.leave_some(&entry) => self.give(entry, |server| &server.waiters),
            Pace::Waiting => {
                refuse(&mut entry, Errno::NOMEM);
                self.send(entry)
            }
        }
    }

    fn answer(&mut self, mut entry: FuseEntry) -> std::io::Result<()> {
        self.server.answer(&mut entry, &mut self.body);
        self.send(entry)
    }

    /// Has another thread answer.
    fn give(
        &mut self,
        entry: FuseEntry,
        pool: fn(&Server) -> &Waiters<Away>,
    ) -> std::io::Result<()> {
        let (server, back) = (Arc::clone(&self.server), Arc::clone(&self.back));
        self.queues[usize::from(entry.queue())].away += 1;
        let work = move || server.work(pool(&server));
        match pool(&self.server).give(Away { entry, back }, work) {
            Ok(()) => Ok(()),
            Err(Away { mut entry, .. }) => {
                self.queues[usize::from(entry.queue())].away -= 1;
                refuse(&mut entry, Errno::NOMEM);
                self.send(entry)
            }
        }
    }

    /// Whether the kernel has entries of a queue left if one more is given away (Q2). If there are
    /// few, one is added, and the kernel will be asked to look for requests that wait.
    fn leave_some(&mut self, entry: &FuseEntry) -> bool {
        let queue = entry.queue();
        let Entries { all, away } = self.queues[usize::from(queue)];
        let left = all - away - 1;
        if left >= LEFT_MIN {
            return true;
        }
        // A thread waits for this answer, so the kernel does not forget the file before.
        self.asks.push((queue, entry.node()));
        let added = all < ENTRIES_MAX && self.add(queue);
        added || left > 0
    }

    /// Has the kernel make requests of its own, whose answers fetch what waits (Q2).
    fn ask(&mut self) -> std::io::Result<()> {
        if self.asks.is_empty() {
            return Ok(());
        }
        // The kernel has new entries from here on, and its requests find them.
        self.ring.flush()?;
        for (queue, node) in self.asks.drain(..) {
            // An error says that this thread may not run on the queue's CPU, or that the file
            // system is going. Then what waits there is fetched by the next answer.
            let _ = self.ring.ask(queue, node);
        }
        Ok(())
    }

    fn add(&mut self, queue: u16) -> bool {
        let Ok(entry) = self.ring.entry(queue) else { return false };
        let added = self.ring.register(entry).is_ok();
        self.queues[usize::from(queue)].all += usize::from(added);
        added
    }

    fn take_back(&mut self) -> std::io::Result<()> {
        for entry in self.back.take() {
            self.queues[usize::from(entry.queue())].away -= 1;
            self.count(&entry);
            self.send(entry)?;
        }
        self.ring.set_bell(self.back.bell.as_fd())
    }

    /// Hands an answer to the kernel, perhaps with others.
    fn send(&mut self, entry: FuseEntry) -> std::io::Result<()> {
        self.count(&entry);
        self.unsent += entry.touched();
        self.ring.answer(entry)?;
        if self.unsent >= FLUSH_AFTER {
            self.unsent = 0;
            self.ring.flush()?;
        }
        Ok(())
    }

    fn count(&mut self, entry: &FuseEntry) {
        let (number, touched) = (entry.number(), entry.touched());
        if self.counted.len() <= number {
            self.counted.resize(number + 1, 0);
        }
        let before = std::mem::replace(&mut self.counted[number], touched);
        if before != touched {
            self.server.meter.replace(before, touched);
        }
        self.holds_much |= touched > 0;
    }

    /// Gives back the memory that is held for the next requests, because none came.
    fn rest(&mut self) {
        let (counted, meter) = (&mut self.counted, &self.server.meter);
        self.ring.give_back(|number| {
            meter.replace(std::mem::take(&mut counted[number]), 0);
        });
        self.holds_much = false;
    }
}
