//! Commands to drivers by io_uring, and the memory that a driver fills or reads for them.
//!
//! ```text
//!   FuseRing    queues of a FUSE connection: a request comes with an entry's buffers, and the
//!      |        answer goes back in them
//!   Ring        a submission queue of 128-byte commands and their completions, for one thread
//! ```
//!
//! `Ring` knows no driver. Another driver that takes its commands by io_uring gets a module beside
//! `fuse`.
//!
//! Invariant: memory that a driver may write belongs to the ring, and nobody has a reference to it.
//! A token comes out of the ring with the completion, and is the right to the memory. Lock: none.

#[expect(unsafe_code, reason = "commands with addresses of buffers")]
mod fuse;
#[expect(unsafe_code, reason = "hands commands to the kernel")]
mod ring;

pub use fuse::{Came, FuseEntry, FuseRing};
