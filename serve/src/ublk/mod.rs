//! Disks as block devices of this machine, by the kernel's ublk.
//!
//! ```text
//!   a program, a file system, swap --> /dev/ublkbN --> driver
//!                                                       |  requests, by io_uring
//!   device: added, started, stopped, deleted            v
//!      '--> worker: a thread for each queue --> request --> Disk
//!      '--> parameters, leftovers, holders
//! ```
//!
//! There is no recovery by another server, because what is stored ends with this one. The kernel
//! answers with errors when the server is gone.
//!
//! Invariant: a device that was added is deleted, unless the process is killed. Then the next
//! server deletes it ([`leftovers`]). Locks: that of the threads of a device, a leaf.

mod device;
mod holders;
mod leftovers;
mod parameters;
mod request;
mod worker;

pub use device::{StopError, Ublk, UblkConfig};
