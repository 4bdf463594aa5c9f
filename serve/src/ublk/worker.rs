//! The thread of a queue: it fetches requests, answers them, and ends with the device.
//!
//! ```text
//!   fetch every tag --> told that all threads have --> wait --> request, answer, request, ..
//!                                                        ^                          |
//!                                                        '--- nothing is left <-----'
//!   stopped: every tag comes back as over --> ends
//! ```
//!
//! The thread is one that the kernel's writing of dirty pages may wait for (`IO_FLUSHER`). So it
//! does not itself wait for pages to be written when it allocates memory.
//!
//! Invariants
//! - A tag is answered before the thread waits, so a request is never forgotten.
//! - The thread ends when no tag is left, or its ring fails. Then the kernel answers with errors.
//!
//! Locks: the disk's.

use super::request::{Asked, OfKernel, answer};
use crate::doors::{Buffer, Meter};
use crate::terms::limits::{PAGE, PIECE};
use disk::Disk;
use host::{UblkCame, UblkDevice, UblkQueue};
use rustix::process::configure_io_flusher_behavior;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// What all queues of a device are served with.
pub(super) struct Service {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) meter: Arc<Meter>,
    /// After so long without a request, the memory for data is given back.
    pub(super) idle_after: Duration,
}

/// What the thread of a queue works with.
pub(super) struct Worker {
    queue: UblkQueue,
    service: Arc<Service>,
    /// Tags that the kernel has, or that are being answered.
    tags: usize,
    piece: Buffer,
}

impl Worker {
    /// Gives the kernel every tag of the queue. This thread serves it.
    pub(super) fn begin(
        device: UblkDevice,
        number: u16,
        depth: u16,
        service: Arc<Service>,
    ) -> io::Result<Worker> {
        // Without the right to this, which root of a container may lack, it is as before.
        let _ = configure_io_flusher_behavior(true);
        let mut queue = UblkQueue::new(device, number, depth)?;
        queue.fetch()?;
        let piece = Buffer::new(PIECE, Arc::clone(&service.meter));
        let mut worker = Worker { queue, service, tags: depth.into(), piece };
        // A tag that is refused comes back at once. Requests come only after the start.
        worker.answer_all()?;
        match worker.tags == usize::from(depth) {
            true => Ok(worker),
            false => Err(io::Error::other("the kernel refused the requests of a queue")),
        }
    }

    /// Serves until no tag is left.
    pub(super) fn run(mut self) -> io::Result<()> {
        while self.tags > 0 {
            let quiet = (self.piece.touched() > PAGE).then_some(self.service.idle_after);
            self.queue.wait(quiet)?;
            if !self.answer_all()? && quiet.is_some() {
                self.piece.give_back(PAGE);
            }
        }
        Ok(())
    }

    /// Answers all that came, and says whether anything has.
    fn answer_all(&mut self) -> io::Result<bool> {
        let mut came_any = false;
        while let Some(came) = self.queue.came() {
            came_any = true;
            let request = match came {
                UblkCame::Request(request) => request,
                UblkCame::Over(_) => {
                    self.tags -= 1;
                    continue;
                }
            };
            let data = OfKernel(&self.queue, &request);
            let result = answer(&*self.service.disk, Asked::from(&request), &data, &mut self.piece);
            self.queue.answer(request, result)?;
        }
        Ok(came_any)
    }
}
