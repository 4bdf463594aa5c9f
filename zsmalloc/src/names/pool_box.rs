//! An object that frees itself.
//!
//! ```text
//!   PoolBox | Arc<Pool> 8 | Handle 8 |  -- drop -->  the object freed, as by `free_handle`
//!      |                        ^
//!      `---- into_handle -------'           whoever has the handle frees it
//! ```
//!
//! Invariant: the handle is the pool's, and there until the box is dropped or gives it away.
//!
//! Lock: none here; dropping it frees the object, under the lock of its class.

use std::fmt;
use std::sync::Arc;

use crate::names::{Handle, ReadGuard};
use crate::numbers::{AllocError, ForeignHandle};
use crate::pool::Pool;

/// An owned object of a pool, freed when this is dropped: 16 bytes. It keeps its pool alive.
///
/// ```
/// use ramfold_zsmalloc::{Memory, MemoryConfig, Pool, PoolBox, PoolConfig};
/// let memory = Memory::new(MemoryConfig::for_disk(64 << 20))?;
/// let pool = Pool::new(memory, PoolConfig::default())?;
/// let note = PoolBox::new(&pool, b"some bytes")?;
/// assert_eq!(*note.read(), b"some bytes"[..]);
/// assert_eq!(pool.stats().objects, 1);
/// drop(note);
/// assert_eq!(pool.stats().objects, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "the object is freed when this is dropped"]
pub struct PoolBox {
    pool: Arc<Pool>,
    /// None once it is given away.
    handle: Option<Handle>,
}

const _: () = assert!(size_of::<PoolBox>() == 16, "no box is longer than a slice's pointer");

impl PoolBox {
    /// Stores `bytes`.
    ///
    /// # Errors
    ///
    /// [`AllocError`]; nothing is stored then.
    pub fn new(pool: &Arc<Pool>, bytes: &[u8]) -> Result<PoolBox, AllocError> {
        let handle = pool.alloc(bytes)?;
        Ok(PoolBox { pool: Arc::clone(pool), handle: Some(handle) })
    }

    /// Takes over the object of a handle.
    ///
    /// # Errors
    ///
    /// [`ForeignHandle`] with the handle when it is another pool's.
    pub fn from_handle(pool: &Arc<Pool>, handle: Handle) -> Result<PoolBox, ForeignHandle<Handle>> {
        if !pool.owns(&handle) {
            return Err(ForeignHandle(handle));
        }
        Ok(PoolBox { pool: Arc::clone(pool), handle: Some(handle) })
    }

    /// The handle. From here on only its owner frees the object.
    ///
    /// ```
    /// # use ramfold_zsmalloc::{Memory, MemoryConfig, Pool, PoolConfig, PoolBox};
    /// # let config = MemoryConfig {
    /// #     arena_frames: 1 << 16,
    /// #     entries_max: 1 << 20,
    /// #     expected_bytes: 64 << 20,
    /// #     worker: false,
    /// # };
    /// # let pool = Pool::new(Memory::new(config)?, PoolConfig::default())?;
    /// let handle = pool.alloc(b"some bytes")?;
    /// let owner = PoolBox::from_handle(&pool, handle)?;
    /// let handle = owner.into_handle();
    /// assert_eq!(*pool.read(&handle)?, b"some bytes"[..]);
    /// pool.free_handle(handle)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn into_handle(mut self) -> Handle {
        self.handle.take().expect("a box has its handle until it gives it away")
    }

    /// The object, in place; see [`Pool::read`].
    pub fn read(&self) -> ReadGuard<'_> {
        let handle = self.handle.as_ref().expect("a box has its handle until it gives it away");
        self.pool.read(handle).expect("a box's handle is its pool's")
    }

    /// The pool that the object is in.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }
}

impl Drop for PoolBox {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            self.pool.free_handle(handle).expect("a box's handle is its pool's");
        }
    }
}

impl fmt::Debug for PoolBox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PoolBox({:?})", self.handle)
    }
}
