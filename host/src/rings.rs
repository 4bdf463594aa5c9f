//! Commands to drivers by io_uring, and the memory that a driver fills or reads for them.
//!
//! ```text
//!   FuseRing    queues of a FUSE connection: a request comes with an entry's buffers, and the
//!      |        answer goes back in them
//!   UblkQueue   requests of a ublk device, by tags; UblkControl makes and ends such devices
//!      |
//!   Ring        a submission queue of 128-byte commands and their completions, for one thread
//! ```
//!
//! `Ring` knows no driver. A driver that takes its commands by io_uring has a module beside it.
//!
//! Invariant: memory that a driver may write belongs to the ring, and nobody has a reference to it.
//! A token comes out of the ring with the completion, and is the right to the memory. Lock: none.

#[expect(unsafe_code, reason = "commands with addresses of buffers")]
mod fuse;
#[expect(unsafe_code, reason = "hands commands to the kernel")]
mod ring;
#[expect(unsafe_code, reason = "commands, and descriptors that the kernel writes")]
mod ublk;
#[expect(unsafe_code, reason = "commands with addresses of buffers")]
mod ublk_control;

pub use fuse::{Came, FuseEntry, FuseRing};
pub use ublk::{UBLK_DEPTH_MAX, UblkCame, UblkDevice, UblkQueue, UblkRequest};
pub use ublk_control::{UBLK_USER_COPY, UblkControl, UblkInfo};
