//! The unsafe fence: memory from the system, and the locks that guard it.
//!
//! ```text
//!   user                what it gets                    what keeps it sound
//!   ----                ------------                    -------------------
//!   zsmalloc            Arena: frames by number         a token per claim, a bit per frame
//!   zsmalloc, stores    Table<T>: zeroed, lazy, typed   elements are atomics, all-zero is valid
//!   all crates above    Lock<T>, BitLockWaiters, Event  futexes; ranks asserted in debug builds
//!   region              Span, Staging, fault            one lender; missing pages wait
//!   crates with threads thread: without signals         the new thread inherits the mask
//!   serve               Pages: buffers of its own       an owned mapping, lent as a slice
//!   serve               peer_process                    the kernel names the peer of a socket
//!   the tools           cpu, clock, limits, smaps       text parsers without side effects
//!   programs            bound_heap                      numbers of the C library's allocator
//!   the lab             Swappable: memory to be swapped an owned mapping, lent as a slice
//!   the lab             give_back_heap                  calls of malloc's libraries, by name
//!   tests               FailureInjector                 owned by the test that builds an arena
//! ```
//!
//! Words
//! - *frame*, *PFN*: 4096 bytes of arena memory, and its number
//! - *claimed*: a [`Run`] token for the frame exists
//! - *resident*: the frame has been touched
//! - *held*, of a table page: an entry on it has been touched
//!
//! Invariant H1: at most one [`Run`] covers a frame. The claim is an atomic operation on the
//! arena's own bits. An allocator that hands a frame out twice meets [`ClaimError::InUse`], never
//! aliasing. Soundness here does not rest on any crate above.
//!
//! Invariant H2: a mapping never merges with a neighbour and never uses huge pages, so that its
//! resident size in `/proc/self/smaps` is exactly the frames that were touched.

mod arena;
mod bitlock;
mod bits;
mod cgroup;
mod copy;
#[cfg(not(miri))]
mod discard;
mod error;
mod event;
mod futex;
#[cfg(not(miri))]
mod heap;
mod heap_bounds;
#[cfg(not(any(loom, shuttle, miri)))]
mod home;
mod lock;
mod mapping;
mod pages;
mod peer;
mod prefetch;
mod rank;
mod run;
#[cfg(not(any(loom, shuttle, miri)))]
mod span;
#[cfg(not(any(loom, shuttle, miri)))]
mod staging;
mod steps;
#[cfg(not(any(loom, miri)))]
mod swappable;
mod table;
#[cfg(not(any(loom, shuttle, miri)))]
mod transfer;
#[cfg(not(any(loom, shuttle, miri)))]
mod uffd;
mod zeroed;

pub mod clock;
pub mod cpu;
#[cfg(not(shuttle))]
pub mod fault;
pub mod faults;
pub mod limits;
pub mod smaps;
pub mod sync;
pub mod thread;

pub use arena::{Arena, FRAMES_MAX, NUMBERED_FRAMES_MIN, Purged};
pub use bitlock::BitLockWaiters;
pub use copy::copy_past_caches;
pub use error::{ClaimError, ForeignRun, HostDefect, HostError};
pub use event::Event;
pub use faults::FailureInjector;
#[cfg(not(miri))]
pub use heap::give_back_heap;
pub use heap_bounds::bound_heap;
pub use lock::{Lock, LockGuard, LockWord};
pub use pages::Pages;
pub use peer::peer_process;
pub use prefetch::{prefetch, prefetch_bytes};
pub use rank::{Held, Rank};
pub use run::{RawRun, Run};
#[cfg(not(any(loom, shuttle, miri)))]
pub use span::{GONE, Span, SpanMemory, Userfault};
#[cfg(not(any(loom, shuttle, miri)))]
pub use staging::{SEGMENT_PAGES, Segment, Staging};
#[cfg(not(any(loom, miri)))]
pub use swappable::Swappable;
pub use table::Table;
#[cfg(not(any(loom, shuttle, miri)))]
pub use transfer::{Stop, Transfer};
#[cfg(not(any(loom, shuttle, miri)))]
pub use uffd::{FaultMode, UserfaultError};
pub use zeroed::Zeroed;

/// Bytes in a page of client data, and in a frame.
pub const PAGE_SIZE: usize = 4096; // 4 KiB

const _: () = assert!(PAGE_SIZE.is_power_of_two(), "offsets are split with masks");
