//! Forked children that need their parent still.
//!
//! ```text
//!   candidate    nobody knows yet what it needs. The book stays as it was when the kernel copied
//!                the memory, and pages come by it, one by one
//!     touches the gate          --> heir: it goes on with its copy of our memory, by itself
//!     touches the plea, or has
//!     news, or is late          --> child: with a copy of the book
//!   child        it gets all that it misses; then it begins anew
//! ```
//!
//! Invariant: while there is a candidate, the book does not change. Lock: the engine's state.

use crate::floor::gate;
use crate::kernel::{Event, Progress, Uffd, lost};
use crate::places::{Book, GROUP, PAGE, Place, aligned, bits, page_in_group};
use crate::ways::{Engine, State};
use std::ops::Range;
use std::time::{Duration, Instant};

/// Pages that a child gets by one request.
pub(super) const CHILD_PAGES: usize = 16;
/// How long a candidate may take to come to the gate.
const PATIENCE: Duration = Duration::from_millis(200);

pub(super) const FILTERED: &str = "a filter of system calls keeps its pages from coming back";

/// A child of which it is not known what it needs.
pub(super) struct Candidate {
    pub(super) uffd: Uffd,
    since: Instant,
    /// Faults that wait, those at the gate and the plea among them.
    pub(super) waiting: Vec<usize>,
    /// News of its memory, which nobody has acted on.
    pub(super) news: Vec<Event>,
    /// Pages that it got, of which its own book says that they are out.
    early: Vec<usize>,
    /// What it must not have, once that was asked.
    wiped: Option<Vec<Range<usize>>>,
}

/// What a candidate turns out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Unknown,
    Heir,
    Child,
    Gone,
}

impl Candidate {
    pub(super) fn new(uffd: Uffd) -> Candidate {
        Candidate {
            uffd,
            since: Instant::now(),
            waiting: Vec::new(),
            news: Vec::new(),
            early: Vec::new(),
            wiped: None,
        }
    }

    /// Reads what the candidate wants, and serves it. `events` is empty, and has room.
    pub(super) fn look(
        &mut self,
        engine: &Engine,
        state: &State,
        events: &mut Vec<Event>,
        buffer: &mut [u8],
    ) -> Fate {
        while self.uffd.read(events) {}
        for event in events.drain(..) {
            match event {
                Event::Fault(fault) if fault.is_guarded => self.uffd.unguard(&page(fault.address)),
                Event::Fault(fault) => self.waiting.push(fault.address),
                news => self.news.push(news),
            }
        }
        let is_late = self.since.elapsed() > PATIENCE;
        if !self.news.is_empty() || is_late || self.waiting.iter().any(|&it| gate::is_plea(it)) {
            return Fate::Child;
        }
        if self.waiting.iter().any(|&address| gate::is(address)) {
            let fits = self.early.len() <= gate::EARLY_MAX;
            return if fits { Fate::Heir } else { Fate::Child };
        }
        for address in std::mem::take(&mut self.waiting) {
            let progress = self.bring(engine, state, address, buffer);
            match progress.errno {
                0 => {}
                libc::EAGAIN | libc::ENOMEM => self.waiting.push(address),
                libc::EPERM | libc::EBADF | libc::ENOSYS => lost(FILTERED),
                libc::ESRCH => return Fate::Gone,
                _ => self.uffd.wake(address),
            }
        }
        Fate::Unknown
    }

    /// Puts a page in its place. The book stays as it is.
    fn bring(
        &mut self,
        engine: &Engine,
        state: &State,
        address: usize,
        buffer: &mut [u8],
    ) -> Progress {
        let place = state.book.word(address).place();
        let page = match place {
            Place::Program | Place::Closed => return engine.bring_zero(&self.uffd, address),
            _ if self.is_wiped(engine, address) => return engine.bring_zero(&self.uffd, address),
            // SAFETY: the word says that the page is there, and the pager rests.
            Place::Tray(tray, place) => unsafe { state.trays.pages(tray, place, 1) },
            Place::Slot(slot) => {
                let read = engine.store.read(slot, &mut buffer[..PAGE]);
                read.unwrap_or_else(|why| lost(why));
                &buffer[..PAGE]
            }
        };
        // SAFETY: the bytes are the page's own, by its word.
        let progress = unsafe { self.uffd.copy(address, page) };
        self.early.extend((progress.pages == 1).then_some(address));
        progress
    }

    fn is_wiped(&mut self, engine: &Engine, address: usize) -> bool {
        let wiped = self.wiped.get_or_insert_with(|| wiped(engine));
        wiped.iter().any(|range| range.contains(&address))
    }

    /// The candidate goes on by itself. When the descriptor is closed, nothing of it is registered
    /// any more, and its thread looks at the gate again. False if that cannot be yet.
    pub(super) fn release(&self) -> bool {
        let Some(address) = gate::address() else { return false };
        let page = gate::heirs_page(&self.early);
        let bytes: Vec<u8> = page.iter().flat_map(|word| word.to_ne_bytes()).collect();
        // SAFETY: nobody but the fork handlers looks at the gate.
        let progress = self.uffd.without_waking(|| unsafe { self.uffd.copy(address, &bytes) });
        ![libc::EAGAIN, libc::ENOMEM].contains(&progress.errno)
    }
}

/// The page at an address.
pub(super) fn page(address: usize) -> Range<usize> {
    address..address + PAGE
}

/// Memory that a child must not have.
pub(super) fn wiped(engine: &Engine) -> Vec<Range<usize>> {
    let wiped = engine.resident.wiped();
    wiped.unwrap_or_else(|_| lost("it is not known what a child must not have"))
}

/// A child whose memory is not whole yet.
pub(super) struct Child {
    pub(super) uffd: Uffd,
    pub(super) book: Book,
    /// Faults that wait.
    pub(super) waiting: Vec<usize>,
    /// The child has gone.
    pub(super) ended: bool,
}

impl Child {
    /// A child with a copy of a book, whose slots are shared by it from now on.
    pub(super) fn new(engine: &Engine, uffd: Uffd, book: Book) -> Child {
        for (_, word) in book.out(&(0..usize::MAX)) {
            if let Place::Slot(slot) = word.place() {
                engine.store.share(slot);
            }
        }
        Child { uffd, book, waiting: Vec::new(), ended: false }
    }

    /// Serves the faults that wait, except those at gate and plea, which are the last.
    pub(super) fn serve(&mut self, engine: &Engine, buffer: &mut [u8]) {
        for address in std::mem::take(&mut self.waiting) {
            let is_last = gate::is(address) || gate::is_plea(address);
            if is_last || !self.bring(engine, address, 1, buffer) {
                self.waiting.push(address);
            }
        }
    }

    /// Brings a page in, and some after it. False if it has to be tried again.
    pub(super) fn bring(
        &mut self,
        engine: &Engine,
        address: usize,
        window: usize,
        buffer: &mut [u8],
    ) -> bool {
        let place = self.book.word(address).place();
        let (uffd, book) = (&self.uffd, &mut self.book);
        let came = match place {
            Place::Slot(_) => {
                let (group, page) = (address & !(GROUP - 1), page_in_group(address));
                let wanted = book.stored(group) & aligned(page, window);
                let came =
                    engine.bring_stored(uffd, book, group, wanted, page, buffer, |_, slot| {
                        engine.store.give_back(slot)
                    });
                (came.pages & bits(page, 1), came.errno)
            }
            // Trays were emptied of what the child needs.
            Place::Program | Place::Tray(..) | Place::Closed => {
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
    /// It has not ended if the system does not take the pages yet.
    pub(super) fn release(&mut self) {
        for address in [gate::address(), gate::plea()].into_iter().flatten() {
            // SAFETY: nobody but the fork handlers looks at these pages.
            let progress = unsafe { self.uffd.copy(address, gate::open_page()) };
            if [libc::EAGAIN, libc::ENOMEM].contains(&progress.errno) {
                return;
            }
        }
        self.ended = true;
    }
}
