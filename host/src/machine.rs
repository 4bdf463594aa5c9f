//! The lowest room: facts about the machine and the process, and requests to the system.
//!
//! Invariant: nothing here uses another room, or holds memory for a caller. Lock: none.

#[cfg_attr(
    all(target_arch = "x86_64", not(miri)),
    expect(unsafe_code, reason = "stores past the caches, and an instruction that reads nothing")
)]
mod caches;
mod cgroup;
pub mod clock;
#[expect(unsafe_code, reason = "a system call that the C library has")]
pub mod cpu;
#[cfg(not(any(loom, shuttle, miri)))]
#[expect(unsafe_code, reason = "writes the last words without a heap")]
mod end;
#[cfg(not(miri))]
#[expect(unsafe_code, reason = "calls functions of allocators, found by name")]
mod heap;
#[cfg_attr(
    all(target_os = "linux", target_env = "gnu", not(miri)),
    expect(unsafe_code, reason = "a call of the C library")
)]
mod heap_bounds;
pub mod limits;
mod page;
mod pressure;
#[expect(unsafe_code, reason = "descriptors by number, the environment, work before exec")]
mod processes;
pub mod smaps;
#[expect(unsafe_code, reason = "sets of signals, filled by the C library")]
pub mod thread;

#[cfg(not(any(loom, shuttle, miri)))]
#[expect(unsafe_code, reason = "a process that only makes system calls")]
mod witness;

pub use caches::{copy_past_caches, prefetch, prefetch_bytes};
#[cfg(not(any(loom, shuttle, miri)))]
pub use end::{Vital, die, die_at};
#[cfg(not(miri))]
pub use heap::give_back_heap;
pub use heap_bounds::bound_heap;
pub(crate) use limits::max_map_count;
pub use page::PAGE_SIZE;
pub use pressure::Pressure;
pub use processes::{
    end_with_parent, forget_variables, inherit_only_streams, passed_descriptors, peer_process,
};
#[cfg(not(any(loom, shuttle, miri)))]
pub use witness::{WITNESS_NAME, Witness, WitnessPlace, Witnessed};
