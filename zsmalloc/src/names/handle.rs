//! Handles: for programs that keep objects in structures of their own.
//!
//! A [`Handle`] owns one object. Behind it is a cell, as in a client's table, but of a leaf that
//! the pool keeps for this purpose. The mover alone locks its word; the client's bits count
//! readers.
//!
//! ```text
//!   63      58                                           1   0
//!  +----------+------------+-------+-------+--------+------+
//!  | readers  |   slack    |  PFN  | class | object | lock |   reader: + 1 to pin, - 1 to unpin
//!  +----------+------------+-------+-------+--------+------+   mover: lock, if nobody reads
//! ```
//!
//! Reading pins. One compare-exchange adds a reader to the word that says where the object is. So a
//! pin that succeeds names the right place, and nothing needs to be read again. The mover sets the
//! lock bit of a word without readers while it copies one object, or migrates one zspage. A reader
//! waits that long. The kernel counts pins per zspage, beside the word. There a pin has to look at
//! the word again, the mover has to freeze the count, and a zspage that is emptied under a late pin
//! must be released later.
//!
//! A free pins nothing (study S0). It finds place and lock without a lock, and under the lock they
//! still stand if no move was counted meanwhile; see `free`.
//!
//! Invariants
//! - I1 the word of an object with readers does not change, except for their number.
//! - I2 an object with readers is not freed: its handle is borrowed. So an emptied zspage has no
//!   readers, and its release need not look.
//! - I3 a handle's entry lies in a leaf of the pool that made it. A handle is shown to be a pool's
//!   by its memory, whose number no later memory has, and its leaf's owner, which stays that pool's
//!   id: neither is given away again where handles were out.
//!
//! Locks: class. Waiting for the 64th reader's turn takes none.

use std::num::NonZeroU64;

use host::sync::atomic::{AtomicU64, Ordering};

use crate::class::Age;
use crate::leaves::{LeafUse, OwnedLeaves};
use crate::numbers::{AllocError, CellNumber, ForeignHandle, LOCKED, PIN, PINS_MAX, Word};
use crate::pool::Pool;
use crate::zspages::zspage;

/// An owned object of a pool, in 8 bytes. It is not `Copy`, and [`Pool::free_handle`] consumes it.
/// A handle that is dropped instead leaves its object in the pool until the pool is dropped. A
/// [`PoolBox`] is twice as long and frees its object when it is dropped.
///
/// [`PoolBox`]: crate::PoolBox
#[derive(Debug)]
#[must_use = "dropping a handle leaves its object in the pool"]
pub struct Handle(NonZeroU64); // | memory 32 | entry 32 |

const _: () = assert!(size_of::<Option<Handle>>() == 8, "a handle is as small as a pointer");

impl Handle {
    #[inline]
    fn new(entry: CellNumber, memory: u32) -> Handle {
        let word = u64::from(memory) << u32::BITS | u64::from(entry.get());
        Handle(NonZeroU64::new(word).expect("no leaf has number 0"))
    }

    #[inline]
    pub(crate) fn entry(&self) -> CellNumber {
        CellNumber::new(self.0.get() as u32)
    }

    #[inline]
    fn memory(&self) -> u32 {
        (self.0.get() >> u32::BITS) as u32
    }
}

/// What tells a pool's own handles.
#[derive(Clone, Copy)]
pub(crate) struct OwnedHandles<'p> {
    memory: u32,
    leaves: OwnedLeaves<'p>,
}

impl OwnedHandles<'_> {
    /// True when the handle is the pool's (I3).
    #[inline(always)]
    pub(crate) fn has(&self, handle: &Handle) -> bool {
        // No leaf has number 0, nor an owner there.
        handle.memory() == self.memory && self.leaves.has_cell(handle.entry())
    }
}

/// The bytes of an object that are asked for in advance. The processor sees by itself that the rest
/// is wanted.
const AHEAD: usize = 1024;

impl Pool {
    /// Stores `bytes` under a handle.
    ///
    /// # Errors
    ///
    /// [`AllocError`]; nothing is stored then.
    pub fn alloc(&self, bytes: &[u8]) -> Result<Handle, AllocError> {
        // It comes while a slot is looked for.
        host::prefetch_bytes(bytes.as_ptr(), bytes.len().min(AHEAD));
        self.alloc_aged(bytes.len(), |slot, age| self.write(slot, bytes, age))
    }

    /// Stores an object of `len` bytes that `fill` writes in place. The slice that it is given is
    /// all zeros, and what it does not write stays zero.
    ///
    /// # Errors
    ///
    /// [`AllocError`]; nothing is stored then, and `fill` was not called.
    ///
    /// ```
    /// # use ramfold_zsmalloc::{Memory, MemoryConfig, Pool, PoolConfig};
    /// # let memory = Memory::new(MemoryConfig::for_disk(16 << 20))?;
    /// # let pool = Pool::new(memory, PoolConfig::default())?;
    /// let handle = pool.alloc_with(100, |slot| slot[..5].copy_from_slice(b"front"))?;
    /// assert_eq!(pool.read(&handle)?[..7], *b"front\0\0");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn alloc_with(
        &self,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<Handle, AllocError> {
        self.alloc_unzeroed_with(len, |slot| {
            slot.fill(0);
            fill(slot);
        })
    }

    /// As [`Pool::alloc_with`], but the slice has the old bytes of the slot, which are those of
    /// freed objects of any pool of this memory. It is for a `fill` that writes all of the slice.
    /// Readers of the object see the old bytes that `fill` leaves.
    ///
    /// # Errors
    ///
    /// [`AllocError`]; nothing is stored then, and `fill` was not called.
    pub fn alloc_unzeroed_with(
        &self,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<Handle, AllocError> {
        self.alloc_aged(len, |slot, _| fill(slot))
    }

    #[inline]
    fn alloc_aged(
        &self,
        len: usize,
        fill: impl FnOnce(&mut [u8], Age),
    ) -> Result<Handle, AllocError> {
        let object = self.store_with(len, Some(LeafUse::Handles), fill)?;
        let entry = object.entry;
        // Release pairs with the Acquire in `try_pin` and in the mover, so that a thread that sees
        // the place sees the object. Until here nobody has the handle, and the cell names nothing.
        self.handle_cell(entry)
            .store(Word::default().with_place(object.into_place()).0, Ordering::Release);
        Ok(Handle::new(entry, self.memory.number()))
    }

    /// The object of a handle, in place. Any number of threads may read it at once, and free or
    /// allocate meanwhile; the object does not move until the guard is dropped.
    ///
    /// More than 63 readers of one object take turns: a thread that holds as many of one object and
    /// asks for another waits for itself. A guard that is forgotten keeps its object from moving
    /// until it is freed.
    ///
    /// # Errors
    ///
    /// [`ForeignHandle`] when it is another pool's.
    #[inline(always)]
    pub fn read<'p>(&'p self, handle: &'p Handle) -> Result<ReadGuard<'p>, ForeignHandle<()>> {
        if !self.owns(handle) {
            return Err(ForeignHandle(()));
        }
        let entry = handle.entry();
        let cell = self.handle_cell(entry);
        let word = self.pin(cell, entry);
        Ok(ReadGuard { pool: self, cell, entry, word })
    }

    /// True when the handle is this pool's (I3).
    #[inline]
    pub(crate) fn owns(&self, handle: &Handle) -> bool {
        self.owned_handles().has(handle)
    }

    /// What tells the pool's own handles.
    #[inline]
    pub(crate) fn owned_handles(&self) -> OwnedHandles<'_> {
        OwnedHandles {
            memory: self.memory.number(),
            leaves: self.memory.leaves.owned_by(self.id, LeafUse::Handles),
        }
    }

    // Always inlined: a guard that is returned through memory costs a quarter of what pinning does.
    #[inline(always)]
    fn pin(&self, cell: &AtomicU64, entry: CellNumber) -> Word {
        self.pinning(|| try_pin(cell)).unwrap_or_else(|| self.pin_in_turn(cell, entry))
    }

    #[cold]
    #[inline(never)]
    fn pin_in_turn(&self, cell: &AtomicU64, entry: CellNumber) -> Word {
        loop {
            // It waits outside the locks of the design, because a reader that makes room may need
            // them. relaxed: only decides whether to go on waiting.
            let busy = || is_busy(cell.load(Ordering::Relaxed));
            self.memory.leaves.waiters.wait_while(entry.table_index(), busy);
            if let Some(word) = self.pinning(|| try_pin(cell)) {
                return word;
            }
        }
    }
}

/// Adds a reader, and returns the word as it was. `None` while no reader can be added.
#[inline(always)]
fn try_pin(cell: &AtomicU64) -> Option<Word> {
    loop {
        // relaxed: a guess, confirmed by the exchange.
        let word = cell.load(Ordering::Relaxed);
        if is_busy(word) {
            return None;
        }
        // Acquire pairs with the Release of the thread that published the object or moved it, so
        // that its bytes are seen. relaxed: a failure is followed by another guess.
        let (pinned, failed) = (Ordering::Acquire, Ordering::Relaxed);
        if cell.compare_exchange_weak(word, word + PIN, pinned, failed).is_ok() {
            return Some(Word(word));
        }
    }
}

/// True while no reader can be added.
#[inline]
fn is_busy(word: u64) -> bool {
    word & LOCKED != 0 || Word(word).pins() == PINS_MAX
}

/// An object, readable in place until dropped.
pub struct ReadGuard<'p> {
    pool: &'p Pool,
    cell: &'p AtomicU64,
    entry: CellNumber,
    /// The cell as it was when this reader was counted: all but the count holds still.
    word: Word,
}

impl std::ops::Deref for ReadGuard<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let place = self.word.place().expect("a handle's cell names its object");
        zspage::bytes(&self.pool.memory.arena, self.pool.class(place.class()).shape, place)
    }
}

impl Drop for ReadGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // SeqCst pairs with the re-check in `BitLockWaiters::wait_while`, so that the waiter sees
        // one reader less, or is woken below. As a Release it pairs with the Acquire of the mover's
        // lock, so that the slot is written again after this reader.
        let word = self.cell.fetch_sub(PIN, Ordering::SeqCst);
        if Word(word).pins() == PINS_MAX {
            self.pool.memory.leaves.waiters.wake(self.entry.table_index());
        }
    }
}

impl std::fmt::Debug for ReadGuard<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ReadGuard({} bytes)", self.len())
    }
}
