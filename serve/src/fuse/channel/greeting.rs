//! The first request of a connection, in which version, features and sizes are agreed on.
//!
//! Invariant: only features that the kernel offers are agreed on. Locks: that of the buffers.

use super::request::{Buffers, DATA_MAX};
use super::wire::{self, Body, Call, Hello};
use crate::terms::limits::PAGE;
use rustix::io::{self, Errno};
use std::io::IoSlice;
use std::os::fd::OwnedFd;

/// How many requests the kernel may have under way for itself. A loop device asks for 128.
const BACKGROUND_MAX: u16 = 128;
/// The minor version of protocol 7 that is needed, which is that of Linux 5.4.
const MINOR_MIN: u32 = 31;
/// The minor version that is spoken.
const MINOR: u32 = 38;

/// What the kernel is asked to do if it can.
mod feature {
    /// Several reads of a file may be under way at once.
    pub(super) const ASYNC_READ: u64 = 1 << 0;
    /// `O_TRUNC` comes with the open, as a flag.
    pub(super) const ATOMIC_O_TRUNC: u64 = 1 << 3;
    /// Writes of more than a page.
    pub(super) const BIG_WRITES: u64 = 1 << 5;
    /// Asynchronous direct requests are under way together, as those of a loop device.
    pub(super) const ASYNC_DIO: u64 = 1 << 15;
    /// Several look-ups in a directory may be under way at once.
    pub(super) const PARALLEL_DIROPS: u64 = 1 << 18;
    /// A request may have up to `max_pages` pages.
    pub(super) const MAX_PAGES: u64 = 1 << 22;
    /// The kernel does not ask for set-user-ID bits before each write.
    pub(super) const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    /// There are more than 32 flags.
    pub(super) const INIT_EXT: u64 = 1 << 30;
    /// Requests come by io_uring.
    pub(super) const OVER_IO_URING: u64 = 1 << 41;
    /// A file may be mapped even if it is read and written directly.
    pub(super) const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;

    pub(super) const WANTED: u64 = ASYNC_READ
        | ATOMIC_O_TRUNC
        | BIG_WRITES
        | ASYNC_DIO
        | PARALLEL_DIROPS
        | MAX_PAGES
        | HANDLE_KILLPRIV_V2
        | INIT_EXT
        | DIRECT_IO_ALLOW_MMAP;
}

/// The kernel's greeting, which is to be answered.
pub(super) struct Greeting {
    unique: u64,
    hello: Hello,
}

impl Greeting {
    /// Receives the greeting. It is an error if the kernel's protocol is too old.
    pub(super) fn receive(device: &OwnedFd, buffers: &Buffers) -> std::io::Result<Self> {
        let gone = |_| std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
        let mut request = buffers.take().map_err(|_| std::io::ErrorKind::OutOfMemory)?;
        io::retry_on_intr(|| request.read(device)).map_err(gone)?;
        let Ok((caller, Ok(Call::Init(hello)))) = wire::parse(request.bytes()) else {
            return Err(std::io::ErrorKind::InvalidData.into());
        };
        if hello.major != 7 || hello.minor < MINOR_MIN {
            let header = wire::answer_header(caller.unique, Err(Errno::PROTO));
            let _ = io::write(device, &header);
            return Err(std::io::ErrorKind::Unsupported.into());
        }
        Ok(Self { unique: caller.unique, hello })
    }

    /// Whether requests may come by io_uring.
    pub(super) fn offers_ring(&self) -> bool {
        let needed = feature::INIT_EXT | feature::OVER_IO_URING;
        self.hello.flags & needed == needed
    }

    /// Agrees with the kernel on version and features. With `ring` it agrees on io_uring, and on
    /// requests of so many bytes at most.
    pub(super) fn answer(&self, device: &OwnedFd, ring: Option<usize>) -> std::io::Result<()> {
        let mut body = Body::default();
        agree(&self.hello, ring, &mut body);
        let header = wire::answer_header(self.unique, Ok(body.bytes().len()));
        io::writev(device, &[IoSlice::new(&header), IoSlice::new(body.bytes())])?;
        Ok(())
    }
}

fn agree(hello: &Hello, ring: Option<usize>, body: &mut Body) {
    let wanted = feature::WANTED | if ring.is_some() { feature::OVER_IO_URING } else { 0 };
    let flags = hello.flags & wanted;
    let data = ring.unwrap_or(DATA_MAX);
    body.u32(7).u32(MINOR).u32(hello.max_readahead).u32(flags as u32);
    body.u16(BACKGROUND_MAX).u16(BACKGROUND_MAX / 4 * 3).u32(data as u32);
    body.u32(1).u16((data / PAGE) as u16).u16(0).u32((flags >> 32) as u32).zeros(28);
}
