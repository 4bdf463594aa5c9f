//! The thread that serves faults, and that reads what the program does with its memory.
//!
//! ```text
//!   descriptor of the process -----> events, at once, in their order
//!   descriptors of its children -'   faults, as soon as there is room
//! ```
//!
//! A forked child has a copy of its parent's memory, in which pages are missing. Either it is an
//! heir and goes on with its copy of our memory too, or this thread brings in all that it misses.
//! Until then, threads that touch the gate wait. The fork handlers of parent and child do that.
//!
//! Invariants
//! - V1: an event is acted on before any fault that was read after it.
//! - V2: between the reading of an event and the change of the book nobody else has the state.
//! - V3: this thread waits for nobody who may wait for an event to be read.
//! - V4: while it waits it is at rest, and nothing that a child inherits is half done.
//!
//! Lock: the engine's state, for one event or one fault.

use super::awake::Awake;
use super::children::{CHILD_PAGES, Candidate, Child, FILTERED, Fate, page, wiped};
use super::passage::Passage;
use super::streaks::Streaks;
use crate::board::Slot;
use crate::floor::gate;
use crate::floor::still::{STILL, Who};
use crate::kernel::{Event, Fault, Fills, Uffd, lost};
use crate::places::{GROUP, Place, bits, page_in_group};
use crate::ways::{Came, Engine, State};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Pages that a child gets at a time, before others have their turn.
const TURN_PAGES: usize = 256;
/// How long to wait before a fault is tried again that had no room, or that met an event.
const RETRY_NANOS: libc::c_long = 50_000;
/// How long to wait for a thread that forks, and for its child.
const FORK_NANOS: libc::c_long = 1_000_000;

/// The server of one process.
pub(crate) struct Server<'a> {
    engine: &'a Engine,
    slot: &'a Slot,
    streaks: Streaks,
    waiting: Vec<Fault>,
    passage: Passage,
    candidate: Option<Candidate>,
    children: Vec<Child>,
    /// Pages whose threads are woken when this one is at rest.
    wakes: Vec<usize>,
    awake: Awake,
    /// What it waits for.
    fds: Vec<libc::pollfd>,
    /// The book waits for news, or for the moment in which none is on its way.
    awaits_news: bool,
    fills: Fills,
    events: Vec<Event>,
    buffer: Vec<u8>,
    /// Since when faults have waited for room.
    stalled: Option<Instant>,
}

impl<'a> Server<'a> {
    pub(crate) fn new(engine: &'a Engine, slot: &'a Slot) -> Server<'a> {
        Server {
            engine,
            slot,
            streaks: Default::default(),
            waiting: Vec::new(),
            passage: Passage::default(),
            candidate: None,
            children: Vec::new(),
            wakes: Vec::new(),
            awake: Awake::default(),
            fds: Vec::new(),
            awaits_news: false,
            fills: Fills::default(),
            events: Vec::new(),
            buffer: vec![0; GROUP],
            stalled: None,
        }
    }

    /// Serves for ever.
    pub(crate) fn run(&mut self) -> ! {
        loop {
            self.wait();
            let others_too = self.candidate.is_none() && self.passage.look();
            match self.candidate.take() {
                Some(candidate) => self.look_at(candidate),
                None => self.read_own(),
            }
            for child in 0..self.children.len() {
                self.read_child(child);
            }
            // While there is a candidate, the book does not change.
            if self.candidate.is_none() {
                self.serve_own(others_too);
            }
            for child in 0..self.children.len() {
                self.serve_child(child);
            }
            self.children.retain(|child| !child.ended);
        }
    }

    /// Waits until there is something to do. Faults that wait are tried again soon. While a fork
    /// goes on, nothing that a child inherits changes from here to the end.
    fn wait(&mut self) {
        let own = (&self.engine.uffd, self.candidate.is_none());
        let candidate = self.candidate.iter().map(|candidate| (&candidate.uffd, true));
        let children = self.children.iter().map(|child| (&child.uffd, true));
        let waited = std::iter::once(own).chain(candidate).chain(children);
        let pollfd = |uffd: &Uffd| libc::pollfd { fd: uffd.fd(), events: libc::POLLIN, revents: 0 };
        self.fds.clear();
        self.fds.extend(waited.filter(|&(_, asked)| asked).map(|(uffd, _)| pollfd(uffd)));
        let time = self.patience().map(|tv_nsec| libc::timespec { tv_sec: 0, tv_nsec });
        let limit = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let count = self.fds.len() as libc::nfds_t;
        STILL.rest(Who::Server);
        self.wakes.iter().for_each(|&address| self.engine.uffd.wake(address));
        // relaxed: a figure of a moment ago.
        let spare = self.engine.spare_cpus.load(Ordering::Relaxed);
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let fds = self.fds.as_mut_ptr();
        let may = || time.is_none() && spare > usize::from(STILL.seems_busy(Who::Pager));
        let gap = self.awake.wait(may, |sleeps| {
            let limit = if sleeps { limit } else { &raw const now };
            // SAFETY: the list is as long as the call is told, and the times live as long as it
            // runs.
            unsafe { libc::ppoll(fds, count, limit, std::ptr::null()) != 0 }
        });
        STILL.leave(Who::Server);
        if time.is_none() {
            self.awake.came(gap);
        }
        self.wakes.clear();
    }

    /// For how many nanoseconds to wait; `None` if there is no reason to look again.
    fn patience(&self) -> Option<libc::c_long> {
        let is_held = |fault: &Fault| self.passage.holds(fault);
        if !self.children.is_empty() {
            return Some(0);
        }
        if self.candidate.is_some() {
            return Some(FORK_NANOS);
        }
        if self.awaits_news || !self.waiting.iter().all(is_held) {
            return Some(RETRY_NANOS);
        }
        (!self.waiting.is_empty()).then_some(FORK_NANOS)
    }

    /// Reads what the kernel tells, and acts on it under the same hold of the state. The moment an
    /// event is read, the system moves pages again, and the pager must not see an older book.
    fn read_own(&mut self) {
        let engine = self.engine;
        let mut events = std::mem::take(&mut self.events);
        loop {
            let mut state = engine.urgent();
            let more = engine.uffd.read(&mut events);
            for event in events.drain(..) {
                self.act(&mut state, event);
            }
            if !more {
                self.act_on_the_rest(&mut state);
                break;
            }
        }
        self.events = events;
    }

    /// If no news is on its way, the book can take what has waited for more.
    fn act_on_the_rest(&mut self, state: &mut State) {
        if state.news.waits() {
            self.engine.take_last_news(state);
        }
        self.awaits_news = state.news.waits();
    }

    /// Acts on an event of this process.
    pub(super) fn act(&mut self, state: &mut State, event: Event) {
        if let Event::Fault(fault) = event {
            self.waiting.push(fault);
            return;
        }
        if let Some(candidate) = self.candidate.take() {
            // The book is about to change.
            self.give_all(state, candidate);
        }
        let is_calm = self.passage.is_calm();
        self.passage.news();
        match event {
            Event::Fault(_) => {}
            Event::Gone { range, unmapped: true } => {
                if state.news.ended(&state.book, &range, true) {
                    self.engine.forget(&mut state.book, &range, true);
                }
            }
            Event::Gone { range, unmapped: false } => {
                // A handler of a signal forks while its thread waits at the gate. That closes the
                // gate again, and an older fault there would open it.
                let pages = gate::closed().unwrap_or(0..0);
                let is_old = |it: usize| pages.contains(&it) && range.contains(&it);
                self.waiting.retain(|fault| !is_old(fault.address));
                if state.news.ended(&state.book, &range, false) {
                    self.engine.forget(&mut state.book, &range, false);
                }
                state.leaving.add(range);
            }
            Event::Moved { from, to, len } => {
                self.fills.moved(&self.engine.uffd, to);
                state.news.moved(from, to, len);
            }
            Event::Forked(uffd) => self.forked(state, Candidate::new(uffd), is_calm),
        }
        self.engine.take_news(state);
    }

    /// There is a child. It may be the heir of a fork that is calm.
    fn forked(&mut self, state: &mut State, candidate: Candidate, is_calm: bool) {
        state.trays.share();
        // relaxed: the pager looks at it now and then.
        self.engine.forks.fetch_add(1, Ordering::Relaxed);
        // A fork waits for the pager, except if that takes too long.
        let is_calm = is_calm && STILL.is_still(Who::Pager);
        if is_calm && self.children.is_empty() && !state.news.is_unsettled() {
            self.candidate = Some(candidate);
        } else {
            self.give_all(state, candidate);
        }
    }

    /// Serves a candidate, and finds out what it is.
    fn look_at(&mut self, mut candidate: Candidate) {
        let engine = self.engine;
        let mut state = engine.urgent();
        let fate = candidate.look(engine, &state, &mut self.events, &mut self.buffer);
        match fate {
            // News that is unread may be of a call that was made before the kernel copied the
            // memory.
            Fate::Heir if !engine.uffd.is_quiet() => self.give_all(&mut state, candidate),
            Fate::Heir if !candidate.release() => self.candidate = Some(candidate),
            Fate::Unknown => self.candidate = Some(candidate),
            Fate::Child => self.give_all(&mut state, candidate),
            Fate::Heir | Fate::Gone => {
                drop(candidate);
                self.passage.end();
            }
        }
    }

    /// A child gets all that it misses.
    fn give_all(&mut self, state: &mut State, candidate: Candidate) {
        self.engine.settle(state);
        let mut book = state.book.clone();
        wiped(self.engine).iter().for_each(|range| drop(book.forget(range)));
        let Candidate { uffd, waiting, news, .. } = candidate;
        self.children.push(Child { waiting, ..Child::new(self.engine, uffd, book) });
        let number = self.children.len() - 1;
        news.into_iter().for_each(|event| self.child_event(number, event));
        self.passage.end();
    }

    fn read_child(&mut self, number: usize) {
        let mut events = std::mem::take(&mut self.events);
        loop {
            let more = self.children[number].uffd.read(&mut events);
            for event in events.drain(..) {
                self.child_event(number, event);
            }
            if !more {
                break;
            }
        }
        self.events = events;
    }

    fn child_event(&mut self, number: usize, event: Event) {
        let child = &mut self.children[number];
        match event {
            Event::Fault(fault) if fault.is_guarded => child.uffd.unguard(&page(fault.address)),
            Event::Fault(fault) => child.waiting.push(fault.address),
            Event::Gone { range, unmapped } => {
                self.engine.forget(&mut child.book, &range, unmapped);
            }
            Event::Moved { from, to, len } => child.book.moved(from, to, len),
            Event::Forked(uffd) => {
                let grandchild = Child::new(self.engine, uffd, child.book.clone());
                self.children.push(grandchild);
            }
        }
    }

    /// Serves the faults of this process for which there is room. While a fork goes on, those of
    /// other threads wait, except if the thread that forks waits too.
    fn serve_own(&mut self, others_too: bool) {
        let waiting = std::mem::take(&mut self.waiting);
        for fault in waiting {
            let is_held = !others_too && self.passage.holds(&fault);
            if is_held || !self.may_come(fault.address) || !self.serve(&fault) {
                self.waiting.push(fault);
            }
        }
        self.time_stalls();
    }

    /// Whether a page may come now. The gate opens when no child waits for its memory, and a thread
    /// passes the threshold when nothing is under way that its child would not know of.
    fn may_come(&mut self, address: usize) -> bool {
        if gate::is(address) {
            return self.children.is_empty();
        }
        if gate::is_threshold(address) {
            self.passage.begin();
            let is_settled = !self.engine.urgent().news.is_unsettled();
            let is_quiet = is_settled && self.engine.uffd.is_quiet();
            return self.children.is_empty() && self.passage.calm(is_quiet);
        }
        // relaxed: figures of a moment ago; the pager keeps some room in reserve.
        let room = self.engine.room.load(Ordering::Relaxed);
        // While a thread is about to fork, the pager makes no room.
        room > 0 || STILL.asked() != 0
    }

    fn time_stalls(&mut self) {
        match (self.waiting.is_empty(), self.stalled) {
            (false, None) => {
                self.stalled = Some(Instant::now());
                self.engine.ring();
            }
            (true, Some(since)) => {
                self.stalled = None;
                let nanos = since.elapsed().as_nanos() as u64;
                // relaxed: a figure.
                self.slot.stall_ns.fetch_add(nanos, Ordering::Relaxed);
            }
            _ => {}
        }
    }

    /// Serves one fault of this process. False if it has to be tried again.
    fn serve(&mut self, fault: &Fault) -> bool {
        let (engine, address) = (self.engine, fault.address);
        if fault.is_guarded {
            self.unguard(address);
            return true;
        }
        if gate::is(address) || gate::is_threshold(address) {
            self.wakes.push(address);
            let page = gate::open_page();
            // SAFETY: nobody but the fork handlers looks at these pages.
            let put = || unsafe { engine.uffd.copy(address, page) };
            return ![libc::EAGAIN, libc::ENOMEM].contains(&engine.uffd.without_waking(put).errno);
        }
        let mut state = engine.urgent();
        let state = &mut *state;
        if state.news.is_unsettled() {
            return self.is_filled(state, fault);
        }
        let place = state.book.word(address).place();
        let walk = self.streaks.window(address);
        let came = if self.passage.is_on() {
            // The thread that forks goes on when this one is at rest.
            self.wakes.push(address);
            let bring = || engine.bring(state, address, walk.0, &mut self.buffer);
            engine.uffd.without_waking(bring)
        } else {
            engine.bring(state, address, walk.0, &mut self.buffer)
        };
        if came.pages == 0 {
            let is_filled = came.errno == libc::EAGAIN && self.is_filled(state, fault);
            return is_filled || self.refused(address, came.errno);
        }
        self.fills.came();
        state.list(address & !(GROUP - 1));
        // Others may have come, although the page that was touched did not.
        let done = came.pages & bits(page_in_group(address), 1) != 0;
        self.count(place, came, done);
        if done {
            self.streaks.came(walk, address, came.pages);
        }
        done || self.refused(address, came.errno)
    }

    /// A fault meets an event that is not read yet. True if its memory is left to the kernel until
    /// then.
    fn is_filled(&mut self, state: &State, fault: &Fault) -> bool {
        let is_whole = |range: &Range<usize>| state.book.out(range).next().is_none();
        self.fills.leave(&self.engine.uffd, (fault.thread, fault.address), is_whole)
    }

    /// A thread writes to a guarded page. There is room for the copies that this may be.
    fn unguard(&mut self, address: usize) {
        let engine = self.engine;
        let mut state = engine.urgent();
        // relaxed: a figure. It counts before the thread goes on, so that the thread can see it.
        self.slot.first_touches.fetch_add(1, Ordering::Relaxed);
        // relaxed: a figure of a moment ago.
        let room = engine.room.load(Ordering::Relaxed);
        let mut unguard = || engine.unguard(&mut state, address, room);
        let copies = if self.passage.is_on() {
            self.wakes.push(address);
            engine.uffd.without_waking(unguard)
        } else {
            unguard()
        };
        drop(state);
        // relaxed: a figure.
        engine.copied.fetch_add(u64::from(copies), Ordering::Relaxed);
        self.grown(u64::from(copies));
    }

    /// A page did not come. False if it has to be tried again.
    fn refused(&mut self, address: usize, errno: i32) -> bool {
        match errno {
            libc::EAGAIN | libc::ENOMEM => false,
            libc::EPERM | libc::EBADF | libc::ENOSYS => lost(FILTERED),
            _ => {
                // The page is there already, or its memory is gone.
                self.wakes.push(address);
                true
            }
        }
    }

    fn count(&self, place: Place, came: Came, done: bool) {
        let slot = self.slot;
        let (faults, pages_in) = match place {
            Place::Program | Place::Closed => (&slot.first_touches, 0),
            Place::Tray(..) => (&slot.staged_faults, 0),
            Place::Slot(_) => (&slot.stored_faults, u64::from(came.pages.count_ones())),
        };
        // relaxed: figures.
        faults.fetch_add(u64::from(done), Ordering::Relaxed);
        slot.pages_in.fetch_add(pages_in, Ordering::Relaxed);
        self.engine.put.fetch_add(came.grown as u64, Ordering::Relaxed);
        self.grown(came.grown as u64);
    }

    /// So many pages came. The pager corrects the room by what the system says.
    fn grown(&self, pages: u64) {
        const LOW: i64 = 128;
        let pages = pages as i64;
        // relaxed: a figure.
        let before = self.engine.room.fetch_sub(pages, Ordering::Relaxed);
        if before > LOW && before - pages <= LOW {
            self.engine.ring();
        }
    }

    /// Serves the faults of a child, and brings in some of what it misses.
    fn serve_child(&mut self, number: usize) {
        let child = &mut self.children[number];
        let (engine, buffer) = (self.engine, &mut self.buffer);
        child.serve(engine, buffer);
        let mut left = TURN_PAGES;
        while left > 0 && !child.ended {
            let Some((address, _)) = child.book.out(&(0..usize::MAX)).next() else {
                child.release();
                return;
            };
            if !child.bring(engine, address, CHILD_PAGES, buffer) {
                return;
            }
            left = left.saturating_sub(CHILD_PAGES);
        }
        if child.ended {
            let all = 0..usize::MAX;
            engine.forget(&mut child.book, &all, true);
        }
    }

    /// Frees what the server of a parent has in the memory of its heir.
    pub(super) fn abandon(self) {
        // The numbers of descriptors are those of the parent's table.
        let children = self.children.into_iter().map(|child| child.uffd);
        let candidate = self.candidate.into_iter().map(|candidate| candidate.uffd);
        children.chain(candidate).for_each(std::mem::forget);
    }
}
