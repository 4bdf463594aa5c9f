//! A userfaultfd that also takes the kernel's own faults, and tells what the program does with its
//! memory.
//!
//! ```text
//!   a touch, in the program or in a system call   Event::Fault       sleeps until COPY or WAKE
//!   a write to a guarded page                     Event::Fault       the same, or WRITEPROTECT
//!   munmap, MAP_FIXED, brk down                   Event::Gone        sleeps until it is read
//!   MADV_DONTNEED, MADV_FREE                      Event::Gone        the same
//!   mremap                                        Event::Moved       the same
//!   fork                                          Event::Forked      the same
//! ```
//!
//! While an event is unread, COPY and MOVE answer EAGAIN. So what is known about an address is true
//! whenever a page of it moves.
//!
//! Invariant: `Fault` and `Moved` speak of registered memory. Lock: none.
//!
//! Numbers and layouts are those of `linux/userfaultfd.h`. Their meaning is in the manual pages
//! `userfaultfd(2)`, `UFFDIO_COPY(2const)` and `UFFDIO_MOVE(2const)`.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::places::PAGE;

const API: u64 = 0xAA;
const EVENT_FORK: u64 = 1 << 1;
const EVENT_REMAP: u64 = 1 << 2;
const EVENT_REMOVE: u64 = 1 << 3;
const EVENT_UNMAP: u64 = 1 << 6;
const FEATURE_GUARD: u64 = 1;
const FEATURE_THREAD_ID: u64 = 1 << 8;
const FEATURE_MOVE: u64 = 1 << 16;
const EVENTS: u64 = EVENT_FORK | EVENT_REMAP | EVENT_REMOVE | EVENT_UNMAP;
const FEATURES: u64 = EVENTS | FEATURE_GUARD | FEATURE_THREAD_ID | FEATURE_MOVE;
/// `UFFDIO_REGISTER_MODE_MISSING` and `UFFDIO_REGISTER_MODE_WP`.
const REGISTER_MODES: u64 = 1 | 2;

/// `_IOC(dir, 0xAA, number, bytes)`.
const fn request(direction: u64, number: u64, bytes: usize) -> u64 {
    direction << 30 | (bytes as u64) << 16 | API << 8 | number
}

const READ_WRITE: u64 = 3;
const READ: u64 = 2;
const IOC_NEW: u64 = request(0, 0x00, 0);
const IOC_API: u64 = request(READ_WRITE, 0x3F, 24);
const IOC_REGISTER: u64 = request(READ_WRITE, 0x00, 32);
const IOC_UNREGISTER: u64 = request(READ, 0x01, 16);
const IOC_WAKE: u64 = request(READ, 0x02, 16);
const IOC_COPY: u64 = request(READ_WRITE, 0x03, 40);
const IOC_MOVE: u64 = request(READ_WRITE, 0x05, 40);
const IOC_WRITEPROTECT: u64 = request(READ_WRITE, 0x06, 24);
/// `UFFDIO_WRITEPROTECT_MODE_WP` and `UFFDIO_WRITEPROTECT_MODE_DONTWAKE`.
const GUARD: u64 = 1;
const UNGUARD_DONT_WAKE: u64 = 2;
/// `UFFDIO_COPY_MODE_DONTWAKE` and `UFFDIO_MOVE_MODE_DONTWAKE`.
const DONT_WAKE: u64 = 1;

/// Messages of one read.
pub(crate) const MESSAGES: usize = 32;

/// What the kernel tells.
#[derive(Debug)]
pub(crate) enum Event {
    /// A thread waits for the page at an address.
    Fault(Fault),
    /// The content of a range is gone.
    Gone { range: Range<usize>, unmapped: bool },
    /// Memory moved to another place.
    Moved { from: usize, to: usize, len: usize },
    /// A child has a copy of the memory. Its faults and events come by this descriptor.
    Forked(Uffd),
}

/// A thread that waits for a page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fault {
    /// The first byte of the page.
    pub(crate) address: usize,
    pub(crate) thread: u32,
    /// The page is there, and the thread wants to write to it.
    pub(crate) is_guarded: bool,
}

/// How far a transfer came: the pages done from the first on, and the error at which it stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) pages: usize,
    /// 0 if it did not stop.
    pub(crate) errno: i32,
}

/// An open userfaultfd.
#[derive(Debug)]
pub(crate) struct Uffd {
    fd: OwnedFd,
    /// Pages are put in place without waking threads that wait for them.
    asleep: AtomicBool,
}

impl Uffd {
    /// Opens one for this process.
    ///
    /// # Errors
    ///
    /// What the system answers. EPERM and EACCES mean that a privilege is missing, and EINVAL that
    /// the kernel has no MOVE (Linux 6.8).
    pub(crate) fn open() -> io::Result<Uffd> {
        let uffd = Uffd::new(open_device().or_else(|_| open_call())?);
        // struct uffdio_api: api, features, ioctls.
        uffd.ask(IOC_API, &mut [API, FEATURES, 0])?;
        Ok(uffd)
    }

    fn new(fd: OwnedFd) -> Uffd {
        Uffd { fd, asleep: AtomicBool::new(false) }
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Does `put`, without waking threads that wait for the pages that it puts in place.
    pub(crate) fn without_waking<T>(&self, put: impl FnOnce() -> T) -> T {
        // relaxed: the thread that put pages in place is this one.
        self.asleep.store(true, Ordering::Relaxed);
        let done = put();
        // relaxed: as above.
        self.asleep.store(false, Ordering::Relaxed);
        done
    }

    /// Registers a range. From now on a touch of a missing page there is a fault.
    pub(crate) fn register(&self, range: &Range<usize>) -> io::Result<()> {
        // struct uffdio_register: start, len, mode, ioctls.
        let [start, len] = words(range);
        self.ask(IOC_REGISTER, &mut [start, len, REGISTER_MODES, 0])
    }

    /// Guards the pages that are in memory in a registered range: the next write to one of them is
    /// a fault.
    ///
    /// # Errors
    ///
    /// What the system answers. A part of the range may be guarded then.
    pub(crate) fn guard(&self, range: &Range<usize>) -> io::Result<()> {
        // struct uffdio_writeprotect: start, len, mode.
        let [start, len] = words(range);
        self.ask(IOC_WRITEPROTECT, &mut [start, len, GUARD])
    }

    /// Lets threads write to a range, and wakes those that wait to. If the system refuses, they are
    /// woken all the same, and ask again.
    pub(crate) fn unguard(&self, range: &Range<usize>) {
        let [start, len] = words(range);
        // relaxed: as in `transfer`.
        let mode = if self.asleep.load(Ordering::Relaxed) { UNGUARD_DONT_WAKE } else { 0 };
        if self.ask(IOC_WRITEPROTECT, &mut [start, len, mode]).is_err() && mode == 0 {
            let _ = self.ask(IOC_WAKE, &mut words(range));
        }
    }

    /// Gives a range up: a missing page reads as zeros from now on.
    pub(crate) fn unregister(&self, range: &Range<usize>) -> io::Result<()> {
        self.ask(IOC_UNREGISTER, &mut words(range))
    }

    /// Wakes the threads that wait for the page at `address`, so that they look again.
    pub(crate) fn wake(&self, address: usize) {
        let page = address & !(PAGE - 1);
        // An error means that nobody waits there any more.
        let _ = self.ask(IOC_WAKE, &mut words(&(page..page + PAGE)));
    }

    /// Puts copies of `from`, which are whole pages, where pages are missing from `to` on.
    ///
    /// # Safety
    ///
    /// The bytes are those that the program has there, by the book of its memory.
    pub(crate) unsafe fn copy(&self, to: usize, from: &[u8]) -> Progress {
        self.transfer(IOC_COPY, to, from.as_ptr().addr(), from.len())
    }

    /// Moves `pages` pages from `from` on to where they are missing at `to`. The system may move
    /// more than it counts: see `moves`.
    ///
    /// # Safety
    ///
    /// - `from` is registered with this descriptor, so that a touch of what has left is a fault.
    /// - `to` is registered, and what belongs there is what is moved, or it is memory of ours that
    ///   nothing refers to.
    pub(super) unsafe fn move_pages(&self, to: usize, from: usize, pages: usize) -> Progress {
        self.transfer(IOC_MOVE, to, from, pages * PAGE)
    }

    /// Whether all events were read of what the program has done so far.
    pub(crate) fn is_quiet(&self) -> bool {
        // A copy of nothing is refused as invalid, and before that because an event is unread.
        self.transfer(IOC_COPY, 0, 0, 0).errno != libc::EAGAIN
    }

    fn transfer(&self, what: u64, to: usize, from: usize, len: usize) -> Progress {
        // struct uffdio_copy and uffdio_move: dst, src, len, mode, done.
        // relaxed: the thread that put pages in place has written it.
        let mode = if self.asleep.load(Ordering::Relaxed) { DONT_WAKE } else { 0 };
        let mut words = [to as u64, from as u64, len as u64, mode, 0];
        match self.ask(what, &mut words) {
            Ok(()) => Progress { pages: len / PAGE, errno: 0 },
            Err(error) => Progress {
                // A negative number is the error once more, and nothing is done.
                pages: usize::try_from(words[4] as i64).unwrap_or(0) / PAGE,
                errno: error.raw_os_error().unwrap_or(libc::EIO),
            },
        }
    }

    /// Adds what the kernel has to tell to `events`. False if it has no more than that.
    pub(crate) fn read(&self, events: &mut Vec<Event>) -> bool {
        // struct uffd_msg: a byte for the kind, and three words from the second on.
        let mut messages = [[0u64; 4]; MESSAGES];
        let len = size_of_val(&messages);
        // SAFETY: the buffer is as long as the call is told.
        let read = unsafe { libc::read(self.fd(), messages.as_mut_ptr().cast(), len) };
        let count = usize::try_from(read).unwrap_or(0) / size_of::<[u64; 4]>();
        events.extend(messages[..count].iter().filter_map(event));
        count == MESSAGES
    }

    fn ask<const N: usize>(&self, what: u64, argument: &mut [u64; N]) -> io::Result<()> {
        // SAFETY: each request of this file reads and writes as many words as it is given. Its
        // effect on memory is its caller's contract.
        let answer = unsafe { libc::ioctl(self.fd(), what as libc::Ioctl, argument.as_mut_ptr()) };
        if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

fn words(range: &Range<usize>) -> [u64; 2] {
    [range.start as u64, range.len() as u64]
}

/// What a message says; `None` for a kind that was not asked for.
fn event(&[kind, first, second, third]: &[u64; 4]) -> Option<Event> {
    let range = || first as usize..second as usize;
    match kind as u8 {
        // The words are flags, address and thread. UFFD_PAGEFAULT_FLAG_WP is one of the flags.
        0x12 => {
            let address = second as usize & !(PAGE - 1);
            let is_guarded = first & 1 << 1 != 0;
            Some(Event::Fault(Fault { address, thread: third as u32, is_guarded }))
        }
        0x13 => {
            // SAFETY: the kernel has just made the descriptor for the reader of the message.
            Some(Event::Forked(Uffd::new(unsafe { OwnedFd::from_raw_fd(first as u32 as RawFd) })))
        }
        0x14 => {
            Some(Event::Moved { from: first as usize, to: second as usize, len: third as usize })
        }
        0x15 => Some(Event::Gone { range: range(), unmapped: false }),
        0x16 => Some(Event::Gone { range: range(), unmapped: true }),
        _ => None,
    }
}

const FLAGS: i32 = libc::O_CLOEXEC | libc::O_NONBLOCK;

/// Opens a descriptor by the device, whose permissions an administrator can set (Linux 6.1).
/// Whether the system lets this process have one, asked without a C library. A lack of descriptors
/// or memory is no refusal.
#[cfg(inside_program)]
pub(crate) fn is_allowed() -> bool {
    use crate::floor::call::call;
    let path = c"/dev/userfaultfd".as_ptr() as usize;
    let flags = (libc::O_RDWR | libc::O_CLOEXEC) as usize;
    let refusals = [libc::EPERM, libc::EACCES, libc::EINVAL, libc::ENOSYS, libc::ENOENT];
    let is_refused = |answer: isize| refusals.iter().any(|&it| answer == -(it as isize));
    let mut asked = [API, FEATURES, 0];
    // SAFETY: new descriptors that do nothing to memory, and are closed again. The path and the
    // structure live as long.
    unsafe {
        let close = |file: isize| call(libc::SYS_close, [file as usize, 0, 0, 0, 0, 0]);
        let device = call(libc::SYS_open, [path, flags, 0, 0, 0, 0]);
        let mut file = device;
        if device >= 0 {
            let arguments = [device as usize, IOC_NEW as usize, FLAGS as usize, 0, 0, 0];
            file = call(libc::SYS_ioctl, arguments);
            close(device);
        }
        if file < 0 {
            file = call(libc::SYS_userfaultfd, [FLAGS as usize, 0, 0, 0, 0, 0]);
        }
        if file < 0 {
            return !is_refused(file);
        }
        let words = asked.as_mut_ptr() as usize;
        let answer = call(libc::SYS_ioctl, [file as usize, IOC_API as usize, words, 0, 0, 0]);
        close(file);
        !is_refused(answer)
    }
}

fn open_device() -> io::Result<OwnedFd> {
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/userfaultfd")?;
    // SAFETY: the request takes flags and gives a new descriptor.
    owned(unsafe { libc::ioctl(device.as_raw_fd(), IOC_NEW as libc::Ioctl, FLAGS) })
}

fn open_call() -> io::Result<OwnedFd> {
    // SAFETY: a new descriptor has nothing registered and does nothing to memory.
    owned(unsafe { libc::syscall(libc::SYS_userfaultfd, FLAGS) } as RawFd)
}

fn owned(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: a descriptor that the system gives is new, and nothing else owns it.
    if fd >= 0 { Ok(unsafe { OwnedFd::from_raw_fd(fd) }) } else { Err(io::Error::last_os_error()) }
}
