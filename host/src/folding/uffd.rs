//! One userfaultfd: opened with the features that the system allows, and the requests that are made
//! of it.
//!
//! ```text
//!   Signal mode                                    Thread mode
//!   touch a missing page                           touch a missing page, also in a system call
//!     `-> SIGBUS in the thread itself                `-> the thread sleeps, a message is read
//!           `-> COPY, return, try again                    `-> COPY wakes it
//!   no privilege                                   /dev/userfaultfd, CAP_SYS_PTRACE or the sysctl
//! ```
//!
//! A forked child has the descriptor, which is bound to the memory of its parent. A request of the
//! child would change that memory. The child is therefore refused new spans, and a request about
//! existing ones ends it.
//!
//! Callers own the mappings, and check the addresses and lengths that reach this file. The system
//! checks that they are registered.
//!
//! Invariant: a request of another process than the descriptor's own never reaches the system.
//! Lock: none.
//!
//! Numbers and layouts are those of `linux/userfaultfd.h`. Their meaning is in the manual pages
//! `userfaultfd(2)`, `UFFDIO_COPY(2const)` and `UFFDIO_MOVE(2const)`.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::error::{FaultError, FaultMode, exhausted, refused};
use super::home::Home;
use crate::machine::{PAGE_SIZE, die_at, max_map_count};
use rustix::io::Errno;
use rustix::mm::UserfaultfdFlags;

const API: u64 = 0xAA;
const FEATURE_SIGBUS: u64 = 1 << 7;
const FEATURE_THREAD_ID: u64 = 1 << 8;
const FEATURE_MOVE: u64 = 1 << 16;
const REGISTER_MISSING: u64 = 1;
const EVENT_PAGEFAULT: u8 = 0x12;

/// `_IOC(dir, 0xAA, number, bytes)`.
const fn request(direction: u64, number: u64, bytes: usize) -> libc::Ioctl {
    (direction << 30 | (bytes as u64) << 16 | API << 8 | number) as libc::Ioctl
}

const READ_WRITE: u64 = 3;
const READ: u64 = 2;
const IOC_NEW: libc::Ioctl = request(0, 0x00, 0);
const IOC_API: libc::Ioctl = request(READ_WRITE, 0x3F, size_of::<Api>());
const IOC_REGISTER: libc::Ioctl = request(READ_WRITE, 0x00, size_of::<Register>());
const IOC_UNREGISTER: libc::Ioctl = request(READ, 0x01, size_of::<Bytes>());
const IOC_WAKE: libc::Ioctl = request(READ, 0x02, size_of::<Bytes>());
const IOC_COPY: libc::Ioctl = request(READ_WRITE, 0x03, size_of::<CopyOrMove>());
const IOC_MOVE: libc::Ioctl = request(READ_WRITE, 0x05, size_of::<CopyOrMove>());

#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct Bytes {
    start: u64,
    len: u64,
}

#[repr(C)]
struct Register {
    range: Bytes,
    mode: u64,
    ioctls: u64,
}

/// `uffdio_copy` and `uffdio_move`, which have the same layout.
#[repr(C)]
struct CopyOrMove {
    dst: u64,
    src: u64,
    len: u64,
    mode: u64,
    done: i64,
}

/// A message about a missing page (`uffd_msg`, 32 bytes).
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Message {
    event: u8,
    reserved: [u8; 7],
    flags: u64,
    address: u64,
    thread: u32,
    reserved_too: u32,
}

const _: () = assert!(size_of::<Message>() == 32, "the system writes 32 bytes");

/// A page that a thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// The address that the thread touched.
    pub(crate) address: usize,
    /// The system's number of the thread.
    pub(crate) thread: u32,
}

/// How far a request came: the pages done from the first on, and the error at which it stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) pages: usize,
    pub(crate) stopped: Option<Errno>,
}

/// An open userfaultfd.
#[derive(Debug)]
pub(crate) struct Uffd {
    fd: OwnedFd,
    home: Home,
}

impl Uffd {
    /// Opens a userfaultfd with the features that `mode` needs.
    pub(crate) fn open(mode: FaultMode) -> Result<Uffd, FaultError> {
        let asked = if mode == FaultMode::Thread { FEATURE_THREAD_ID } else { FEATURE_SIGBUS };
        let uffd = Uffd { fd: open(mode)?, home: Home::new()? };
        let mut api = Api { api: API, features: asked | FEATURE_MOVE, ioctls: 0 };
        match uffd.ask(IOC_API, 0, &mut api) {
            Ok(()) => Ok(uffd),
            Err(Errno::INVAL) => Err(FaultError::Unsupported { missing: "UFFDIO_MOVE" }),
            Err(error) => Err(exhausted(error).unwrap_or_else(|| refused("UFFDIO_API")(error))),
        }
    }

    /// An error in a child that was forked since the descriptor was opened.
    pub(crate) fn expect_own(&self) -> Result<(), FaultError> {
        if self.home.is_here() { Ok(()) } else { Err(FaultError::Inherited) }
    }

    /// Registers a range. From now on a touch of a missing page there is a fault. The range is
    /// whole pages of one of our mappings, and none of it is registered. If this fails, none of it
    /// is registered then either.
    pub(crate) fn register(&self, range: &Range<usize>) -> Result<(), FaultError> {
        self.expect_own()?;
        let mut register = Register { range: bytes(range), mode: REGISTER_MISSING, ioctls: 0 };
        self.ask(IOC_REGISTER, range.start, &mut register).map_err(|error| {
            // A range of several mappings may be registered in part.
            if self.ask(IOC_UNREGISTER, range.start, &mut bytes(range)).is_err() {
                die_at("a range that is registered in part cannot be left alone", range.start);
            }
            match error {
                Errno::NOMEM => FaultError::Mappings { max: max_map_count() },
                error => refused("UFFDIO_REGISTER")(error),
            }
        })
    }

    /// Wakes the threads that wait for pages of the range, so that they look again.
    pub(crate) fn wake(&self, range: &Range<usize>) -> Result<(), FaultError> {
        self.ask(IOC_WAKE, range.start, &mut bytes(range)).map_err(refused("UFFDIO_WAKE"))
    }

    /// Puts copies of the bytes at `src` where pages are missing at `dst`.
    ///
    /// # Safety
    ///
    /// - `src` is readable for `pages` pages.
    /// - A reader of `dst` through a reference finds the bytes there that the reference promises.
    pub(crate) unsafe fn copy(&self, dst: usize, src: usize, pages: usize) -> Progress {
        // SAFETY: the caller's contract.
        unsafe { self.transfer(IOC_COPY, dst, src, pages) }
    }

    /// Moves the pages at `src` to where they are missing at `dst`.
    ///
    /// # Safety
    ///
    /// - Both ranges are registered parts of mappings of ours.
    /// - A reader of either range through a reference finds the bytes there that the reference
    ///   promises, or faults and waits until it does.
    pub(crate) unsafe fn move_pages(&self, dst: usize, src: usize, pages: usize) -> Progress {
        // SAFETY: the caller's contract.
        unsafe { self.transfer(IOC_MOVE, dst, src, pages) }
    }

    /// # Safety
    ///
    /// Those of [`Uffd::copy`] and [`Uffd::move_pages`].
    unsafe fn transfer(&self, what: libc::Ioctl, dst: usize, src: usize, pages: usize) -> Progress {
        let len = (pages * PAGE_SIZE) as u64;
        let mut transfer = CopyOrMove { dst: dst as u64, src: src as u64, len, mode: 0, done: 0 };
        let stopped = self.ask(what, dst, &mut transfer).err();
        // A negative number is the error once more, and nothing is done.
        let done = usize::try_from(transfer.done).unwrap_or(0) / PAGE_SIZE;
        Progress { pages: if stopped.is_none() { pages } else { done }, stopped }
    }

    /// Writes the pages that threads wait for to `out`, and gives their number. It returns at once.
    pub(crate) fn read(&self, out: &mut [Waiting; 8]) -> io::Result<usize> {
        let mut messages = [Message::default(); 8];
        // SAFETY: the buffer is as long as the call is told, and any bytes are a valid `Message`.
        let read = unsafe {
            libc::read(self.fd.as_raw_fd(), messages.as_mut_ptr().cast(), size_of_val(&messages))
        };
        if read < 0 {
            let error = io::Error::last_os_error();
            let nothing = error.kind() == io::ErrorKind::WouldBlock;
            return if nothing { Ok(0) } else { Err(error) };
        }
        let messages = &messages[..read as usize / size_of::<Message>()];
        let faults = messages.iter().filter(|message| message.event == EVENT_PAGEFAULT);
        Ok(faults
            .zip(out)
            .map(|(message, out)| {
                *out = Waiting { address: message.address as usize, thread: message.thread };
            })
            .count())
    }

    /// A request about memory from `address` on.
    fn ask<T>(&self, what: libc::Ioctl, address: usize, argument: &mut T) -> Result<(), Errno> {
        if !self.home.is_here() {
            die_at("a forked child uses memory of its parent's regions", address);
        }
        // SAFETY: each request of this file reads and writes the structure that its number was made
        // with, and `argument` is that structure. The effect of the request is its caller's
        // contract.
        let answer =
            unsafe { libc::ioctl(self.fd.as_raw_fd(), what, std::ptr::from_mut(argument)) };
        if answer == 0 { Ok(()) } else { Err(last_error()) }
    }
}

impl AsFd for Uffd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn bytes(range: &Range<usize>) -> Bytes {
    Bytes { start: range.start as u64, len: range.len() as u64 }
}

fn last_error() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// The error for an answer of the system to opening a descriptor.
fn not_opened(mode: FaultMode, error: Errno) -> FaultError {
    exhausted(error).unwrap_or_else(|| match error {
        Errno::NOSYS => FaultError::Unsupported { missing: "userfaultfd" },
        Errno::INVAL => FaultError::Unsupported { missing: "UFFD_USER_MODE_ONLY" },
        Errno::PERM | Errno::ACCESS => FaultError::Denied { mode, source: error.into() },
        error => refused("userfaultfd")(error),
    })
}

fn open(mode: FaultMode) -> Result<OwnedFd, FaultError> {
    let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK;
    let opened = if mode == FaultMode::Thread {
        open_device(flags).or_else(|error| match exhausted(error) {
            Some(_) => Err(error),
            // SAFETY: a new descriptor has nothing registered and does nothing to memory.
            None => unsafe { rustix::mm::userfaultfd(flags) },
        })
    } else {
        // SAFETY: as above.
        unsafe { rustix::mm::userfaultfd(flags | user_mode_only()) }
    };
    opened.map_err(|error| not_opened(mode, error))
}

/// `UFFD_USER_MODE_ONLY`, Linux 5.11.
fn user_mode_only() -> UserfaultfdFlags {
    UserfaultfdFlags::from_bits_retain(1)
}

/// Opens a descriptor by the device, whose permissions an administrator can set (Linux 6.1).
fn open_device(flags: UserfaultfdFlags) -> Result<OwnedFd, Errno> {
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/userfaultfd");
    let device = device.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    // SAFETY: the request takes flags and gives a new descriptor.
    let fd = unsafe { libc::ioctl(device.as_raw_fd(), IOC_NEW, flags.bits()) };
    // SAFETY: a descriptor that the system gives is new, and nothing else owns it.
    if fd >= 0 { Ok(unsafe { OwnedFd::from_raw_fd(fd) }) } else { Err(last_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "A seccomp filter has to allow the call" was said of every answer of the system.
    #[test]
    fn each_answer_of_the_system_says_what_it_is() {
        let cases = [
            (Errno::MFILE, "RLIMIT_NOFILE"),
            (Errno::NFILE, "fs.file-max"),
            (Errno::NOMEM, "no memory"),
            (Errno::NOSYS, "has no userfaultfd"),
            (Errno::INVAL, "has no UFFD_USER_MODE_ONLY"),
            (Errno::PERM, "seccomp"),
            (Errno::ACCESS, "seccomp"),
            (Errno::IO, "userfaultfd failed"),
        ];
        for (error, word) in cases {
            let said = not_opened(FaultMode::Signal, error).to_string();
            assert!(said.contains(word), "{error:?}: {said}");
            assert_eq!(said.contains("seccomp"), word == "seccomp", "{error:?}: {said}");
        }
    }
}
