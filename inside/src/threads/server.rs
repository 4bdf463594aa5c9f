//! The thread that serves faults, and that reads what the program does with its memory.
//!
//! ```text
//!   descriptor of the process -----> events, at once, in their order
//!   descriptors of its children -'   faults, as soon as there is room
//! ```
//!
//! A forked child has a copy of its parent's memory, in which pages are missing. This thread brings
//! all of them in. Then the child goes on as a process of its own. Until then, a thread that
//! touches the gate page waits. The fork handlers of parent and child do that.
//!
//! Invariants
//! - V1: an event is acted on before any fault that was read after it.
//! - V2: between the reading of an event and the change of the book nobody else has the state.
//! - V3: this thread waits for nobody who may wait for an event to be read.
//!
//! Lock: the engine's state, for one event or one fault.

use super::streaks::Streaks;
use crate::board::Slot;
use crate::floor::gate;
use crate::kernel::{Event, Uffd, lost};
use crate::places::{Book, GROUP, PAGE, Place, aligned, bits, page_in_group};
use crate::ways::{Came, Engine, State};
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Pages that a child gets at a time, before others have their turn.
const TURN_PAGES: usize = 256;
/// Pages that a child gets by one request.
const CHILD_PAGES: usize = 16;
/// How long to wait before a fault is tried again that had no room, or that met an event.
const RETRY_NANOS: libc::c_long = 50_000;

const FILTERED: &str = "a filter of system calls keeps its pages from coming back";

/// A child whose memory is not whole yet.
struct Child {
    uffd: Uffd,
    book: Book,
    /// Faults that wait.
    waiting: Vec<usize>,
    /// The child has gone.
    ended: bool,
}

/// The server of one process.
pub(crate) struct Server<'a> {
    engine: &'a Engine,
    slot: &'a Slot,
    streaks: Streaks,
    waiting: Vec<usize>,
    children: Vec<Child>,
    /// Moves of memory to places that are not free yet: from, to and length.
    postponed: Vec<(usize, usize, usize)>,
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
            children: Vec::new(),
            postponed: Vec::new(),
            events: Vec::new(),
            buffer: vec![0; GROUP],
            stalled: None,
        }
    }

    /// Serves for ever.
    pub(crate) fn run(&mut self) -> ! {
        loop {
            self.wait();
            self.read_own();
            for child in 0..self.children.len() {
                self.read_child(child);
            }
            self.serve_own();
            for child in 0..self.children.len() {
                self.serve_child(child);
            }
            self.children.retain(|child| !child.ended);
        }
    }

    /// Waits until there is something to do. Faults that wait are tried again soon.
    fn wait(&self) {
        let fds = std::iter::once(self.engine.uffd.fd())
            .chain(self.children.iter().map(|child| child.uffd.fd()));
        let mut fds: Vec<libc::pollfd> =
            fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
        let nanos = if self.children.is_empty() { RETRY_NANOS } else { 0 };
        let time = libc::timespec { tv_sec: 0, tv_nsec: nanos };
        let busy =
            !self.waiting.is_empty() || !self.children.is_empty() || !self.postponed.is_empty();
        let limit = if busy { &raw const time } else { std::ptr::null() };
        let count = fds.len() as libc::nfds_t;
        // SAFETY: the list is as long as the call is told, and the time lives as long as it runs.
        unsafe { libc::ppoll(fds.as_mut_ptr(), count, limit, std::ptr::null()) };
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

    /// If no news is on its way, the places are free, although the book does not know it.
    fn act_on_the_rest(&mut self, state: &mut State) {
        if self.postponed.is_empty() || !self.engine.uffd.is_quiet() {
            return;
        }
        for (from, to, len) in std::mem::take(&mut self.postponed) {
            self.engine.forget(&mut state.book, &(to..to + len), true);
            state.moved(from, to, len);
        }
        state.unsettled = false;
    }

    /// Two threads may tell of their calls in another order than that in which they made them. If
    /// memory came to a place that is taken by the book, the news that it has become free is on its
    /// way, and comes first. Until it is read, the system moves no page.
    fn act_on_postponed(&mut self, state: &mut State) {
        let is_free = |state: &State, &(_, to, len): &(usize, usize, usize)| {
            !state.book.is_any_registered(&(to..to + len))
        };
        while let Some(at) = self.postponed.iter().position(|moved| is_free(state, moved)) {
            let (from, to, len) = self.postponed.remove(at);
            state.moved(from, to, len);
        }
        state.unsettled = !self.postponed.is_empty();
    }

    /// Acts on an event of this process.
    pub(super) fn act(&mut self, state: &mut State, event: Event) {
        match event {
            Event::Fault(address) => self.waiting.push(address & !(PAGE - 1)),
            Event::Gone { range, unmapped: true } => {
                if state.is_gone(&range) {
                    self.engine.forget(&mut state.book, &range, true);
                }
            }
            Event::Gone { range, unmapped: false } => {
                self.engine.forget(&mut state.book, &range, false);
                state.leaving.add(range);
            }
            Event::Moved { from, to, len } => {
                state.left(from..from + len);
                self.postponed.push((from, to, len));
            }
            Event::Forked(uffd) => {
                self.engine.settle(state);
                let mut book = state.book.clone();
                let wiped = self.engine.resident.wiped();
                let Ok(wiped) = wiped else { lost("it is not known what a child must not have") };
                wiped.iter().for_each(|range| drop(book.forget(range)));
                self.children.push(self.child(uffd, book));
            }
        }
        self.act_on_postponed(state);
    }

    /// A child with a copy of a book, whose slots are shared by it from now on.
    fn child(&self, uffd: Uffd, book: Book) -> Child {
        for (_, word) in book.out(&(0..usize::MAX)) {
            if let Place::Slot(slot) = word.place() {
                self.engine.store.share(slot);
            }
        }
        Child { uffd, book, waiting: Vec::new(), ended: false }
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
            Event::Fault(address) => child.waiting.push(address & !(PAGE - 1)),
            Event::Gone { range, unmapped } => {
                self.engine.forget(&mut child.book, &range, unmapped);
            }
            Event::Moved { from, to, len } => child.book.moved(from, to, len),
            Event::Forked(uffd) => {
                let book = child.book.clone();
                let grandchild = self.child(uffd, book);
                self.children.push(grandchild);
            }
        }
    }

    /// Serves the faults of this process for which there is room.
    fn serve_own(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        for address in waiting {
            if !self.may_come(address) || !self.serve(address) {
                self.waiting.push(address);
            }
        }
        self.time_stalls();
    }

    /// Whether a page may come now. The gate opens when no child waits for its memory.
    fn may_come(&self, address: usize) -> bool {
        if gate::is(address) {
            return self.children.is_empty();
        }
        // relaxed: figures of a moment ago; the pager keeps some room in reserve.
        let room = self.engine.room.load(Ordering::Relaxed);
        room > 0 || self.engine.stuck.load(Ordering::Relaxed)
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
    fn serve(&mut self, address: usize) -> bool {
        if gate::is(address) {
            // SAFETY: nobody but the fork handlers looks at the gate.
            return unsafe { self.engine.uffd.copy(address, gate::open_page()) }.errno
                != libc::EAGAIN;
        }
        let engine = self.engine;
        let mut state = engine.urgent();
        let state = &mut *state;
        if state.unsettled {
            return false;
        }
        let place = state.book.word(address).place();
        let walk = self.streaks.window(address);
        let came = engine.bring(state, address, walk.0, &mut self.buffer);
        if came.pages == 0 {
            return self.refused(address, came.errno);
        }
        state.list(address & !(GROUP - 1));
        // Others may have come, although the page that was touched did not.
        let done = came.pages & bits(page_in_group(address), 1) != 0;
        self.count(place, came, done);
        if done {
            self.streaks.came(walk, address, came.pages);
        }
        done || self.refused(address, came.errno)
    }

    /// A page did not come. False if it has to be tried again.
    fn refused(&self, address: usize, errno: i32) -> bool {
        match errno {
            libc::EAGAIN | libc::ENOMEM => false,
            libc::EPERM | libc::EBADF | libc::ENOSYS => lost(FILTERED),
            _ => {
                // The page is there already, or its memory is gone.
                self.engine.uffd.wake(address);
                true
            }
        }
    }

    fn count(&self, place: Place, came: Came, done: bool) {
        let slot = self.slot;
        let (faults, pages_in) = match place {
            Place::Program => (&slot.first_touches, 0),
            Place::Tray(..) => (&slot.staged_faults, 0),
            Place::Slot(_) => (&slot.stored_faults, u64::from(came.pages.count_ones())),
        };
        // relaxed: figures. The pager corrects `room` by what the system says.
        faults.fetch_add(u64::from(done), Ordering::Relaxed);
        slot.pages_in.fetch_add(pages_in, Ordering::Relaxed);
        self.engine.put.fetch_add(came.grown as u64, Ordering::Relaxed);
        // relaxed: as above.
        let before = self.engine.room.fetch_sub(came.grown as i64, Ordering::Relaxed);
        const LOW: i64 = 128;
        if before > LOW && before - came.grown as i64 <= LOW {
            self.engine.ring();
        }
    }

    /// Serves the faults of a child, and brings in some of what it misses.
    fn serve_child(&mut self, number: usize) {
        let child = &mut self.children[number];
        let (engine, buffer) = (self.engine, &mut self.buffer);
        let waiting = std::mem::take(&mut child.waiting);
        for address in waiting {
            if gate::is(address) || !child.bring(engine, address, 1, buffer) {
                child.waiting.push(address);
            }
        }
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
}

impl Child {
    /// Brings a page in, and some after it. False if it has to be tried again.
    fn bring(&mut self, engine: &Engine, address: usize, window: usize, buffer: &mut [u8]) -> bool {
        let place = self.book.word(address).place();
        let (uffd, book) = (&self.uffd, &mut self.book);
        let came = match place {
            Place::Slot(_) => {
                let (group, page) = (address & !(GROUP - 1), page_in_group(address));
                let wanted = book.stored(group) & aligned(page, window);
                let came = engine.bring_stored(uffd, book, group, wanted, page, buffer);
                (came.pages & bits(page, 1), came.errno)
            }
            // Trays were emptied of what the child needs.
            Place::Program | Place::Tray(..) => {
                let progress = engine.bring_zero(uffd, address);
                (progress.pages as u64, progress.errno)
            }
        };
        if came.0 > 0 {
            return true;
        }
        match came.1 {
            libc::EAGAIN | libc::ENOMEM => false,
            libc::EPERM | libc::EBADF | libc::ENOSYS => lost(FILTERED),
            libc::ESRCH => {
                self.ended = true;
                true
            }
            _ => {
                self.uffd.wake(address);
                engine.forget(&mut self.book, &(address..address + PAGE), false);
                true
            }
        }
    }

    /// The child has all of its memory. Once its descriptor is closed, nothing of it is registered.
    fn release(&mut self) {
        if let Some(address) = gate::address() {
            // SAFETY: nobody but the fork handlers looks at the gate.
            unsafe { self.uffd.copy(address, gate::open_page()) };
        }
        self.ended = true;
    }
}
