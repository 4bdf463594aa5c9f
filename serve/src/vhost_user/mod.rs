//! Disks for virtual machines: vhost-user-blk, the device side of a virtio block device.
//!
//! ```text
//!   guest:     rings and data in its memory ----- shared -----> worker: a thread for each queue
//!   frontend:  QEMU, Cloud Hypervisor, .. -- messages --> frontend: sets up rings and memory
//!
//!   server -> frontend -> ring -> worker -> request -> chain -> memory
//! ```
//!
//! Invariant: whatever a guest puts into its memory, at whatever moment, costs it its own queue at
//! most. A frontend that takes the memory away loses its queues.
//!
//! Locks: the seat of the frontend and the places where rings were left, both leaves. No disk is
//! called and no guest is waited for under them.

mod chain;
mod features;
mod frontend;
mod memory;
mod request;
mod ring;
mod server;
mod wire;
mod worker;

pub use server::{VhostUser, VhostUserConfig};
