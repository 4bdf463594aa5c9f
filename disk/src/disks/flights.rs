//! Writes that are under way at the same time.
//!
//! ```text
//!   write ---> queue ---> thread, Disk::write ---> landed
//!          (waits while as many are in flight as may be)
//! ```
//!
//! Requests of a disk are synchronous, so several writes at once need several threads. These are
//! started when they are needed, and end when this is dropped.
//!
//! Invariants
//! - I1 every write that was submitted lands once, with its buffer, even if its disk panicked.
//! - I2 `in_flight` counts the writes that were submitted and not yet taken from `landed`. At most
//!   `limit` of them are with the disk.
//!
//! Lock: one, a leaf, around the end of the queue that the threads take from. A thread waits for
//! the next write under it, and the thread that submits one never takes it.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

use host::Rank;
use host::unmodelled::RankedMutex;

use crate::contract::{Disk, DiskError};

/// A write that is over.
#[derive(Debug)]
pub struct Landed<T> {
    /// The value that was passed with the write.
    pub tag: T,
    /// The bytes that were to be written.
    pub buffer: Vec<u8>,
    /// The outcome of the write.
    pub result: Result<(), DiskError>,
}

/// Writes to one disk, at most a fixed number at the same time. Dropping it waits for them.
///
/// ```
/// use ramfold_disk::{Disk, Flights, RamDisk};
/// use std::sync::Arc;
/// let disk: Arc<dyn Disk> = Arc::new(RamDisk::new(1 << 20)?);
/// let mut flights = Flights::new(Arc::clone(&disk), 4);
/// for page in 0..8 {
///     flights.write(page * 4096, vec![7; 4096], page);
/// }
/// while let Some(landed) = flights.landed() {
///     landed.result?;
/// }
/// # Ok::<(), ramfold_disk::DiskError>(())
/// ```
pub struct Flights<T: Send + 'static> {
    disk: Arc<dyn Disk>,
    limit: usize,
    /// `None` only while this is dropped.
    queue: Option<Sender<Flight<T>>>,
    shared: Arc<RankedMutex<Receiver<Flight<T>>>>,
    results: Receiver<Landed<T>>,
    returns: Sender<Landed<T>>,
    /// Writes that landed and were taken from `results` during a wait for room.
    waiting: VecDeque<Landed<T>>,
    /// Writes that were submitted and are not in `waiting` yet.
    flying: usize,
    threads: Vec<JoinHandle<()>>,
}

/// A write on its way; it lands when this is dropped.
struct Flight<T> {
    offset: u64,
    landed: Option<Landed<T>>,
    returns: Sender<Landed<T>>,
}

impl<T: Send + 'static> fmt::Debug for Flights<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut flights = f.debug_struct("Flights");
        flights.field("limit", &self.limit).field("flying", &self.flying).finish_non_exhaustive()
    }
}

impl<T: Send + 'static> Flights<T> {
    /// No write is in flight yet. Later at most `limit` are, and at least one may be.
    pub fn new(disk: Arc<dyn Disk>, limit: usize) -> Flights<T> {
        let (queue, jobs) = mpsc::channel();
        let (returns, results) = mpsc::channel();
        Flights {
            disk,
            limit: limit.max(1),
            queue: Some(queue),
            shared: Arc::new(RankedMutex::new(Rank::Leaf, jobs)),
            results,
            returns,
            waiting: VecDeque::new(),
            flying: 0,
            threads: Vec::new(),
        }
    }

    /// Writes that have not been taken from [`landed`](Self::landed).
    pub fn in_flight(&self) -> usize {
        self.flying + self.waiting.len()
    }

    /// Submits a write of `buffer` at `offset`. Waits while as many as the limit are in flight.
    pub fn write(&mut self, offset: u64, buffer: Vec<u8>, tag: T) {
        while self.flying >= self.limit {
            self.wait();
        }
        let error = DiskError::Backing(io::Error::other("the disk panicked"));
        let landed = Landed { tag, buffer, result: Err(error) };
        let flight = Flight { offset, landed: Some(landed), returns: self.returns.clone() };
        self.flying += 1;
        self.add_thread();
        match &self.queue {
            Some(queue) if !self.threads.is_empty() => {
                // It cannot fail, because `shared` is the other end.
                let _ = queue.send(flight);
            }
            // The system has no thread for us, so the caller's thread does the write.
            _ => flight.fly(&*self.disk),
        }
    }

    /// The next write that is over. It waits for one, and returns `None` if none is in flight.
    pub fn landed(&mut self) -> Option<Landed<T>> {
        if self.waiting.is_empty() && self.flying > 0 {
            self.wait();
        }
        self.waiting.pop_front()
    }

    /// As [`landed`](Self::landed), without waiting.
    pub fn landed_already(&mut self) -> Option<Landed<T>> {
        if let Ok(landed) = self.results.try_recv() {
            self.flying -= 1;
            self.waiting.push_back(landed);
        }
        self.waiting.pop_front()
    }

    fn wait(&mut self) {
        // It cannot fail: `returns` is another sender, and each flight sends (I1).
        if let Ok(landed) = self.results.recv() {
            self.flying -= 1;
            self.waiting.push_back(landed);
        }
    }

    /// Starts one more thread if there are fewer threads than flights.
    fn add_thread(&mut self) {
        if self.threads.len() >= self.flying.min(self.limit) {
            return;
        }
        let (disk, jobs) = (Arc::clone(&self.disk), Arc::clone(&self.shared));
        let run = move || {
            while let Some(flight) = next(&jobs) {
                flight.fly(&*disk);
            }
        };
        if let Ok(thread) = host::thread::spawn("write-back", run) {
            self.threads.push(thread);
        }
    }
}

fn next<T>(jobs: &RankedMutex<Receiver<Flight<T>>>) -> Option<Flight<T>> {
    jobs.lock().recv().ok()
}

impl<T> Flight<T> {
    fn fly(mut self, disk: &dyn Disk) {
        if let Some(landed) = &mut self.landed {
            let write = std::panic::AssertUnwindSafe(|| disk.write(self.offset, &landed.buffer));
            if let Ok(result) = std::panic::catch_unwind(write) {
                landed.result = result;
            }
        }
    }
}

impl<T> Drop for Flight<T> {
    fn drop(&mut self) {
        if let Some(landed) = self.landed.take() {
            // If the flights are being dropped, nothing receives this.
            let _ = self.returns.send(landed);
        }
    }
}

impl<T: Send + 'static> Drop for Flights<T> {
    fn drop(&mut self) {
        self.queue = None;
        for thread in self.threads.drain(..) {
            // The thread catches the disk's panics.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RamDisk;

    /// A writer that went on would hold a buffer more than it was allowed.
    #[test]
    fn a_write_waits_while_as_many_as_the_limit_are_in_flight() {
        let disk = Arc::new(RamDisk::new(1 << 16).expect("memory"));
        for limit in 1..4 {
            let mut flights = Flights::new(Arc::clone(&disk) as Arc<dyn Disk>, limit);
            for page in 0..8 {
                flights.write(page * 4096, vec![7; 4096], page);
                assert!(flights.flying <= limit, "{} of {limit}", flights.flying);
            }
            assert_eq!(flights.in_flight(), 8, "none was taken");
        }
    }
}
