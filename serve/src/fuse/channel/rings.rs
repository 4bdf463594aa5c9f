//! The rings of a connection: how many there are, and the threads that serve them.
//!
//! ```text
//!   greeting offers it -> prepare: rings, threads -> greeting answered -> begin: entries
//!                            | refused: /dev/fuse          ring ready: requests come here
//! ```
//!
//! The kernel has a queue for each possible CPU. Each CPU that this process may use has a thread
//! with a ring. Queues of other CPUs are spread over the same threads. A thread runs where the
//! system puts it. Kept on its CPU, it would take turns with the one program that it serves.
//!
//! Invariant: everything that may be refused is asked before the greeting is answered. From then
//! on, the kernel holds requests back until each queue has an entry.
//!
//! Locks: none here.

use super::answering::Files;
use super::queue::{Back, Server, Thread};
use super::way::NoRing;
use crate::doors::Meter;
use host::{FuseRing, cpu};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// The most bytes of data of a request by io_uring. Larger ones would be copied by one CPU and
/// compressed by another one, which has none of it in its caches.
pub(crate) const RING_DATA_MAX: usize = 256 << 10; // 256 KiB
/// The most threads. Beyond that, several CPUs share one.
const THREADS_MAX: usize = 64;

/// Threads that serve rings.
pub(super) struct Rings {
    server: Arc<Server>,
    threads: Vec<JoinHandle<()>>,
    queues: usize,
}

/// Rings that are ready, and threads that wait for the greeting to be answered.
pub(super) struct Prepared {
    rings: Rings,
    go: Vec<Sender<()>>,
    begun: Receiver<io::Result<()>>,
    data: usize,
}

impl Rings {
    /// Makes rings and threads. An entry has room for `data` bytes.
    pub(super) fn prepare(
        device: &OwnedFd,
        files: Arc<dyn Files>,
        meter: Arc<Meter>,
        data: usize,
    ) -> Result<Prepared, NoRing> {
        let cpus = cpu::allowed();
        let unknown = || io::Error::other("the number of CPUs is not known");
        let queues = cpu::possible().filter(|_| !cpus.is_empty());
        let queues = queues.and_then(|queues| u16::try_from(queues).ok());
        let queues = queues.ok_or_else(unknown).map_err(NoRing::Refused)?;
        let server = Arc::new(Server::new(files, meter, cpus.len()));
        let rings = Rings { server, threads: Vec::new(), queues: usize::from(queues) };
        let (told, begun) = channel();
        let mut prepared = Prepared { rings, go: Vec::new(), begun, data };
        for queues in shares(queues, &cpus) {
            // Threads that were started for nothing end when `prepared` is dropped.
            prepared.add(device, queues, told.clone()).map_err(NoRing::Refused)?;
        }
        Ok(prepared)
    }

    /// Waits until the connection has ended and every request is answered.
    pub(super) fn join(self) {
        for thread in self.threads {
            // A thread that panicked left its requests unanswered.
            let _ = thread.join();
        }
        self.server.join();
    }

    /// The number of queues.
    pub(super) fn queues(&self) -> usize {
        self.queues
    }

    /// The most threads that work on data.
    pub(super) fn threads(&self) -> usize {
        self.threads.len() + self.server.workers_max()
    }
}

impl Prepared {
    fn add(
        &mut self,
        device: &OwnedFd,
        queues: Vec<u16>,
        begun: Sender<io::Result<()>>,
    ) -> io::Result<()> {
        let ring = FuseRing::new(device.as_fd(), self.data)?;
        let (back, server) = (Arc::new(Back::new()?), Arc::clone(&self.rings.server));
        let depth = depth(self.rings.queues);
        let (go, told) = channel();
        let (ready, is_ready) = channel();
        let work = move || {
            let mut thread = Thread::new(server, ring, back);
            let prepared = thread.prepare(&queues, depth);
            let failed = prepared.is_err();
            let _ = ready.send(prepared);
            if failed || told.recv().is_err() {
                return;
            }
            let _ = begun.send(thread.begin());
            // Some entries may be with the kernel in any case.
            thread.serve();
        };
        self.rings.threads.push(host::thread::spawn("fuse-ring", work)?);
        self.go.push(go);
        let ended = |_| io::Error::other("a thread has ended");
        is_ready.recv().map_err(ended)?
    }

    /// Gives the kernel all entries. The greeting was answered. If the kernel refuses all of a
    /// queue, requests come by the device, and the second part says why.
    pub(super) fn begin(self) -> (Rings, Option<NoRing>) {
        for go in &self.go {
            let _ = go.send(());
        }
        // One answer for each thread. A thread that ended without one has dropped its end.
        let answers = self.begun.iter().take(self.go.len());
        let refused = answers.filter_map(Result::err).last().map(NoRing::Refused);
        (self.rings, refused)
    }
}

/// The queues of each thread.
fn shares(queues: u16, cpus: &[usize]) -> Vec<Vec<u16>> {
    let threads = cpus.len().min(THREADS_MAX);
    let mut shares = vec![Vec::new(); threads];
    for queue in 0..queues {
        let of_cpu = cpus.iter().position(|&cpu| cpu == usize::from(queue));
        shares[of_cpu.unwrap_or(usize::from(queue)) % threads].push(queue);
    }
    shares.retain(|share| !share.is_empty());
    shares
}

/// Entries that a queue has from the start. It gets more if some wait for a disk.
fn depth(queues: usize) -> usize {
    const MANY: usize = 16;
    if queues <= MANY { 64 } else { 4 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_queue_is_served_once_and_each_cpu_has_a_thread() {
        assert_eq!(shares(2, &[0, 1]), [[0], [1]]);
        assert_eq!(shares(4, &[1, 3]), [vec![0, 1, 2], vec![3]]);
        assert_eq!(shares(1, &[0, 1]), [[0]], "a thread without a queue is none");
        let cpus: Vec<usize> = (0..200).collect();
        let many = shares(256, &cpus);
        assert_eq!(many.len(), THREADS_MAX);
        let mut queues = many.concat();
        queues.sort_unstable();
        assert_eq!(queues, (0..256).collect::<Vec<_>>());
    }
}
