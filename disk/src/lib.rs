//! The definition of a block device.
//!
//! A [`Disk`] is an array of bytes of fixed size. It can be read, written, discarded and zeroed at
//! any offset. All code that stores pages and all code that serves them meets at this trait.
//! Servers (NBD, FUSE) hold a `dyn Disk`. The compressed disk is one, and it writes its cold pages
//! back to another.
//!
//! ```text
//!        server          server      write-back
//!           \              |             /
//!            '---------  Disk  ---------'
//!                 /    |     |      \
//!            zram  RamDisk  FileDisk  NbdDisk  FaultyDisk<D>  ReadOnly<D>
//! ```
//!
//! | item | what it is for |
//! |---|---|
//! | [`Disk`] | the contract: what a disk checks, and what its caller |
//! | [`DiskError`] | what can go wrong, worded for the peer, with its `errno` |
//! | [`RamDisk`] | a reference: one lock and at most one buffer per page, nothing clever |
//! | [`FaultyDisk`] | fails on a countdown, for tests of the code above |
//! | [`FileDisk`] | a file or a block device |
//! | [`NbdDisk`] | a disk of an NBD server, perhaps on another machine |
//! | [`Flights`] | writes that are under way at the same time, and what became of them |
//! | [`loops_over`] | loop devices over a file |
//! | [`ReadOnly`] | refuses to change what it wraps |
//! | [`conformance`] | the contract as a suite, to be run over every implementation |
//!
//! Requests are synchronous: a call returns when its effect is visible to every later call. A
//! caller that wants several requests at once calls from several threads.
#![forbid(unsafe_code)]

pub mod conformance;
mod contract;
mod disks;
mod remote;

pub use contract::{
    Allocation, Disk, DiskError, Extent, ExtentKind, FileDisk, check_range, loops_over,
};
pub use disks::{
    Fault, FaultPlan, FaultSpan, FaultyDisk, Flights, Landed, RamDisk, ReadOnly, Seal, Verbs,
};
pub use remote::{NbdDisk, NbdReport};
