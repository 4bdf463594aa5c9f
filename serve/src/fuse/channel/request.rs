//! Requests in their buffers. A buffer is filled from the device, kept for the next request, and
//! given back if none comes.
//!
//! ```text
//!   wait --ready--> receive --> answered from the same buffer --> wait
//!    '--- IDLE_AFTER without a request: the buffer gives back everything except one page
//! ```
//!
//! A thread waits for a request before it reads one, so that it notices if none comes. Each thread
//! has its own set of events with the device in it, and the kernel wakes one waiting thread.
//!
//! Invariants: one meter counts every buffer. At most `SPARE_MAX` buffers are kept unused, and none
//! after a thread was idle for `IDLE_AFTER`.
//!
//! Lock: one, a leaf, around the spare buffers.

use super::wire;
use crate::doors::{Buffer, Meter, NoMemory};
use crate::terms::limits::{IDLE_AFTER, PAGE};
use host::Rank;
use host::unmodelled::RankedMutex;
use rustix::event::{Timespec, epoll};
use rustix::io::{self, Errno};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The most bytes of data in one request.
pub(crate) const DATA_MAX: usize = 1 << 20; // 1 MiB
/// The most bytes of a request: its headers and its data.
pub(super) const REQUEST_MAX: usize = (wire::WRITE_HEADERS + DATA_MAX).next_multiple_of(PAGE);
/// Buffers kept for requests that are put aside.
const SPARE_MAX: usize = 4;
/// A buffer that holds no more than this is kept as it is.
const KEPT_MAX: usize = 16 << 10; // 16 KiB

/// A request as it came, in a buffer with room for any request.
#[derive(Debug)]
pub(super) struct Request {
    buffer: Buffer,
    len: usize,
}

impl Request {
    fn new(meter: &Arc<Meter>) -> Result<Self, NoMemory> {
        let mut buffer = Buffer::new(REQUEST_MAX, Arc::clone(meter));
        buffer.reserve()?;
        Ok(Self { buffer, len: 0 })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer.bytes()[..self.len]
    }

    /// The first `len` bytes, which data overwrites.
    pub(super) fn data(&mut self, len: usize) -> &mut [u8] {
        self.len = len;
        self.buffer.touch(len);
        &mut self.buffer.bytes_mut()[..len]
    }

    /// Reads the next request. The error is `AGAIN` if there is none now.
    pub(super) fn read(&mut self, device: &OwnedFd) -> Result<(), Errno> {
        self.len = 0;
        self.len = io::read(device, self.buffer.bytes_mut())?;
        self.buffer.touch(self.len);
        if self.len > 0 { Ok(()) } else { Err(Errno::NODEV) }
    }
}

/// All buffers of a connection.
#[derive(Debug)]
pub(super) struct Buffers {
    meter: Arc<Meter>,
    spare: RankedMutex<Vec<Request>>,
}

impl Buffers {
    /// No buffer yet.
    pub(super) fn new() -> Self {
        Self { meter: Arc::default(), spare: RankedMutex::new(Rank::Leaf, Vec::new()) }
    }

    /// What counts them. Other buffers of the connection are counted there too.
    pub(super) fn meter(&self) -> Arc<Meter> {
        Arc::clone(&self.meter)
    }

    /// Bytes held in all of them.
    pub(super) fn bytes(&self) -> usize {
        self.meter.bytes()
    }

    /// A buffer without a request.
    pub(super) fn take(&self) -> Result<Request, NoMemory> {
        let spare = self.spare.lock().pop();
        spare.map_or_else(|| Request::new(&self.meter), Ok)
    }

    /// Keeps the buffer of an answered request, or drops it. The caller waits for a request or
    /// answers one afterwards, so `rest` is called in the end.
    pub(super) fn keep(&self, request: Request) {
        let mut spare = self.spare.lock();
        if spare.len() < SPARE_MAX {
            spare.push(request);
        }
    }

    /// Gives back the memory that is held for the next requests, because none came.
    fn rest(&self, own: &mut Request) {
        own.buffer.give_back(PAGE);
        drop(std::mem::take(&mut *self.spare.lock()));
    }

    fn has_spare(&self) -> bool {
        !self.spare.lock().is_empty()
    }
}

/// How one thread waits for requests.
pub(super) struct Waiting {
    events: OwnedFd,
}

impl Waiting {
    /// For requests of a device whose reads do not block.
    pub(super) fn new(device: &OwnedFd) -> io::Result<Self> {
        let events = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE;
        epoll::add(&events, device, epoll::EventData::new_u64(0), flags)?;
        Ok(Self { events })
    }

    /// The next request. `None` if there will be none.
    pub(super) fn receive(
        &self,
        device: &OwnedFd,
        request: &mut Request,
        buffers: &Buffers,
    ) -> Option<()> {
        loop {
            match request.read(device) {
                Ok(()) => return Some(()),
                Err(Errno::AGAIN) => self.wait(request, buffers).ok()?,
                // The read was interrupted, or the caller took the request back.
                Err(Errno::INTR | Errno::NOENT) => {}
                Err(_) => return None,
            }
        }
    }

    /// Waits until there may be a request.
    fn wait(&self, request: &mut Request, buffers: &Buffers) -> io::Result<()> {
        let holds_much = request.buffer.touched() > KEPT_MAX || buffers.has_spare();
        let timeout = Timespec::try_from(IDLE_AFTER).ok().filter(|_| holds_much);
        let mut event = [MaybeUninit::uninit()];
        match epoll::wait(&self.events, &mut event, timeout.as_ref()) {
            Ok(([], _)) => buffers.rest(request),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
