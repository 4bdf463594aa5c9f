//! The thread of a queue: it takes requests off the ring, answers them, and tells the guest.
//!
//! ```text
//!   kick (guest) --.
//!   stop (us) -----+--> poll --> drain: request, answer, request, answer .. --> call (guest)
//!                        ^                                          |
//!                        '------------- nothing is left <-----------'
//! ```
//!
//! Invariants
//! - W1. One thread has a queue. It gives the queue back when it ends, with every request that it
//!   took answered. So where the queue stands is one number, and nothing is in flight.
//! - W2. Answers are told as soon as they make `TELL_AT` bytes, or when no request is left.
//! - W3. A ring that makes no sense ends its thread, and so does memory that is lost. The thread
//!   never waits for the guest except in `poll`, where a stop wakes it.
//!
//! Locks: the disk's.

use super::chain::Chain;
use super::memory::Memory;
use super::request::Desk;
use super::wire::ID_BYTES;
use crate::doors::{Buffer, Event, Meter, Observer, Peer};
use crate::terms::limits::{PAGE, PIECE, TELL_AT};
use disk::Disk;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use virtio_queue::{Error, Queue, QueueOwnedT, QueueT};

/// Tells a worker to end.
pub(super) struct Stop {
    told: AtomicBool,
    wake: OwnedFd,
}

/// What all queues of a frontend are served with.
pub(super) struct Service {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) id: [u8; ID_BYTES],
    pub(super) meter: Arc<Meter>,
    /// After so long without a request, the memory for data is given back.
    pub(super) idle_after: Duration,
    pub(super) observer: Observer,
    /// The frontend.
    pub(super) peer: Peer,
}

/// Events of one queue, which the frontend made.
#[derive(Clone)]
pub(super) struct Events {
    /// The guest writes to it when there are requests.
    pub(super) kick: Arc<OwnedFd>,
    /// Written to when there are answers; `None` if the guest looks by itself.
    pub(super) call: Option<Arc<OwnedFd>>,
    /// Written to when the ring makes no sense.
    pub(super) error: Option<Arc<OwnedFd>>,
}

/// What the thread of a queue works with.
pub(super) struct Worker {
    queue: Queue,
    memory: Arc<Memory>,
    service: Arc<Service>,
    events: Events,
    stop: Arc<Stop>,
    /// Where data is between the guest and the disk.
    piece: Buffer,
}

/// A queue that came back.
pub(super) struct Returned {
    pub(super) queue: Queue,
    /// Whether its ring cannot be served.
    pub(super) is_broken: bool,
}

impl Stop {
    pub(super) fn new() -> Result<Self, Errno> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { told: AtomicBool::new(false), wake })
    }

    /// Has the worker end after the request that it is at.
    pub(super) fn tell(&self) {
        // Release pairs with the Acquire in `is_told`, so that a worker that sees the flag sees
        // what led to it.
        self.told.store(true, Ordering::Release);
        notify(&self.wake);
    }

    fn is_told(&self) -> bool {
        // Acquire pairs with the Release in `tell`, so that a worker that sees the flag sees what
        // led to it.
        self.told.load(Ordering::Acquire)
    }
}

impl Worker {
    pub(super) fn new(
        queue: Queue,
        memory: Memory,
        service: Arc<Service>,
        events: Events,
        stop: Arc<Stop>,
    ) -> Self {
        let piece = Buffer::new(PIECE, Arc::clone(&service.meter));
        Self { queue, memory: Arc::new(memory), service, events, stop, piece }
    }

    /// Serves the queue until it is told to stop, or the ring makes no sense.
    pub(super) fn run(mut self) -> Returned {
        let mut chain = Chain::default();
        let broken = loop {
            match self.drain(&mut chain) {
                // A ring of zeros makes no sense, either, but that is not why.
                _ if self.memory.is_lost() => break Some("its memory is gone"),
                Err(error) => break Some(words(&error)),
                Ok(()) if self.stop.is_told() => break None,
                Ok(()) => {}
            }
            if let Err(why) = self.wait() {
                break Some(why);
            }
        };
        if let Some(why) = broken {
            self.events.error.iter().for_each(|error| notify(error));
            self.service.observer.tell(Event::Broken { peer: self.service.peer, why });
        }
        Returned { queue: self.queue, is_broken: broken.is_some() }
    }

    /// Answers what is on the ring.
    fn drain(&mut self, chain: &mut Chain) -> Result<(), Error> {
        let memory = Arc::clone(&self.memory);
        loop {
            self.queue.disable_notification(&memory.map)?;
            let mut untold = 0;
            while !self.stop.is_told() && !memory.is_lost() {
                let Some(answered) = self.answer_next(&memory, chain)? else { break };
                untold += answered;
                if untold >= TELL_AT {
                    self.tell(&memory)?;
                    untold = 0;
                }
            }
            self.tell(&memory)?;
            let more = self.queue.enable_notification(&memory.map)?;
            if !more || self.stop.is_told() || memory.is_lost() {
                return Ok(());
            }
        }
    }

    /// Answers the next request, and says how many bytes it was about. `None` if there is none.
    fn answer_next(&mut self, memory: &Memory, chain: &mut Chain) -> Result<Option<usize>, Error> {
        let Some(found) = self.queue.iter(&memory.map)?.next() else { return Ok(None) };
        let head = found.head_index();
        let service = &self.service;
        let (disk, id, piece) = (&*service.disk, &service.id, &mut self.piece);
        let mut desk = Desk { disk, memory, id, piece };
        let (bytes, got) = match chain.fill(found, self.queue.size()) {
            Ok(()) => (chain.readable.len() + chain.writable.len(), desk.answer(chain)),
            // There is no place for a status, so the guest gets its buffers back with nothing.
            Err(_) => (0, 0),
        };
        self.queue.add_used(&memory.map, head, got)?;
        Ok(Some(bytes as usize))
    }

    /// Tells the guest that there are answers, if it wants to know.
    fn tell(&mut self, memory: &Memory) -> Result<(), Error> {
        if self.queue.needs_notification(&memory.map)? {
            self.events.call.iter().for_each(|call| notify(call));
        }
        Ok(())
    }

    /// Waits for a kick or a stop.
    fn wait(&mut self) -> Result<(), &'static str> {
        let mut limit = (self.piece.touched() > PAGE).then_some(self.service.idle_after);
        loop {
            let mut events = [
                PollFd::new(&*self.events.kick, PollFlags::IN),
                PollFd::new(&self.stop.wake, PollFlags::IN),
            ];
            let time = limit.and_then(|limit| Timespec::try_from(limit).ok());
            match poll(&mut events, time.as_ref()) {
                Err(Errno::INTR) => {}
                Err(_) => return Err("its kick cannot be waited for"),
                Ok(0) => {
                    self.piece.give_back(PAGE);
                    limit = None;
                }
                Ok(_) if !events[1].revents().is_empty() => return Ok(()),
                Ok(_) => return take_kick(&self.events.kick),
            }
        }
    }
}

/// Takes the count of a kick, so that the next one is seen.
fn take_kick(kick: &OwnedFd) -> Result<(), &'static str> {
    match rustix::io::read(kick, &mut [0; 8]) {
        Ok(8) | Err(Errno::AGAIN | Errno::INTR) => Ok(()),
        _ => Err("its kick is no event"),
    }
}

/// Adds one to an event, if it takes that at once. The frontend may wait in it, so whether it
/// blocks is the frontend's choice. If it is full, the guest was told already.
fn notify(event: &OwnedFd) {
    let now = Timespec::default();
    let mut room = [PollFd::new(event, PollFlags::OUT)];
    if poll(&mut room, Some(&now)).is_ok() && room[0].revents().contains(PollFlags::OUT) {
        let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
    }
}

fn words(error: &Error) -> &'static str {
    match error {
        Error::InvalidAvailRingIndex => "it offers more requests than the ring has places",
        Error::InvalidDescriptorIndex => "a request begins outside of the table",
        _ => "its ring is not in the memory that is shared",
    }
}
