//! How an object gets into its slot.
//!
//! ```text
//!   pool of over 32 MiB?     no:  an ordinary copy: a cache may hold the object until it is read
//!   slot touched long ago?   no:  an ordinary copy: the slot is in a cache
//!                            yes: past the caches
//! ```
//!
//! A line that is in no cache is read from memory before it is stored to, and takes the place of
//! another. An object is written once, and most likely read long after: see
//! `host::copy_past_caches`.
//!
//! Lock: none; the caller alone knows the slot.

use host::sync::atomic::Ordering;

use crate::class::Age;
use crate::pool::Pool;

impl Pool {
    /// Writes an object to its slot.
    #[inline]
    pub(crate) fn write(&self, slot: &mut [u8], bytes: &[u8], age: Age) {
        // relaxed: a hint.
        if age != Age::Fresh && self.outgrown.load(Ordering::Relaxed) {
            host::copy_past_caches(slot, bytes);
        } else {
            slot.copy_from_slice(bytes);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::pool::CACHED_FRAMES;
    use crate::{Handle, Memory, MemoryConfig, PoolConfig};
    use std::sync::Arc;

    const LEN: usize = 1000;

    fn pool(bytes: u64) -> Arc<Pool> {
        let config = MemoryConfig { worker: false, ..MemoryConfig::for_disk(bytes) };
        Pool::new(Memory::new(config).expect("address space"), PoolConfig::default())
            .expect("a pool")
    }

    /// How old the slot is that the next object gets.
    fn next_age(pool: &Pool) -> Age {
        let class = pool.class_for(LEN).expect("a length");
        pool.reserve(class, LEN, None).expect("room").age
    }

    #[test]
    fn a_slot_is_old_from_its_second_object_on() {
        let pool = pool(16 << 20);
        let mut handles: Vec<Handle> = Vec::new();
        for _ in 0..5 {
            assert_eq!(next_age(&pool), Age::Fresh);
            handles.push(pool.alloc(&[1; LEN]).expect("room"));
        }
        pool.free_batch([handles.remove(1)]).expect("ours");
        assert_eq!(next_age(&pool), Age::Old, "a hole");
        // The zspage goes, and its frames are all there when the next one is built.
        handles.extend((0..100).map(|_| pool.alloc(&[1; LEN]).expect("room")));
        pool.free_batch(handles).expect("ours");
        assert_eq!(next_age(&pool), Age::Touched, "frames that were used before");
    }

    #[test]
    fn a_pool_outgrows_the_caches_frame_by_frame() {
        let pool = pool(64 << 20);
        // relaxed: one thread.
        let outgrown = || pool.outgrown.load(Ordering::Relaxed);
        let page = || pool.alloc(&[7; host::PAGE_SIZE]).expect("room");
        let mut handles: Vec<Handle> = (0..CACHED_FRAMES).map(|_| page()).collect();
        assert!(!outgrown());
        handles.push(page());
        assert!(outgrown());
        // From here on it is written past the caches, and reads the same.
        pool.free_batch(handles.drain(..2)).expect("ours");
        handles.extend([page(), page()]);
        let equal = |handle| *pool.read(handle).expect("ours") == [7; host::PAGE_SIZE];
        assert!(handles.iter().all(equal));
        pool.free_batch(handles).expect("ours");
    }
}
