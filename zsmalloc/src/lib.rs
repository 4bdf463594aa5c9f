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
//! use zsmalloc::{Memory, MemoryConfig, Pool, PoolConfig};
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
//! Locks, in the order they may be taken: cell, class, stock of entries, zone; the descriptor heap
//! and the list of free leaves are taken last and alone. The mover, who holds a class lock, only
//! tries cells. Every `unsafe` block is in `zspage`.

#![deny(unsafe_code)]

mod batch;
mod cell;
mod charge;
mod check;
mod class;
mod compact;
pub mod deferred;
mod descriptor;
mod descriptor_heap;
mod design;
mod drain;
mod entries;
mod error;
mod evacuate;
mod free;
mod fullness;
mod geometry;
mod give_back;
mod handle;
mod jobs;
mod join;
mod lag;
mod leaf;
mod leaf_sums;
mod memory;
mod migrate;
mod object;
mod owed;
mod pending;
mod pool;
mod pool_box;
mod raw;
mod release;
mod rest;
mod room;
mod shards;
mod slabs;
mod slots;
mod stats;
mod tables;
mod teardown;
mod word;
mod worker;
mod write;
mod zones;
#[expect(unsafe_code, reason = "the fence: payload of zspages, see its invariants")]
mod zspage;

pub use cell::{CellGuard, CellNumber, Content};
pub use check::{PoolCheck, PoolDefect};
pub use design::{LockDesign, Release};
pub use drain::DrainedCell;
pub use error::{AllocError, ForeignHandle, MemoryError, StaleHandle, StaleLeaf};
pub use evacuate::Evacuation;
pub use fullness::GROUPS;
pub use geometry::{
    CLASSES, ChainSize, ClassIndex, Geometry, OBJECTS_MAX, Rule, SIZE_MAX, SIZE_MIN, Shape,
};
pub use handle::{Handle, ReadGuard};
pub use host::smaps::page_table_bytes;
pub use host::{
    HostError, Lock, PAGE_SIZE, Rank, Table, Zeroed, clock, cpu, limits, prefetch, sync,
};
pub use jobs::DeferredStatus;
pub use leaf::{LEAF_CELLS, LeafId};
pub use leaf_sums::{LeafSums, LeafTally};
pub use memory::{Memory, MemoryConfig};
pub use migrate::{Frames, MigrateError, ZspageInfo};
pub use object::Object;
pub use pool::{Pool, PoolConfig, SHARDS_MAX};
pub use pool_box::PoolBox;
pub use raw::RawHandle;
pub use slots::{LeafPart, Slots, leaf_parts, split};
pub use stats::{ClassRow, ClassTable, PoolStats};
pub use worker::WorkerStatus;
