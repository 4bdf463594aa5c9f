//! The unsafe fence: memory from the system, and the locks that guard it.
//!
//! ```text
//!   user                what it gets                    what keeps it sound
//!   ----                ------------                    -------------------
//!   zsmalloc            Arena: frames by number         a token per claim, a bit per frame
//!   zsmalloc, stores    Table<T>: zeroed, lazy, typed   elements are atomics, all-zero is valid
//!   all crates above    Lock<T>, BitLockWaiters, Event  futexes; ranks asserted in debug builds
//!   region              Span, Staging, fault            one lender; missing pages wait
//!   serve               Lent: memory of machines        zeros in place of pages that are gone
//!   capi                Home                            a page that is empty in a forked child
//!   crates with threads thread: without signals         the new thread inherits the mask
//!   serve               Pages: buffers of its own       an owned mapping, lent as a slice
//!   serve               FuseRing: requests by io_uring  an entry's memory has one owner
//!   serve               UblkQueue: requests by tags     no command names memory
//!   serve               peer_process                    the kernel names the peer of a socket
//!   serve               passed_descriptors              copies; nothing that was passed is closed
//!   run                 Witness: signals of the group   a process of system calls only
//!   the tools           cpu, clock, limits, smaps       text parsers without side effects
//!   programs            bound_heap                      numbers of the C library's allocator
//!   the lab             Swappable: memory to be swapped an owned mapping, lent as a slice
//!   the lab             give_back_heap                  calls of malloc's libraries, by name
//!   tests               FailureInjector                 owned by the test that builds an arena
//! ```
//!
//! Words
//! - *frame*, *PFN*: 4096 bytes of arena memory, and its number
//! - *claimed*, of a frame: a [`Run`] token for it exists
//! - *resident*, of a frame: it was touched, and not purged since
//! - *held*, of a page of a table: an entry on it was touched, and the page not discarded since
//! - *open*, of a part of a reservation: it may be written
//! - *span*: the address range of a region, whose missing pages are faults
//! - *staging*, *segment*: memory between a span and its store; 64 pages of it with one owner
//! - *fault*: a touch of a missing page; its *server* brings the page in
//!
//! Invariant H1: at most one [`Run`] covers a frame. The claim is an atomic operation on the bits
//! of the arena. An allocator that hands a frame out twice gets [`ClaimError::InUse`], and never
//! aliasing. Soundness does not rest on any crate above.
//!
//! Invariant H2: a mapping never merges with a neighbour and never uses huge pages. Its resident
//! size in `/proc/self/smaps` is therefore exactly the frames that were touched.
//!
//! Locks: each has a [`Rank`], and debug builds assert the order of ranks. Nothing here calls a
//! caller's code while it holds one.

#![deny(unsafe_code)]

#[cfg(not(shuttle))]
pub mod fault;
#[cfg(not(any(loom, shuttle, miri)))]
mod folding;
mod locks;
mod machine;
mod memory;
#[cfg(not(any(loom, shuttle, miri)))]
mod rings;
#[cfg(not(any(loom, shuttle, miri)))]
mod staging;
pub mod sync;

#[cfg(not(any(loom, shuttle, miri)))]
pub use folding::{
    FaultError, FaultMode, FaultPath, GONE, Home, SEGMENT_PAGES, Span, SpanAddress, SpanMemory,
    Stop, Transfer,
};
pub use locks::{BitLockWaiters, Event, HeldRank, Lock, LockGuard, LockWord, Rank, unmodelled};
pub use locks::{RankedMutex, RankedMutexGuard, RankedReadGuard, RankedRwLock, RankedWriteGuard};
#[cfg(not(miri))]
pub use machine::give_back_heap;
pub use machine::{
    PAGE_SIZE, Pressure, bound_heap, clock, copy_past_caches, cpu, end_with_parent,
    forget_variables, inherit_only_streams, limits, passed_descriptors, peer_process, prefetch,
    prefetch_bytes, smaps, thread,
};
#[cfg(not(any(loom, shuttle, miri)))]
pub use machine::{WITNESS_NAME, Witness, WitnessPlace, Witnessed};
#[cfg(not(any(loom, miri)))]
pub use memory::Swappable;
#[cfg(not(any(loom, shuttle, miri)))]
pub use memory::inherit_all;
pub use memory::{
    Arena, ClaimError, FRAMES_MAX, FailureInjector, ForeignRun, HostDefect, HostError,
    NUMBERED_FRAMES_MIN, Pages, Pfn, Purged, RawRun, Run, Table, Zeroed, faults,
};
#[cfg(not(any(loom, shuttle, miri)))]
pub use rings::{
    Came, FuseEntry, FuseRing, UBLK_DEPTH_MAX, UBLK_USER_COPY, UblkCame, UblkControl, UblkDevice,
    UblkInfo, UblkQueue, UblkRequest,
};
#[cfg(not(any(loom, shuttle, miri)))]
pub use staging::{Segment, Staging};
pub use sync::fork;
