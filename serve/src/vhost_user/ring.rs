//! One queue, as the frontend sets it up: it runs when all of it is there.
//!
//! ```text
//!             every part is there, resume()
//!    at rest ------------------------------> running: a Worker has the queue
//!       ^                                        |
//!       '------------ pause(): joined -----------'
//! ```
//!
//! Invariant: nothing of a queue changes while a worker has it. The connection's thread pauses it
//! first, which takes as long as one request.
//!
//! Locks: none.

use super::memory::Regions;
use super::worker::{Events, Returned, Service, Stop, Worker};
use crate::terms::limits::VHOST_QUEUE_SIZE_MAX;
use rustix::io::ioctl_fionbio;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use virtio_queue::{Queue, QueueT};
use vm_memory::GuestAddress;

/// Addresses of the guest.
pub(super) struct Table {
    pub(super) descriptors: u64,
    pub(super) available: u64,
    pub(super) used: u64,
}

/// A queue and what belongs to it.
pub(super) struct Ring {
    /// `None` while a worker has it.
    queue: Option<Queue>,
    addressed: bool,
    enabled: bool,
    kick: Option<Arc<OwnedFd>>,
    call: Option<Arc<OwnedFd>>,
    /// Written to when the ring makes no sense.
    error: Option<Arc<OwnedFd>>,
    running: Option<Running>,
    /// Its ring made no sense, until it is placed again.
    is_broken: bool,
}

struct Running {
    stop: Arc<Stop>,
    thread: JoinHandle<Returned>,
}

impl Ring {
    pub(super) fn new() -> Self {
        Self {
            queue: Queue::new(VHOST_QUEUE_SIZE_MAX).ok(),
            addressed: false,
            enabled: false,
            kick: None,
            call: None,
            error: None,
            running: None,
            is_broken: false,
        }
    }

    /// Takes the queue back from its worker.
    pub(super) fn pause(&mut self) {
        let Some(running) = self.running.take() else { return };
        running.stop.tell();
        match running.thread.join() {
            Ok(returned) => {
                self.queue = Some(returned.queue);
                self.is_broken = returned.is_broken;
            }
            // A disk that panicked has taken the queue with it, and this ring cannot run again.
            Err(_) => self.is_broken = true,
        }
    }

    /// Gives the queue to a worker if all parts are there.
    pub(super) fn resume(&mut self, regions: &Regions, service: &Arc<Service>) -> io::Result<()> {
        let ready = self.addressed && self.enabled && !self.is_broken;
        let (true, Some(kick)) = (ready, &self.kick) else { return Ok(()) };
        let Some(mut queue) = self.queue.take() else { return Ok(()) };
        let memory = regions.memory().clone();
        queue.set_ready(true);
        if !queue.is_valid(&memory.map) {
            // Its memory may be on its way, because regions come one by one.
            self.queue = Some(queue);
            return Ok(());
        }
        let stop = Arc::new(Stop::new()?);
        let (call, error) = (self.call.clone(), self.error.clone());
        let events = Events { kick: Arc::clone(kick), call, error };
        let worker = Worker::new(queue, memory, Arc::clone(service), events, Arc::clone(&stop));
        let thread = host::thread::spawn("vhost-user", move || worker.run())?;
        self.running = Some(Running { stop, thread });
        Ok(())
    }

    /// Whether a worker serves it.
    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// The number of the next request.
    pub(super) fn base(&self) -> u16 {
        self.queue.as_ref().map_or(0, Queue::next_avail)
    }

    /// Stops the ring until it is set up again.
    pub(super) fn end(&mut self) {
        (self.kick, self.call, self.addressed, self.is_broken) = (None, None, false, false);
    }

    pub(super) fn enable(&mut self, enabled: bool) {
        self.enabled = enabled;
    }

    /// Sets the number of places. False if it is none that a ring can have.
    pub(super) fn resize(&mut self, size: u32) -> bool {
        let valid = size.is_power_of_two() && size <= u32::from(VHOST_QUEUE_SIZE_MAX);
        if let (true, Some(queue)) = (valid, &mut self.queue) {
            queue.set_size(size as u16);
        }
        valid
    }

    pub(super) fn start_at(&mut self, base: u16) {
        self.queue.iter_mut().for_each(|queue| queue.set_next_avail(base));
    }

    pub(super) fn watch_events(&mut self, on: bool) {
        self.queue.iter_mut().for_each(|queue| queue.set_event_idx(on));
    }

    /// Sets where the ring is. False if it is not aligned, or not in the memory.
    pub(super) fn place(&mut self, table: &Table, regions: &Regions) -> bool {
        let memory = &regions.memory().map;
        let Some(queue) = &mut self.queue else { return false };
        let aligned = queue.try_set_desc_table_address(GuestAddress(table.descriptors)).is_ok()
            && queue.try_set_avail_ring_address(GuestAddress(table.available)).is_ok()
            && queue.try_set_used_ring_address(GuestAddress(table.used)).is_ok();
        queue.set_ready(true);
        self.addressed = aligned && queue.is_valid(memory);
        self.is_broken = false;
        // relaxed: the guest waits for this server, and changes nothing. Its count of answers goes
        // on where it is, like with QEMU's own servers.
        let used = queue.used_idx(memory, Ordering::Relaxed);
        match used {
            Ok(used) if self.addressed => queue.set_next_used(used.0),
            _ => self.addressed = false,
        }
        self.addressed
    }

    pub(super) fn kicked_by(&mut self, file: Option<File>) -> io::Result<()> {
        let kick = file.map(OwnedFd::from);
        // Nobody but the server waits in it, so the frontend does not notice.
        kick.as_ref().map_or(Ok(()), |kick| ioctl_fionbio(kick, true))?;
        self.kick = kick.map(Arc::new);
        Ok(())
    }

    pub(super) fn called_by(&mut self, file: Option<File>) {
        self.call = file.map(|file| Arc::new(file.into()));
    }

    pub(super) fn errors_to(&mut self, file: Option<File>) {
        self.error = file.map(|file| Arc::new(file.into()));
    }
}
