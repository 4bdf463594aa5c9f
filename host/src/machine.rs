//! The lowest room: facts about the machine and the process, and requests to the system.
//!
//! Invariant: nothing here uses another room, or holds memory for a caller. Lock: none.

mod cgroup;
pub mod clock;
mod copy;
pub mod cpu;
#[cfg(not(any(loom, shuttle, miri)))]
mod end;
#[cfg(not(miri))]
mod heap;
mod heap_bounds;
pub mod limits;
mod page;
mod peer;
mod prefetch;
pub mod smaps;
pub mod thread;

pub use copy::copy_past_caches;
#[cfg(not(any(loom, shuttle, miri)))]
pub use end::{Vital, die, die_at};
#[cfg(not(miri))]
pub use heap::give_back_heap;
pub use heap_bounds::bound_heap;
pub(crate) use limits::max_map_count;
pub use page::PAGE_SIZE;
pub use peer::peer_process;
pub use prefetch::{prefetch, prefetch_bytes};
