//! Raw handles: numbers, for callers that cannot own a value, such as a C program.
//!
//! ```text
//!   RawHandle   | generation 32 | entry 32 |
//!   leaf        | cell | generation | cell | generation | ...          16 bytes an entry
//! ```
//!
//! A raw handle is checked at each use, because a program may make one up, use it twice, or use one
//! pool's with another. So it only copies in and out, under the lock bit of its cell. The bit is
//! taken only while the cell names an object, and then the generation must be the one that the
//! caller names. Each free changes the generation, which starts at a random number for each leaf. A
//! stale handle passes for a live one if its entry was freed a multiple of 2^32 times since. One of
//! another memory does so with a chance of one in 2^32.
//!
//! Invariants
//! - I1 the cell of an object is written by the thread that holds its lock bit. A cell that names
//!   no object is written by the thread that took or gives its entry.
//! - I2 the generation of an entry changes under the lock bit of its cell.
//!
//! Locks: a cell, then one class. Nothing else is held.

use host::sync::atomic::{AtomicU64, Ordering};

use crate::leaves::LeafUse;
use crate::numbers::{AllocError, CellNumber, LOCKED, StaleHandle, Word};
use crate::pool::Pool;

const ENTRY_BITS: u32 = u32::BITS;
const _: () = assert!(2 * ENTRY_BITS == u64::BITS, "entry and generation fill the number");

/// The number of an object. Copies of it stay what they are when the object is freed, and are then
/// refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RawHandle(u64);

impl RawHandle {
    /// The handle as a number; never 0.
    pub fn get(self) -> u64 {
        self.0
    }

    /// A handle from a number. Whether it names an object is found out at each use.
    pub fn new(number: u64) -> RawHandle {
        RawHandle(number)
    }

    fn entry(self) -> CellNumber {
        CellNumber::new(self.0 as u32)
    }

    fn generation(self) -> u32 {
        (self.0 >> ENTRY_BITS) as u32
    }
}

/// The two words behind a raw handle.
#[derive(Clone, Copy)]
struct RawEntry<'p> {
    cell: &'p AtomicU64,
    generation: &'p AtomicU64,
}

impl Pool {
    /// Stores `bytes` under a raw handle.
    ///
    /// ```
    /// # use ramfold_zsmalloc::{Memory, MemoryConfig, Pool, PoolConfig};
    /// # let config = MemoryConfig {
    /// #     arena_frames: 1 << 16,
    /// #     entries_max: 1 << 20,
    /// #     expected_bytes: 64 << 20,
    /// #     worker: false,
    /// # };
    /// # let pool = Pool::new(Memory::new(config)?, PoolConfig::default())?;
    /// let raw = pool.alloc_raw(b"some bytes")?;
    /// let mut out = [0; 10];
    /// assert_eq!(pool.read_raw(raw, &mut out)?, 10);
    /// assert_eq!(&out, b"some bytes");
    /// pool.free_raw(raw)?;
    /// assert!(pool.free_raw(raw).is_err(), "a stale handle is refused");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`AllocError`]; nothing is stored then.
    pub fn alloc_raw(&self, bytes: &[u8]) -> Result<RawHandle, AllocError> {
        let fill = |slot: &mut [u8], age| self.write(slot, bytes, age);
        let object = self.store_with(bytes.len(), Some(LeafUse::Raw), fill)?;
        let number = object.entry;
        let entry = self.raw_entry(number).expect("the entry was taken for this object");
        // relaxed: the entry came through a class lock from the thread that changed it last.
        let generation = entry.generation.load(Ordering::Relaxed);
        let word = Word::default().with_place(object.into_place());
        // Release pairs with the Acquire in `try_lock`, so that a thread that sees the place sees
        // the object.
        entry.cell.store(word.0, Ordering::Release);
        Ok(RawHandle(generation << ENTRY_BITS | u64::from(number.get())))
    }

    /// Copies the object to the start of `out`, as far as it fits. Returns its length.
    ///
    /// # Errors
    ///
    /// [`StaleHandle`] when the handle names no object of this pool.
    pub fn read_raw(&self, raw: RawHandle, out: &mut [u8]) -> Result<usize, StaleHandle> {
        let (entry, word) = self.lock_raw(raw)?;
        let place = word.place().expect("a cell whose bit is taken here names an object");
        let bytes = self.bytes_at(place);
        let (len, copied) = (bytes.len(), bytes.len().min(out.len()));
        out[..copied].copy_from_slice(&bytes[..copied]);
        self.memory.leaves.unlock_word(raw.entry(), entry.cell, word);
        Ok(len)
    }

    /// Frees the object.
    ///
    /// # Errors
    ///
    /// [`StaleHandle`] when the handle names no object of this pool, or no longer.
    pub fn free_raw(&self, raw: RawHandle) -> Result<(), StaleHandle> {
        let (entry, word) = self.lock_raw(raw)?;
        let place = word.place().expect("a cell whose bit is taken here names an object");
        let next = raw.generation().wrapping_add(1);
        // relaxed: the lock bit orders it.
        entry.generation.store(next.into(), Ordering::Relaxed);
        // The mover knows the object by its entry: from here on it finds a cell without a place.
        self.memory.leaves.unlock_word(raw.entry(), entry.cell, Word::default());
        self.free_with_entry(place, raw.entry());
        Ok(())
    }

    /// Locks the cell of a raw handle, and returns its word.
    fn lock_raw(&self, raw: RawHandle) -> Result<(RawEntry<'_>, Word), StaleHandle> {
        let entry = self.raw_entry(raw.entry())?;
        let word = loop {
            if let Some(word) = self.memory.leaves.try_lock_word(raw.entry()) {
                break word;
            }
            // relaxed: only decides whether to go on.
            let word = || Word(entry.cell.load(Ordering::Relaxed));
            if word().place().is_none() {
                return Err(StaleHandle);
            }
            let locked = || word().0 & LOCKED != 0;
            self.memory.leaves.waiters.wait_while(raw.entry().table_index(), locked);
        };
        // relaxed: the lock bit orders it.
        if entry.generation.load(Ordering::Relaxed) == u64::from(raw.generation()) {
            return Ok((entry, word));
        }
        self.memory.leaves.unlock_word(raw.entry(), entry.cell, word);
        Err(StaleHandle)
    }

    fn raw_entry(&self, number: CellNumber) -> Result<RawEntry<'_>, StaleHandle> {
        let leaf = number.leaf().ok_or(StaleHandle)?;
        let leaves = &self.memory.leaves;
        leaves.owned(leaf, self.id, LeafUse::Raw).map_err(|_| StaleHandle)?;
        if !number.get().is_multiple_of(LeafUse::Raw.stride()) {
            return Err(StaleHandle);
        }
        let cell = leaves.cell(number).ok_or(StaleHandle)?;
        let generation = leaves.cell(number.plus(1)).ok_or(StaleHandle)?;
        Ok(RawEntry { cell, generation })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{Memory, MemoryConfig, PoolConfig};
    use std::sync::Arc;

    fn pool() -> Arc<Pool> {
        let config =
            MemoryConfig { arena_frames: 512, entries_max: 4096, expected_bytes: 0, worker: false };
        let memory = Memory::new(config).expect("address space");
        Pool::new(memory, PoolConfig::default()).expect("a pool")
    }

    fn read(pool: &Pool, raw: RawHandle) -> Result<Vec<u8>, StaleHandle> {
        let mut out = vec![0; crate::SIZE_MAX];
        let len = pool.read_raw(raw, &mut out)?;
        out.truncate(len);
        Ok(out)
    }

    #[test]
    fn a_freed_handle_is_refused_also_when_its_entry_lives_again() {
        let pool = pool();
        let old = pool.alloc_raw(b"old").expect("room");
        assert_eq!(read(&pool, old).as_deref(), Ok(&b"old"[..]));
        assert_eq!(pool.free_raw(old), Ok(()));
        assert_eq!((read(&pool, old), pool.free_raw(old)), (Err(StaleHandle), Err(StaleHandle)));
        let new = pool.alloc_raw(b"new").expect("room");
        assert_eq!(
            (new.entry(), new.generation()),
            (old.entry(), old.generation().wrapping_add(1))
        );
        assert_eq!((read(&pool, old), pool.free_raw(old)), (Err(StaleHandle), Err(StaleHandle)));
        assert_eq!(read(&pool, new).as_deref(), Ok(&b"new"[..]));
        pool.check().expect("no defect");
    }

    #[test]
    fn made_up_and_foreign_handles_are_refused() {
        let (pool, other) = (pool(), pool());
        let neighbour =
            Pool::new(Arc::clone(pool.memory()), PoolConfig::default()).expect("a pool");
        let raw = pool.alloc_raw(b"mine").expect("room");
        let handle = pool.alloc(b"owned").expect("room");
        for stranger in [&other, &neighbour] {
            assert_eq!(read(stranger, raw), Err(StaleHandle));
            assert_eq!(stranger.free_raw(raw), Err(StaleHandle));
        }
        let generation = raw.get() >> ENTRY_BITS << ENTRY_BITS;
        let numbers = (0..8192).chain([raw.get() + 1, raw.get() ^ 1 << 63, u64::MAX]);
        for number in numbers.filter(|&number| number != raw.get()) {
            for made_up in [number, number | generation] {
                let made_up = RawHandle::new(made_up);
                if made_up != raw {
                    assert_eq!(read(&pool, made_up), Err(StaleHandle), "{made_up:?}");
                    assert_eq!(pool.free_raw(made_up), Err(StaleHandle), "{made_up:?}");
                }
            }
        }
        assert_eq!(read(&pool, raw).as_deref(), Ok(&b"mine"[..]));
        assert_eq!(pool.check().expect("no defect").objects, 2);
        pool.free_handle(handle).expect("ours");
    }

    #[test]
    fn a_short_buffer_gets_what_fits() {
        let pool = pool();
        let raw = pool.alloc_raw(b"longer").expect("room");
        let mut out = *b"....";
        assert_eq!((pool.read_raw(raw, &mut out), &out), (Ok(6), b"long"));
        assert_eq!(pool.read_raw(raw, &mut []), Ok(6));
    }
}
