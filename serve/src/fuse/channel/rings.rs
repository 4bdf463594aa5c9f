//! The rings of a connection: how many there are, and the threads that serve them.
//!
//! ```text
//!   greeting offers it -> prepare: rings, threads -> greeting answered -> begin: entries
//!                            | refused: /dev/fuse          ring ready: requests come here
//! ```
//!
//! The kernel has a queue for each possible CPU. Each CPU that this process may use has two threads
//! with a ring each, and both have a few entries of its queue. Queues of other CPUs are spread over
//! the same threads. A thread runs where the system puts it. Kept on its CPU, it would take turns
//! with the one program that it serves.
//!
//! The kernel copies the data of a request in the thread whose entry it is. So each thread
//! compresses what it has in its caches, and of what one program asks for two threads do some.
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

/// The most bytes of data of a request by io_uring. A thread answers these one after the other.
pub(crate) const RING_DATA_MAX: usize = 256 << 10; // 256 KiB
/// Threads that share the queues of a CPU.
const TOGETHER: usize = 2;
/// The most CPUs with threads of their own. Beyond that, several share them.
const CPUS_MAX: usize = 64;

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
        for queues in shares(queues, &cpus).iter().flat_map(|share| [share; TOGETHER]) {
            // Threads that were started for nothing end when `prepared` is dropped.
            prepared.add(device, queues.clone(), told.clone()).map_err(NoRing::Refused)?;
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

/// The queues of the threads of each CPU.
fn shares(queues: u16, cpus: &[usize]) -> Vec<Vec<u16>> {
    let threads = cpus.len().min(CPUS_MAX);
    let mut shares = vec![Vec::new(); threads];
    for queue in 0..queues {
        let of_cpu = cpus.iter().position(|&cpu| cpu == usize::from(queue));
        shares[of_cpu.unwrap_or(usize::from(queue)) % threads].push(queue);
    }
    shares.retain(|share| !share.is_empty());
    shares
}

/// Entries of a queue that each of its threads has from the start. It gets more if some wait for a
/// disk. The kernel takes the entry that was used last, so with more of them one thread would have
/// all the requests of a program.
fn depth(queues: usize) -> usize {
    const MANY: usize = 16;
    if queues <= MANY { 4 } else { 2 }
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
        assert_eq!(many.len(), CPUS_MAX);
        let mut queues = many.concat();
        queues.sort_unstable();
        assert_eq!(queues, (0..256).collect::<Vec<_>>());
    }
}
