//! Recounting a queue from its buffers.
//!
//! Invariants checked: the payload kept for a buffer is that of its values; depot I1, I2.
//!
//! Locks: one shard's after the other, then the depot's.

use super::Queue;
use super::buffer::Buffer;

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
    ) -> Result<(), String> {
        let bytes = buffer.iter().map(weigh).sum::<u64>();
        if bytes > buffer.bytes || exact && bytes < buffer.bytes {
            return Err(format!("values of {bytes} bytes in a buffer of {}", buffer.bytes));
        }
        if buffer.bytes > buffer.quota {
            return Err(format!("{} bytes, granted were {}", buffer.bytes, buffer.quota));
        }
        self.buffers += usize::from(buffer.exists());
        self.values += buffer.len() as u64;
        self.bytes += buffer.bytes;
        self.quotas += buffer.quota;
        Ok(())
    }
}

impl<T> Queue<T> {
    /// Recounts the queue, for when nobody pushes or drains: `weigh` says again how many bytes of
    /// payload a value stands for. Gives the values that are pending, and their payload in bytes.
    ///
    /// # Errors
    ///
    /// The first contradiction found.
    pub fn check(&self, weigh: impl Fn(&T) -> u64) -> Result<(u64, u64), String> {
        let mut count = Count::default();
        for shard in &self.shards {
            count.add(&shard.0.lock(), true, &weigh)?;
        }
        let depot = self.depot.lock();
        for (buffer, exact) in depot.queued() {
            count.add(buffer, exact, &weigh)?;
        }
        let (budget, buffers) = (depot.left() + count.quotas, depot.free() + count.buffers);
        if budget != self.budget || buffers != self.buffers {
            let kept = (self.budget, self.buffers);
            return Err(format!(
                "payload and buffers: counted {:?}, kept {kept:?}",
                (budget, buffers)
            ));
        }
        Ok((count.values, count.bytes))
    }
}
