//! A few streams shared by all threads.
//!
//! ```text
//!   thread on CPU 1 --hint 1--> | 0 | 1 | 2 | 3 |    the first free one from the hint on;
//!                                     ^              if all are taken, it waits for the hinted one
//! ```
//!
//! Lock: one for each stream, held while a thread works with it. A thread holds at most one stream.
//! While it does, it takes no lock that another thread holds while waiting for a stream.
//!
//! Invariant: `bytes` is the sum of `counted` over all slots, and `counted` is its stream's
//! [`Stream::heap_bytes`] whenever the slot is not locked.

use super::page_codec::Codec;
use super::stream::Stream;
use crate::terms::{CodecError, PAGE_LEN_MAX};
use std::ops::{Deref, DerefMut};
#[cfg(not(tsan))]
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

/// Streams for each CPU. With only one, a thread that is preempted inside its codec would make the
/// next thread on that CPU wait for it.
const PER_CPU: usize = 2;

/// Aligned to two cache lines, because neighbouring lines are fetched in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Slot(Mutex<Counted>);

#[derive(Debug, Default)]
struct Counted {
    stream: Stream,
    /// How many bytes of this stream are counted in [`Streams::bytes`].
    counted: usize,
}

/// A fixed number of streams, each built when it is first used.
///
/// A thread says by a hint which stream it would like. The number of the CPU on which it runs is a
/// good hint. It gets that stream or the next free one, and waits only if all are taken.
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

    /// How many streams there are.
    pub fn count(&self) -> usize {
        self.slots.len()
    }

    /// Bytes on the heap of all streams that were used so far.
    pub fn heap_bytes(&self) -> usize {
        // relaxed: one independent number, exact as of some moment.
        self.bytes.load(Ordering::Relaxed)
    }

    /// Builds in all streams the contexts that `codec` needs in both directions, so that none is
    /// built later. Waits for streams that are in use.
    ///
    /// # Errors
    ///
    /// [`CodecError::NoMemory`] if there is none for the contexts.
    pub fn prepare(&self, codec: &Codec) -> Result<(), CodecError> {
        self.each(|stream| {
            let mut page = [7; PAGE_LEN_MAX];
            let blob = codec.compress(stream, &page)?.to_vec();
            codec.decompress(stream, &blob, &mut page)
        })
    }

    /// Builds in all streams what decompressing pages of `codec` needs, so that it is not built
    /// later. Waits for streams that are in use.
    ///
    /// # Errors
    ///
    /// [`CodecError::NoMemory`] if there is none for the contexts.
    pub fn prepare_to_read(&self, codec: &Codec) -> Result<(), CodecError> {
        let mut page = [7; PAGE_LEN_MAX];
        let mut once = Stream::new();
        let blob = codec.compress(&mut once, &page)?;
        self.each(|stream| codec.decompress(stream, blob, &mut page))
    }

    /// Makes room in all streams for units whose frames have at most `frame_len` bytes, so that
    /// [`Stream::unpack_unit`] allocates nothing. Waits for streams that are in use.
    ///
    /// # Errors
    ///
    /// [`CodecError::NoMemory`] if there is no room.
    pub fn prepare_units(&self, frame_len: usize) -> Result<(), CodecError> {
        self.each(|stream| stream.prepare_units(frame_len))
    }

    fn each(
        &self,
        mut work: impl FnMut(&mut Stream) -> Result<(), CodecError>,
    ) -> Result<(), CodecError> {
        self.slots
            .iter()
            .try_for_each(|slot| work(&mut Lease { slot: slot.lock(), bytes: &self.bytes }))
    }

    /// Waits for each stream once, and calls `pause` while one is in use. All work with a stream
    /// that began before this call has ended when it returns.
    pub fn wait_for_each(&self, pause: impl Fn()) {
        for slot in &self.slots {
            while slot.try_lock().is_none() {
                pause();
            }
        }
    }

    /// Calls `work` with a stream. If `work` panics, the stream stays usable.
    ///
    /// `work` must not call `with` of the same streams, because it could wait for itself forever.
    pub fn with<R>(&self, hint: usize, work: impl FnOnce(&mut Stream) -> R) -> R {
        let mut lease = Lease { slot: self.acquire(hint), bytes: &self.bytes };
        work(&mut lease)
    }

    /// The first free slot from `hint` on, or else the hinted one as soon as it is free.
    fn acquire(&self, hint: usize) -> MutexGuard<'_, Counted> {
        let first = hint % self.slots.len();
        let (before, after) = self.slots.split_at(first);
        let free = after.iter().chain(before).find_map(Slot::try_lock);
        free.unwrap_or_else(|| self.slots[first].lock())
    }
}

impl Slot {
    /// Poison is ignored, because no codec leaves a page half done between two calls.
    #[cfg(not(tsan))]
    fn lock(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tries until it succeeds, because ThreadSanitizer does not see a lock that std waited for.
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

/// A stream on loan. Dropping the lease, also by unwinding, counts the stream's bytes again.
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
            // relaxed: a sum of differences, each made under its slot's lock. Wrapping addition
            // subtracts if a stream became smaller.
            self.bytes.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
        }
    }
}
