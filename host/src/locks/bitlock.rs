//! Where threads sleep that wait for a one-bit lock inside a word of a table.
//!
//! The words themselves have no room for a queue. The page under them may also be discarded, and a
//! lock bit vanishes with it. Waiters therefore sleep here, on one of a fixed set of buckets, and
//! ask again whenever their bucket is rung.
//!
//! ```text
//!    key --hash--> bucket { sequence, waiters }
//!
//!    waiter                                  holder
//!    W1  waiters += 1                        H1  clear the lock bit (SeqCst read-modify-write)
//!    W2  fence                               H2  waiters == 0?  then done
//!    W3  s = sequence                        H3  sequence += 1
//!    W4  bit clear?  then done               H4  wake the bucket
//!    W5  sleep while sequence == s; to W3
//! ```
//!
//! Invariant B1 (no lost wake-up): a waiter asleep in W5 is woken by every H1 that it did not see
//! in W4.
//!
//! - Either H2 sees W1 or W4 sees H1. If both were missed, then H1 < H2 < W1 < W2 < H1 in the
//!   single order of SeqCst operations, which is a cycle.
//! - If H2 sees W1 and H3 comes before W3, then W4 sees H1, because W3 read from H3.
//! - If H2 sees W1 and H3 comes after W3, then W5 finds another sequence or is woken.
//!
//! Locks: none is taken here. The caller holds none of the bits that it waits for.

use super::futex::Futex;
use crate::sync::atomic::{AtomicU32, Ordering, fence};
use crate::sync::{fence_for_loom, hint};

/// Buckets, as a shift. They are more than the threads that are likely to wait at once.
const BUCKETS_SHIFT: u32 = if cfg!(loom) { 1 } else { 4 };
/// Buckets.
const BUCKETS: usize = 1 << BUCKETS_SHIFT; // 16, 2 KiB

const _: () = assert!(BUCKETS_SHIFT < u64::BITS, "the hash keeps its upper BUCKETS_SHIFT bits");

/// How often a thread looks at a taken bit before it goes to sleep. Never in a model, where a look
/// yields to the other threads and so hides the interleavings that lead to sleep.
const SPINS: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 100 };

/// 2^64 divided by the golden ratio: spreads neighbouring keys over the buckets (Knuth, 6.4).
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// Two cache lines, because processors fetch them in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Bucket {
    /// Every wake that finds a waiter increments it. It could return to an old value while a waiter
    /// is between W3 and W5 only by 2^32 wakes in that time.
    sequence: Futex,
    waiters: AtomicU32,
}

impl Bucket {
    fn new() -> Bucket {
        Bucket { sequence: Futex::new(0), waiters: AtomicU32::new(0) }
    }

    /// H2 to H4.
    #[inline]
    fn ring(&self) {
        fence_for_loom();
        // SeqCst pairs with the fence in `sleep_while` (W2), so that a waiter is seen here or sees
        // the bit cleared there (B1).
        if self.waiters.load(Ordering::SeqCst) != 0 {
            self.ring_sleepers();
        }
    }

    #[cold]
    fn ring_sleepers(&self) {
        // SeqCst pairs with the load of the sequence in `sleep_while` (W3), so that a waiter that
        // reads the new sequence sees the bit cleared.
        self.sequence.word().fetch_add(1, Ordering::SeqCst);
        self.sequence.wake_all();
    }
}

/// The buckets on which waiters for one-bit locks sleep. One set serves any number of tables.
#[derive(Debug)]
pub struct BitLockWaiters {
    buckets: Box<[Bucket]>,
}

impl BitLockWaiters {
    /// Empty buckets.
    pub fn new() -> BitLockWaiters {
        BitLockWaiters { buckets: (0..BUCKETS).map(|_| Bucket::new()).collect() }
    }

    /// Bytes of heap that the buckets take.
    pub fn heap_bytes(&self) -> u64 {
        size_of_val(&*self.buckets) as u64
    }

    /// Waits until `locked` answers no. `key` is the number that the holder passes to
    /// [`wake`](Self::wake) when it unlocks. The thread spins for a moment and then sleeps, and it
    /// misses no wake of its key.
    pub fn wait_while(&self, key: usize, locked: impl Fn() -> bool) {
        for _ in 0..SPINS {
            if !locked() {
                return;
            }
            hint::spin_loop();
        }
        self.sleep_while(self.bucket(key), locked);
    }

    fn sleep_while(&self, bucket: &Bucket, locked: impl Fn() -> bool) {
        // SeqCst pairs with the load in `Bucket::ring` (H2), so that a holder that unlocks from
        // here on sees a waiter (W1).
        bucket.waiters.fetch_add(1, Ordering::SeqCst);
        // SeqCst pairs with the SeqCst unlocking before `wake` (H1), so that the bit is read
        // after the count went up, whatever ordering `locked` uses (W2).
        fence(Ordering::SeqCst);
        loop {
            // SeqCst pairs with the increment in `Bucket::ring_sleepers` (H3), so that the
            // new sequence is never read together with the old bit (W3).
            let sequence = bucket.sequence.word().load(Ordering::SeqCst);
            if !locked() {
                break;
            }
            bucket.sequence.wait(sequence);
        }
        // relaxed: a count that is too high for a moment costs its reader only a needless wake.
        bucket.waiters.fetch_sub(1, Ordering::Relaxed);
    }

    /// Wakes the threads that wait for `key`. This thread must just have unlocked the word by a
    /// SeqCst read-modify-write. It costs one load if no thread waits.
    #[inline]
    pub fn wake(&self, key: usize) {
        self.bucket(key).ring();
    }

    /// Wakes all waiters, because lock bits have vanished with a discarded page.
    ///
    /// The system call that discarded the page, and the fence here, stand for H1.
    pub fn wake_all(&self) {
        // SeqCst pairs with the fence in `sleep_while` (W2), so that a waiter is counted before the
        // load in `ring`, or looks at its word after the page was discarded.
        fence(Ordering::SeqCst);
        self.buckets.iter().for_each(Bucket::ring);
    }

    #[inline]
    fn bucket(&self, key: usize) -> &Bucket {
        let hash = (key as u64).wrapping_mul(GOLDEN);
        &self.buckets[(hash >> (u64::BITS - BUCKETS_SHIFT)) as usize]
    }
}

impl Default for BitLockWaiters {
    fn default() -> BitLockWaiters {
        BitLockWaiters::new()
    }
}
