//! Recounting a queue from its buffers.
//!
//! Invariants checked: the payload kept for a buffer is that of its values; depot I1, I2.
//!
//! Locks: one shard's after the other, then the depot's.

use super::buffer::Buffer;
use super::{Queue, QueueDefect};

/// Looks, before it is given up to find all buffers where they were.
const LOOKS: usize = 16;

/// What the buffers add up to.
#[derive(Default)]
struct Count {
    buffers: usize,
    values: u64,
    bytes: u64,
    quotas: u64,
}

impl Count {
    fn add<T>(
        &mut self,
        buffer: &Buffer<T>,
        exact: bool,
        weigh: impl Fn(&T) -> u64,
    ) -> Result<(), QueueDefect> {
        let bytes = buffer.iter().map(weigh).sum::<u64>();
        if bytes > buffer.bytes || exact && bytes < buffer.bytes {
            return Err(QueueDefect(format!(
                "values of {bytes} bytes in a buffer of {}",
                buffer.bytes
            )));
        }
        if buffer.bytes > buffer.quota {
            return Err(QueueDefect(format!(
                "{} bytes, granted were {}",
                buffer.bytes, buffer.quota
            )));
        }
        self.buffers += usize::from(buffer.exists());
        self.values += buffer.len() as u64;
        self.bytes += buffer.bytes;
        self.quotas += buffer.quota;
        Ok(())
    }
}

impl<T> Queue<T> {
    /// Recounts the queue. `weigh` says again how many bytes of payload a value stands for. Returns
    /// the values that are pending, and their payload in bytes. It waits for a drain under way. If
    /// others push so much that buffers change hands all the time, not all is compared.
    ///
    /// # Errors
    ///
    /// The first contradiction found.
    pub fn check(&self, weigh: impl Fn(&T) -> u64) -> Result<(u64, u64), QueueDefect> {
        // Nobody drains, or carries a buffer from a shard to the depot.
        let _turn = self.turn.lock();
        let mut count = Count::default();
        for _ in 0..LOOKS {
            let changes = self.depot.lock().changes();
            count = self.count(&weigh)?;
            let depot = self.depot.lock();
            if depot.changes() == changes {
                let counted = (depot.left() + count.quotas, depot.free() + count.buffers);
                self.compare(counted)?;
                break;
            }
        }
        Ok((count.values, count.bytes))
    }

    fn count(&self, weigh: impl Fn(&T) -> u64) -> Result<Count, QueueDefect> {
        let mut count = Count::default();
        for shard in &self.shards {
            count.add(&shard.0.lock(), true, &weigh)?;
        }
        for (buffer, exact) in self.depot.lock().queued() {
            count.add(buffer, exact, &weigh)?;
        }
        Ok(count)
    }

    fn compare(&self, counted: (u64, usize)) -> Result<(), QueueDefect> {
        let kept = (self.budget, self.buffers);
        if counted == kept {
            return Ok(());
        }
        let found = format!("payload and buffers: counted {counted:?}, kept {kept:?}");
        Err(QueueDefect(found))
    }

    /// How many pending values are such ones. Waits for a drain under way.
    pub(crate) fn count_if(&self, is_such: impl Fn(&T) -> bool) -> u64 {
        let _turn = self.turn.lock();
        let such = |buffer: &Buffer<T>| buffer.iter().filter(|&value| is_such(value)).count();
        let shards = self.shards.iter().map(|shard| such(&shard.0.lock())).sum::<usize>();
        let queued = self.depot.lock().queued().map(|(buffer, _)| such(buffer)).sum::<usize>();
        (shards + queued) as u64
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod damage;
