//! The rings of a connection: how many there are, and the threads that serve them.
//!
//! ```text
//!   greeting offers it -> prepare: rings, threads -> greeting answered -> begin: entries
//!                            | refused: /dev/fuse          ring ready: requests come here
//! ```
//!
//! The kernel has a queue for each possible CPU. Each CPU that this process may use has a thread,
//! which stays on it and has a ring. Queues of other CPUs are spread over the same threads.
//!
//! Invariant: between the answer to the greeting and the last queue's first entry the kernel holds
//! requests back. So everything that may be refused is done before the greeting is answered.
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
        let server = Arc::new(Server::new(files, meter, cpus.clone()));
        let rings = Rings { server, threads: Vec::new(), queues: usize::from(queues) };
        let (told, begun) = channel();
        let mut prepared = Prepared { rings, go: Vec::new(), begun, data };
        for share in shares(queues, &cpus) {
            // Threads that were started for nothing end when `prepared` is dropped.
            prepared.add(device, share, told.clone()).map_err(NoRing::Refused)?;
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
        share: Share,
        begun: Sender<io::Result<()>>,
    ) -> io::Result<()> {
        let ring = FuseRing::new(device.as_fd(), self.data)?;
        let (back, server) = (Arc::new(Back::new()?), Arc::clone(&self.rings.server));
        let depth = depth(self.rings.queues);
        let (go, told) = channel();
        let (ready, is_ready) = channel();
        let work = move || {
            share.cpu.iter().for_each(|&cpu| cpu::stay_on(&[cpu]));
            let mut thread = Thread::new(server, ring, back);
            let prepared = thread.prepare(&share.queues, depth);
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

/// The queues of one thread, and the CPU that it stays on.
struct Share {
    cpu: Option<usize>,
    queues: Vec<u16>,
}

fn shares(queues: u16, cpus: &[usize]) -> Vec<Share> {
    let threads = cpus.len().min(THREADS_MAX);
    // A thread that serves several busy CPUs goes where the system puts it.
    let own = |thread: usize| Some(cpus[thread]).filter(|_| cpus.len() <= THREADS_MAX);
    let mut shares: Vec<Share> =
        (0..threads).map(|thread| Share { cpu: own(thread), queues: Vec::new() }).collect();
    for queue in 0..queues {
        let of_cpu = cpus.iter().position(|&cpu| cpu == usize::from(queue));
        shares[of_cpu.unwrap_or(usize::from(queue)) % threads].queues.push(queue);
    }
    shares.retain(|share| !share.queues.is_empty());
    shares
}

/// Entries that a queue has from the start. It gets more if some wait for a disk.
fn depth(queues: usize) -> usize {
    const MANY: usize = 16;
    if queues <= MANY { 16 } else { 4 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(queues: u16, cpus: &[usize]) -> Vec<(Option<usize>, Vec<u16>)> {
        shares(queues, cpus).into_iter().map(|share| (share.cpu, share.queues)).collect()
    }

    #[test]
    fn every_queue_is_served_once_and_by_the_thread_of_its_cpu() {
        assert_eq!(shared(2, &[0, 1]), [(Some(0), vec![0]), (Some(1), vec![1])]);
        assert_eq!(shared(4, &[1, 3]), [(Some(1), vec![0, 1, 2]), (Some(3), vec![3])]);
        assert_eq!(shared(1, &[0, 1]), [(Some(0), vec![0])], "a thread without a queue is none");
        let cpus: Vec<usize> = (0..200).collect();
        let many = shared(256, &cpus);
        assert!(many.len() == THREADS_MAX && many.iter().all(|share| share.0.is_none()));
        let mut queues: Vec<u16> = many.into_iter().flat_map(|share| share.1).collect();
        queues.sort_unstable();
        assert_eq!(queues, (0..256).collect::<Vec<_>>());
    }
}
