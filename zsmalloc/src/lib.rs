//! A dense, compacting allocator of small objects: the Linux kernel's zsmalloc in user space.
//!
//! Words
//! - *page*: 4096 bytes of a client's data; *frame*, *PFN*: 4096 bytes of arena memory, its number
//! - *size class*: the objects of one size; merged classes share their zspages
//! - *zspage*: a contiguous run of 1 to chain-size frames that holds objects of one class
//! - *cell*: 8 bytes of a client's table that say where an object is; *leaf*: 512 cells
//! - *handle*: an owned, stable name for an object that is not in a client's table; a *box*: a
//!   handle with its pool, which frees the object when it is dropped
//!
//! ```text
//!   Pool ---- classes ---- zspages ---- frames             Memory: arena, zone, tables,
//!     |                       ^                            shared by all pools
//!     `-- leaves -- cells ----'  PFN | class | object
//! ```
//!
//! ```
//! use ramfold_zsmalloc::{Memory, MemoryConfig, Pool, PoolConfig};
//! let memory = Memory::new(MemoryConfig {
//!     arena_frames: 1 << 16,
//!     entries_max: 1 << 20,
//!     expected_bytes: 64 << 20,
//!     worker: true,
//! })?;
//! let pool = Pool::new(memory, PoolConfig::default())?;
//! let handle = pool.alloc(b"some bytes")?;
//! assert_eq!(*pool.read(&handle)?, b"some bytes"[..]);
//! pool.compact();
//! pool.free_handle(handle)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Locks are taken in this order: cell, class, stock of entries, zone. The descriptor heap and the
//! list of free leaves are taken last; only the open part of a table is locked under them. The code
//! that moves objects holds a class lock and only tries cells. Every `unsafe` block is in `zspage`.

#![cfg_attr(
    not(feature = "study"),
    doc = "
Class locks are the only lock design. Others are behind the feature `study`:

```compile_fail
use ramfold_zsmalloc::study::LockDesign;
```"
)]
#![deny(unsafe_code)]

mod class;
pub mod deferred;
mod leaves;
mod memory;
mod motion;
mod names;
mod numbers;
mod objects;
mod pool;
mod report;
mod zspages;

pub use class::GROUPS;
// A cause within `MemoryError`, and the number of a frame.
pub use host::{HostError, Pfn};
pub use leaves::{LeafSums, LeafTally};
pub use memory::{
    DeferredStatus, Evacuation, Frames, Memory, MemoryConfig, MigrateError, WorkerStatus,
};
pub use motion::ZspageInfo;
pub use names::{
    CellGuard, Content, DrainedCell, Handle, LeafPart, PoolBox, RawHandle, ReadGuard, Slots,
    leaf_parts, split,
};
pub use numbers::{
    AllocError, CLASSES, CellNumber, ChainSize, ClassIndex, ForeignHandle, Geometry, LEAF_CELLS,
    LeafId, MemoryError, OBJECTS_MAX, PoolDefect, Rule, SHARDS_MAX, SIZE_MAX, SIZE_MIN, Shape,
    StaleHandle, StaleLeaf, VALUE_BITS,
};
pub use objects::Object;
#[cfg(feature = "study")]
pub use pool::study;
pub use pool::{Pool, PoolConfig};
pub use report::{ClassRow, ClassTable, PoolCheck, PoolStats};
