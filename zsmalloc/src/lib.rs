//! placeholder
#![deny(unsafe_code)]
mod cell;
mod check;
mod class;
mod compact;
mod descriptor;
mod descriptor_heap;
mod error;
mod geometry;
mod group;
mod handle;
mod leaf;
mod memory;
mod object;
mod pool;
mod release;
mod stats;
mod word;
#[expect(unsafe_code, reason = "the fence: payload of zspages, see its invariants")]
mod zspage;

pub use cell::{CellGuard, Content};
pub use check::{PoolCheck, PoolDefect};
pub use error::{AllocError, ForeignHandle, MemoryError, StaleLeaf};
pub use geometry::{CLASSES, ChainSize, ClassIndex, Geometry, OBJECTS_MAX, Rule, SIZE_MAX, SIZE_MIN, Shape};
pub use group::GROUPS;
pub use handle::{Handle, ReadGuard};
pub use leaf::{LEAF_CELLS, LeafId};
pub use memory::{Memory, MemoryConfig};
pub use object::Object;
pub use pool::{Pool, PoolConfig};
pub use stats::{ClassRow, ClassTable, PoolStats};
pub use host::smaps::page_table_bytes;
pub use host::{HostError, PAGE_SIZE, Table, Zeroed, cpu, limits};
