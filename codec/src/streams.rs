//! A few streams shared by all threads.
//!
//! Lock: one per stream, held while its user works with it. A user holds one stream at most, and
//! takes no other lock with it that anybody holds while waiting for a stream.
//!
//! Invariant: `bytes` is the sum of `counted` over all slots, and `counted` is its stream's
//! [`Stream::heap_bytes`] whenever the slot is not locked.

use crate::{Codec, CodecError, PAGE_LEN_MAX, Stream};
use std::ops::{Deref, DerefMut};
#[cfg(not(tsan))]
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

/// Streams per CPU: with one, a thread preempted inside its codec would make the next thread on
/// that CPU wait for it.
const PER_CPU: usize = 2;

/// Two cache lines, because neighbouring lines are fetched in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Slot(Mutex<Counted>);

#[derive(Debug, Default)]
struct Counted {
    stream: Stream,
    /// What of this stream is in [`Streams::bytes`].
    counted: usize,
}

/// A fixed number of streams, each built when first used.
///
/// A thread names the stream it would like by a hint, best the number of the CPU it runs on; it
/// gets that one or the next that is free, and waits only if all are taken.
///
/// ```
/// use ramfold_codec::{Algorithm, Codec, Streams};
/// let streams = Streams::for_cpus(2);
/// let codec = Codec::new(Algorithm::Lz4);
/// let len = streams.with(0, |stream| codec.compress(stream, &[7; 4096]).map(<[u8]>::len))?;
/// assert!(len < 64);
/// # Ok::<(), ramfold_codec::CodecError>(())
/// ```
#[derive(Debug)]
pub struct Streams {
    slots: Box<[Slot]>,
    bytes: AtomicUsize,
}

impl Streams {
    /// Streams for a machine with `cpus` CPUs, at least one.
    pub fn for_cpus(cpus: usize) -> Self {
        let count = cpus.max(1).saturating_mul(PER_CPU);
        let slots = (0..count).map(|_| Slot::default()).collect();
        Self { slots, bytes: AtomicUsize::new(0) }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.slots.len()
    }

    /// Bytes on the heap of all streams used so far.
    pub fn heap_bytes(&self) -> usize {
        // relaxed: one independent number, exact as of some moment.
        self.bytes.load(Ordering::Relaxed)
    }

    /// Builds the contexts of all streams that `codec` needs in both directions, so that none is
    /// built later. Waits for streams that are in use.
    ///
    /// # Errors
    ///
    /// When the algorithm fails, for want of memory.
    pub fn prepare(&self, codec: &Codec) -> Result<(), CodecError> {
        self.slots.iter().try_for_each(|slot| {
            let mut lease = Lease { slot: slot.lock(), bytes: &self.bytes };
            let mut page = [7; PAGE_LEN_MAX];
            let blob = codec.compress(&mut lease, &page)?.to_vec();
            codec.decompress(&mut lease, &blob, &mut page)
        })
    }

    /// Waits for each stream once, calling `pause` while one is in use: what began with a stream
    /// before this was called has ended when it returns.
    pub fn wait_for_each(&self, pause: impl Fn()) {
        for slot in &self.slots {
            while slot.try_lock().is_none() {
                pause();
            }
        }
    }

    /// Calls `work` with a stream. `work` must not call `with` of the same streams again. If it
    /// panics the stream stays usable.
    pub fn with<R>(&self, hint: usize, work: impl FnOnce(&mut Stream) -> R) -> R {
        let mut lease = Lease { slot: self.acquire(hint), bytes: &self.bytes };
        work(&mut lease)
    }

    /// The first free slot from `hint` on, or the hinted one as soon as it is free.
    fn acquire(&self, hint: usize) -> MutexGuard<'_, Counted> {
        let first = hint % self.slots.len();
        let (before, after) = self.slots.split_at(first);
        let free = after.iter().chain(before).find_map(Slot::try_lock);
        free.unwrap_or_else(|| self.slots[first].lock())
    }
}

impl Slot {
    /// Poison is ignored: no codec leaves a page half done between two calls.
    #[cfg(not(tsan))]
    fn lock(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// By trying, because ThreadSanitizer does not see a lock that std waited for.
    #[cfg(tsan)]
    fn lock(&self) -> MutexGuard<'_, Counted> {
        loop {
            match self.try_lock() {
                Some(guard) => return guard,
                None => std::thread::yield_now(),
            }
        }
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Counted>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poison)) => Some(poison.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// A stream on loan; returning it, also by unwinding, settles its bytes.
struct Lease<'a> {
    slot: MutexGuard<'a, Counted>,
    bytes: &'a AtomicUsize,
}

impl Deref for Lease<'_> {
    type Target = Stream;

    fn deref(&self) -> &Stream {
        &self.slot.stream
    }
}

impl DerefMut for Lease<'_> {
    fn deref_mut(&mut self) -> &mut Stream {
        &mut self.slot.stream
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        let now = self.slot.stream.heap_bytes();
        let before = std::mem::replace(&mut self.slot.counted, now);
        if now != before {
            // relaxed: a sum of differences, each made under its slot's lock; wrapping addition
            // subtracts where a stream became smaller.
            self.bytes.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
        }
    }
}
