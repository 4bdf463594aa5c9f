//! A queue of a ublk device (linux/ublk_cmd.h, the user interface of Linux 6.5), for one thread.
//!
//! ```text
//!            fetch                                      answer (and fetch the next)
//!   tag k --------> with the kernel --request--> UblkRequest --------> with the kernel
//!                          '--- the device is stopped: UblkCame::Over
//!
//!   descriptors   op and flags.4 sectors.4 sector.8 address.8   an array by tag, written by the
//!                                                               kernel, mapped to be read
//!   commands      queue.2 tag.2 result.4 address.8
//!   data          read and written at ublkcN, at 2^31 + queue * 2^41 + tag * 2^25
//! ```
//!
//! The device has `USER_COPY`: data is copied by `pread` and `pwrite`, and a command names no
//! memory. Therefore the kernel never has an address of ours.
//!
//! Invariants
//! - U1. A tag is either with the kernel or in one `UblkRequest`. The kernel writes the tag's
//!   descriptor only while it has the tag.
//! - U2. The device is the driver's own node, so the kernel reads the commands as they are meant.
//!
//! Lock: none.

use super::ring::Ring;
use crate::machine::PAGE_SIZE;
use io_uring::{opcode, types};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, pread, pwrite};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

/// The most requests that a queue can have.
pub const UBLK_DEPTH_MAX: u16 = 4096;
/// Bytes of a descriptor.
const DESCRIPTOR: usize = 24;
/// Bytes of the addresses at which the kernel maps the descriptors of one queue.
const QUEUE_STRIDE: usize = (UBLK_DEPTH_MAX as usize * DESCRIPTOR).next_multiple_of(PAGE_SIZE);
const _: () = assert!(QUEUE_STRIDE == 98304, "as the kernel rounds it with pages of 4 KiB");
/// Where the data of requests begins in the file, and the bits of a request's place there.
const DATA: u64 = 0x8000_0000;
const TAG_SHIFT: u32 = 25;
const QUEUE_SHIFT: u32 = 41;
/// The two commands, which carry 16 bytes.
const FETCH: u32 = command(true, 16, 0x20);
const COMMIT_AND_FETCH: u32 = command(true, 16, 0x21);

/// The number of a command, as the kernel's `_IOR` and `_IOWR` make it: its direction, its bytes,
/// `u`, and its own number. Every machine that we run on has these places.
pub(super) const fn command(writes: bool, bytes: u32, number: u32) -> u32 {
    const READ: u32 = 2 << 30;
    const WRITE: u32 = 1 << 30;
    READ | if writes { WRITE } else { 0 } | bytes << 16 | (b'u' as u32) << 8 | number
}

/// What came out of a queue.
#[derive(Debug)]
pub enum UblkCame {
    /// A request. It must be answered.
    Request(UblkRequest),
    /// A tag is gone, because the kernel refused it or the device was stopped.
    Over(Errno),
}

/// A request: the right to its tag.
#[derive(Debug)]
pub struct UblkRequest {
    tag: u16,
    /// The operation in its first 8 bits, and flags.
    pub op_flags: u32,
    /// Sectors of 512 bytes.
    pub sectors: u32,
    /// The first of them.
    pub start_sector: u64,
}

/// The server's end of a device: `/dev/ublkcN`. One process at a time has it.
#[derive(Clone, Debug)]
pub struct UblkDevice(Arc<OwnedFd>);

impl UblkDevice {
    /// Opens the device of a number.
    ///
    /// # Errors
    ///
    /// The system's: `EBUSY` if a process has it, `NotFound` if there is none.
    pub fn open(id: u32) -> io::Result<UblkDevice> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let device = open(format!("/dev/ublkc{id}"), flags, Mode::empty())?;
        Ok(UblkDevice(Arc::new(device)))
    }
}

/// A queue of a device, for the thread that made it.
pub struct UblkQueue {
    ring: Ring,
    device: UblkDevice,
    number: u16,
    depth: u16,
    descriptors: Descriptors,
}

impl UblkQueue {
    /// The queue `number` of a device. `depth` is that of the device. This thread is the one that
    /// uses it.
    ///
    /// # Errors
    ///
    /// The system's: it refuses io_uring or the mapping, or has too little memory.
    pub fn new(device: UblkDevice, number: u16, depth: u16) -> io::Result<UblkQueue> {
        let ring = Ring::new()?;
        ring.enable()?;
        let descriptors = Descriptors::map(&device, number, depth)?;
        Ok(UblkQueue { ring, device, number, depth, descriptors })
    }

    /// Gives the kernel every tag. A tag that it refuses comes out as [`UblkCame::Over`].
    ///
    /// # Errors
    ///
    /// The system's. The queue is of no use then.
    pub fn fetch(&mut self) -> io::Result<()> {
        for tag in 0..self.depth {
            self.submit(FETCH, tag, 0)?;
        }
        self.ring.enter(0, None)
    }

    /// How many requests it can have.
    pub fn depth(&self) -> u16 {
        self.depth
    }

    /// Answers a request, and has the kernel fetch the next one for its tag. This happens in the
    /// next [`UblkQueue::wait`]. `result` is a number of bytes, or a negative error number.
    ///
    /// # Errors
    ///
    /// The system's, if it does not let this thread submit.
    pub fn answer(&mut self, request: UblkRequest, result: i32) -> io::Result<()> {
        self.submit(COMMIT_AND_FETCH, request.tag, result)
    }

    /// Hands all answers to the kernel, and waits until something comes or `timeout` is over.
    ///
    /// # Errors
    ///
    /// The system's. The queue is of no use then.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.ring.enter(1, timeout)
    }

    /// The next thing that came. `None` if nothing is left to be looked at.
    pub fn came(&mut self) -> Option<UblkCame> {
        let completion = self.ring.reap()?;
        let tag = completion.number as u16;
        Some(match completion.result {
            Ok(_) => UblkCame::Request(self.descriptors.request(tag)),
            Err(errno) => UblkCame::Over(errno),
        })
    }

    /// Fills `data` with what is to be written, from byte `at` of the request on.
    ///
    /// # Errors
    ///
    /// The system's: the request has not so many bytes, or is not to be written.
    pub fn take(&self, request: &UblkRequest, at: u64, data: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < data.len() {
            let from = place(self.number, request.tag) + at + done as u64;
            match pread(&self.device.0, &mut data[done..], from) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(len) => done += len,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Puts `data` where it was read for, from byte `at` of the request on.
    ///
    /// # Errors
    ///
    /// The system's: the request has no room for so many bytes, or is not to be read.
    pub fn put(&self, request: &UblkRequest, at: u64, data: &[u8]) -> io::Result<()> {
        let mut done = 0;
        while done < data.len() {
            let to = place(self.number, request.tag) + at + done as u64;
            match pwrite(&self.device.0, &data[done..], to) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(len) => done += len,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn submit(&mut self, command: u32, tag: u16, result: i32) -> io::Result<()> {
        let device = types::Fd(self.device.0.as_raw_fd());
        let command = opcode::UringCmd80::new(device, command);
        let command = command.cmd(arguments(self.number, tag, result)).build();
        // SAFETY: the command names no memory (U2).
        unsafe { self.ring.push(&command.user_data(u64::from(tag))) }
    }
}

impl fmt::Debug for UblkQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UblkQueue").field("number", &self.number).finish_non_exhaustive()
    }
}

/// The bytes of a command.
fn arguments(queue: u16, tag: u16, result: i32) -> [u8; 80] {
    let mut bytes = [0; 80];
    bytes[0..2].copy_from_slice(&queue.to_ne_bytes());
    bytes[2..4].copy_from_slice(&tag.to_ne_bytes());
    bytes[4..8].copy_from_slice(&result.to_ne_bytes());
    bytes
}

/// Where the data of a request is in the file.
fn place(queue: u16, tag: u16) -> u64 {
    DATA + (u64::from(queue) << QUEUE_SHIFT) + (u64::from(tag) << TAG_SHIFT)
}

/// The descriptors of a queue, which the kernel writes.
struct Descriptors {
    base: NonNull<u8>,
    len: usize,
    depth: u16,
}

impl Descriptors {
    fn map(device: &UblkDevice, queue: u16, depth: u16) -> io::Result<Descriptors> {
        let len = (usize::from(depth) * DESCRIPTOR).next_multiple_of(PAGE_SIZE);
        let (null, from) = (std::ptr::null_mut(), (usize::from(queue) * QUEUE_STRIDE) as u64);
        // SAFETY: a new mapping, at addresses that the system chooses.
        let base = unsafe { mmap(null, len, ProtFlags::READ, MapFlags::SHARED, &device.0, from) }?;
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        Ok(Descriptors { base, len, depth })
    }

    /// The request that the kernel has described for a tag, which it has just given to us (U1).
    fn request(&self, tag: u16) -> UblkRequest {
        assert!(tag < self.depth, "the kernel completes what was submitted");
        let mut words = [0; DESCRIPTOR / 8];
        for (number, word) in words.iter_mut().enumerate() {
            // SAFETY: the array is mapped for as long as `self` lives, and has `depth` descriptors
            // of three aligned words. The read is volatile because the kernel writes there.
            *word = unsafe {
                let descriptor = self.base.add(usize::from(tag) * DESCRIPTOR);
                descriptor.cast::<u64>().add(number).read_volatile()
            };
        }
        parse(tag, words)
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody has a reference to it.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "a mapping of ours can be unmapped");
    }
}

/// A descriptor's words as a request.
fn parse(tag: u16, words: [u64; 3]) -> UblkRequest {
    let mut halves = [[0; 4]; 2];
    let first = words[0].to_ne_bytes();
    halves[0].copy_from_slice(&first[..4]);
    halves[1].copy_from_slice(&first[4..]);
    let [op_flags, sectors] = halves.map(u32::from_ne_bytes);
    UblkRequest { tag, op_flags, sectors, start_sector: words[1] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_the_kernels() {
        assert_eq!((FETCH, COMMIT_AND_FETCH), (0xc010_7520, 0xc010_7521), "of linux/ublk_cmd.h");
        let bytes = arguments(1, 0x203, -5);
        let mut expected = vec![1, 0, 3, 2];
        expected.extend((-5_i32).to_ne_bytes());
        assert_eq!(&bytes[..8], expected, "queue, tag, result");
        assert!(bytes[8..].iter().all(|&byte| byte == 0), "no address");
    }

    #[test]
    fn data_has_a_place_for_each_tag() {
        assert_eq!(place(0, 0), 0x8000_0000);
        assert_eq!(place(0, 1) - place(0, 0), 32 << 20, "the most bytes of a request");
        assert_eq!(place(1, 0) - place(0, 0), 1 << 41);
        assert!(place(0, UBLK_DEPTH_MAX - 1) + (32 << 20) < place(1, 0), "within its queue");
    }

    #[test]
    fn a_descriptor_is_read_as_the_kernel_wrote_it() {
        let mut bytes = [0; 24];
        bytes[0..4].copy_from_slice(&0x8005_u32.to_ne_bytes());
        bytes[4..8].copy_from_slice(&16_u32.to_ne_bytes());
        bytes[8..16].copy_from_slice(&(1_u64 << 40).to_ne_bytes());
        bytes[16..24].fill(9);
        let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
        let request = parse(7, [word(0), word(8), word(16)]);
        assert_eq!((request.tag, request.op_flags), (7, 0x8005));
        assert_eq!((request.sectors, request.start_sector), (16, 1 << 40));
    }
}
