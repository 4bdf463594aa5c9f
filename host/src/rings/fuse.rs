//! Queues of a FUSE connection over io_uring (linux/fuse.h, the user interface of Linux 6.14).
//!
//! ```text
//!            register                                  answer (and fetch the next)
//!   new entry -------> with the kernel --request--> FuseEntry -------> with the kernel
//!                            '--- the connection ends: Came::Over
//!
//!   an entry's memory:   in and out 128 | operation 128 | flags, number, length 32 | .. a page
//!                        data of DATA bytes
//! ```
//!
//! A connection has a queue for each possible CPU, and an entry belongs to one queue. A ring may
//! have entries of several queues. The kernel puts a request of a thread on the queue of the
//! thread's CPU, where it waits for an entry.
//!
//! Invariants
//! - F1. The memory of an entry is either in `slots`, when the kernel may use it inside `enter`, or
//!   in one `FuseEntry`, when the kernel does not have it.
//! - F2. The device is one of FUSE, so the kernel reads the commands as they are meant.
//!
//! Lock: none.

use super::ring::Ring;
use crate::machine::{PAGE_SIZE, cpu};
use crate::memory::{HostError, Pages};
use io_uring::{opcode, squeue, types};
use rustix::fs::{FileType, fstat, major, minor};
use rustix::io::Errno;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// The device number of `/dev/fuse`.
const FUSE_DEVICE: (u32, u32) = (10, 229);
/// The two commands.
const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;
/// Bytes of the two header parts at the beginning of an entry.
const PART: usize = 128;
/// Bytes of a request's header and of an answer's.
const IN_HEADER: usize = 40;
const OUT_HEADER: usize = 16;
/// Where the number of the request to be answered is, and the length of the data.
const COMMIT_ID: usize = 2 * PART + 8;
const PAYLOAD: usize = 2 * PART + 16;
/// Bytes of all headers.
const HEADERS: usize = 2 * PART + 32;
/// What a note to the device asks for.
const NOTIFY_RETRIEVE: u32 = 5;
/// Requests that the kernel is asked for have numbers above this one.
const ASKED_FROM: u64 = 1 << 62;
/// The number of the command that waits for the bell. Entries have smaller ones.
const BELL: u64 = u64::MAX;

/// What came out of a ring.
#[derive(Debug)]
pub enum Came {
    /// A request. Its entry must be answered.
    Request(FuseEntry),
    /// An entry of this queue is gone, because the kernel refused it or the connection ended.
    Over(u16, Errno),
    /// The bell was rung. It must be set again.
    Bell,
}

/// A ring of one connection, for one thread.
pub struct FuseRing {
    ring: Ring,
    device: OwnedFd,
    /// Bytes of data that an entry has room for.
    data: usize,
    /// An entry is in its slot as long as the kernel has it (F1).
    slots: Vec<Option<Slot>>,
    /// Numbers of slots that no entry has.
    free: Vec<usize>,
    /// The number of the request that the kernel was asked for last.
    asked: u64,
}

// SAFETY: the vectors of slots point to memory of the same slots, which moves to the other thread
// with them.
unsafe impl Send for FuseRing {}

/// An entry that the kernel has, and the command that it has it by.
struct Slot {
    entry: FuseEntry,
    operation: u32,
    /// What a registration points to. The kernel reads it when the command is submitted.
    vectors: Option<Box<[libc::iovec; 2]>>,
}

/// An entry with a request: the right to its memory.
#[derive(Debug)]
pub struct FuseEntry {
    memory: Pages,
    number: usize,
    queue: u16,
    /// Bytes of data of the request.
    len: usize,
    /// The kernel's number of the request. It is 0 before the first one.
    commit: u64,
    /// Bytes of the memory that may be resident, in whole pages.
    touched: usize,
}

impl FuseRing {
    /// A ring for the connection that a descriptor of `/dev/fuse` has. The thread that calls
    /// [`FuseRing::enable`] is the one that uses it.
    ///
    /// # Errors
    ///
    /// The system's: it refuses io_uring, or has too little memory. `Unsupported` if the descriptor
    /// is none of `/dev/fuse`, or io_uring lacks what is needed.
    pub fn new(device: BorrowedFd<'_>, data: usize) -> io::Result<FuseRing> {
        let stat = fstat(device)?;
        let number = (major(stat.st_rdev), minor(stat.st_rdev));
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind != FileType::CharacterDevice || number != FUSE_DEVICE {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(FuseRing {
            ring: Ring::new()?,
            device: device.try_clone_to_owned()?,
            data,
            slots: Vec::new(),
            free: Vec::new(),
            asked: 0,
        })
    }

    /// Makes this thread the one that uses the ring.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn enable(&self) -> io::Result<()> {
        self.ring.enable()
    }

    /// An entry for a queue, which the kernel does not know yet.
    ///
    /// # Errors
    ///
    /// If there are no addresses for its memory.
    pub fn entry(&mut self, queue: u16) -> Result<FuseEntry, HostError> {
        let memory = Pages::new(1 + self.data.div_ceil(PAGE_SIZE))?;
        let number = self.free.pop().unwrap_or(self.slots.len());
        if number == self.slots.len() {
            self.slots.push(None);
        }
        Ok(FuseEntry { memory, number, queue, len: 0, commit: 0, touched: 0 })
    }

    /// Gives the kernel a new entry, in the next [`FuseRing::flush`] or [`FuseRing::wait`]. It
    /// comes back from there as [`Came::Over`] if the kernel refuses it.
    ///
    /// # Errors
    ///
    /// The system's, if it does not let this thread submit.
    pub fn register(&mut self, entry: FuseEntry) -> io::Result<()> {
        let vectors = Some(Box::new(entry.vectors()));
        self.submit(Slot { entry, operation: REGISTER, vectors })
    }

    /// Hands the answer in an entry to the kernel, and has it fetch the next request. This happens
    /// in the next [`FuseRing::flush`] or [`FuseRing::wait`].
    ///
    /// # Errors
    ///
    /// The system's, if it does not let this thread submit.
    pub fn answer(&mut self, entry: FuseEntry) -> io::Result<()> {
        self.submit(Slot { entry, operation: COMMIT_AND_FETCH, vectors: None })
    }

    /// Has [`Came::Bell`] come out once `bell` can be read.
    ///
    /// # Errors
    ///
    /// The system's, if it does not let this thread submit.
    pub fn set_bell(&mut self, bell: BorrowedFd<'_>) -> io::Result<()> {
        self.ring.poll(bell, BELL)
    }

    /// Hands all answers to the kernel.
    ///
    /// # Errors
    ///
    /// The system's. The ring is of no use then.
    pub fn flush(&mut self) -> io::Result<()> {
        self.ring.enter(0, None)
    }

    /// Hands all answers to the kernel, and waits until something comes or `timeout` is over.
    ///
    /// # Errors
    ///
    /// The system's. The ring is of no use then.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.ring.enter(1, timeout)
    }

    /// The next thing that came. `None` if nothing is left to be looked at.
    ///
    /// # Errors
    ///
    /// The system's, if it does not let this thread submit a command again.
    pub fn came(&mut self) -> io::Result<Option<Came>> {
        while let Some(completion) = self.ring.reap() {
            if completion.number == BELL {
                return Ok(Some(Came::Bell));
            }
            let number = completion.number as usize;
            let Some(slot) = self.slots.get_mut(number).and_then(Option::take) else { continue };
            match completion.result {
                Ok(_) => return Ok(Some(Came::Request(slot.entry.received()))),
                Err(Errno::AGAIN | Errno::INTR) => self.submit(slot)?,
                Err(errno) => {
                    self.free.push(number);
                    return Ok(Some(Came::Over(slot.entry.queue, errno)));
                }
            }
        }
        Ok(None)
    }

    /// Gives back the memory of every entry that the kernel has and that nothing came for. It tells
    /// `given` each entry's number. All that came must have been looked at: a request that is not
    /// would be lost.
    pub fn give_back(&mut self, mut given: impl FnMut(usize)) {
        // No completion came since: they come inside `enter` alone (R1).
        for slot in self.slots.iter_mut().flatten() {
            let entry = &mut slot.entry;
            // The system refuses if the program locked its memory. Then the pages stay counted.
            if entry.touched > 0 && entry.memory.give_back(0..entry.touched / PAGE_SIZE).is_ok() {
                entry.touched = 0;
                given(entry.number);
            }
        }
    }

    /// Has the kernel make a request that comes by `queue`. A note asks for none of the pages that
    /// it has cached of a file. The kernel must know the file, which is no directory. The request
    /// has the operation `FUSE_NOTIFY_REPLY`, and is answered as any other. Its answer fetches a
    /// request that waits for an entry, which a new entry does not. The thread is on the queue's
    /// CPU meanwhile, because a request comes by the queue of its CPU.
    ///
    /// # Errors
    ///
    /// The system's: this thread may not run on that CPU, or there is no such file.
    pub fn ask(&mut self, queue: u16, node: u64) -> io::Result<()> {
        const NOTE: usize = 48;
        let mut note = [0; NOTE];
        note[0..4].copy_from_slice(&(NOTE as u32).to_ne_bytes());
        note[4..8].copy_from_slice(&NOTIFY_RETRIEVE.to_ne_bytes());
        // The kernel counts its own requests from 0 on, and all numbers are even.
        self.asked += 2;
        note[16..24].copy_from_slice(&(ASKED_FROM + self.asked).to_ne_bytes());
        note[24..32].copy_from_slice(&node.to_ne_bytes());
        cpu::run_on(usize::from(queue), || rustix::io::write(&self.device, &note))??;
        Ok(())
    }

    fn submit(&mut self, slot: Slot) -> io::Result<()> {
        let number = slot.entry.number;
        let command = self.command(&slot);
        self.slots[number] = Some(slot);
        // SAFETY: the entry's memory and the vectors are in its slot until the completion was
        // reaped (F1). If the ring is dropped before, they are never freed. Between two calls of
        // `enter` only `give_back` touches the memory, which is the exception (R1).
        unsafe { self.ring.push(&command) }
    }

    fn command(&self, slot: &Slot) -> squeue::Entry128 {
        let entry = &slot.entry;
        let mut arguments = [0; 80];
        arguments[8..16].copy_from_slice(&entry.commit.to_ne_bytes());
        arguments[16..18].copy_from_slice(&entry.queue.to_ne_bytes());
        let device = types::Fd(self.device.as_fd().as_raw_fd());
        let command = opcode::UringCmd80::new(device, slot.operation).cmd(arguments);
        let number = entry.number as u64;
        let Some(vectors) = &slot.vectors else { return command.build().user_data(number) };
        let address = vectors.as_ptr().expose_provenance() as u64;
        let command = command.addr(Some(address)).build().user_data(number);
        with_len(command, vectors.len() as u32)
    }
}

/// The command with its field `len`, which the library does not set for commands to drivers.
fn with_len(mut command: squeue::Entry128, len: u32) -> squeue::Entry128 {
    const LEN: usize = 24;
    const _: () = assert!(size_of::<squeue::Entry128>() == 128, "an entry as the kernel has it");
    // SAFETY: the entry is `repr(C)` around the kernel's `io_uring_sqe`, which has `len` of four
    // bytes there, as it is plain integers throughout.
    unsafe { (&raw mut command).cast::<u8>().add(LEN).cast::<u32>().write_unaligned(len) };
    command
}

impl Drop for FuseRing {
    fn drop(&mut self) {
        // A system that still has a command may use its memory. After an unmount it has none.
        self.slots.drain(..).flatten().for_each(std::mem::forget);
    }
}

impl fmt::Debug for FuseRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FuseRing").field("slots", &self.slots.len()).finish_non_exhaustive()
    }
}

impl FuseEntry {
    /// Which entry of its ring it is.
    pub fn number(&self) -> usize {
        self.number
    }

    /// The queue that the request came by.
    pub fn queue(&self) -> u16 {
        self.queue
    }

    /// The kernel's number of the file that the request is about.
    pub fn node(&self) -> u64 {
        const NODE: usize = 16;
        u64::from_ne_bytes(number(self.memory.as_slice(), NODE))
    }

    /// Bytes of its memory that may be resident, in whole pages.
    pub fn touched(&self) -> usize {
        self.touched
    }

    /// The request: its header, the operation's own fields, and the data. Whether they fit each
    /// other is not looked at.
    pub fn request(&self) -> (&[u8], &[u8], &[u8]) {
        let (headers, data) = self.memory.as_slice().split_at(PAGE_SIZE);
        let data = &data[..self.len];
        let total = u32::from_ne_bytes(number(headers, 0)) as usize;
        let fields = total.saturating_sub(IN_HEADER + data.len()).min(PART);
        (&headers[..IN_HEADER], &headers[PART..PART + fields], data)
    }

    /// The first `len` bytes of the data, at most as many as there is room for. An answer goes
    /// there, over the data of the request.
    pub fn data(&mut self, len: usize) -> &mut [u8] {
        let len = len.min(self.room());
        self.touch(len);
        &mut self.memory.as_mut_slice()[PAGE_SIZE..PAGE_SIZE + len]
    }

    /// Makes an answer of a header and the first `len` bytes of the data.
    pub fn set_answer(&mut self, header: &[u8; OUT_HEADER], len: usize) {
        debug_assert!(len <= self.room(), "the data has no room");
        self.len = 0;
        let headers = &mut self.memory.as_mut_slice()[..PAGE_SIZE];
        headers[..OUT_HEADER].copy_from_slice(header);
        headers[PAYLOAD..PAYLOAD + 4].copy_from_slice(&(len as u32).to_ne_bytes());
    }

    /// The entry as the kernel gave it back.
    fn received(mut self) -> FuseEntry {
        self.len =
            (u32::from_ne_bytes(number(self.memory.as_slice(), PAYLOAD)) as usize).min(self.room());
        self.commit = u64::from_ne_bytes(number(self.memory.as_slice(), COMMIT_ID));
        self.touch(self.len);
        self
    }

    /// Where the kernel finds headers and data.
    fn vectors(&self) -> [libc::iovec; 2] {
        let base = self.memory.addresses().start;
        [(0, HEADERS), (PAGE_SIZE, self.room())].map(|(from, len)| libc::iovec {
            iov_base: std::ptr::with_exposed_provenance_mut(base + from),
            iov_len: len,
        })
    }

    fn touch(&mut self, data: usize) {
        self.touched = self.touched.max(PAGE_SIZE + data.next_multiple_of(PAGE_SIZE));
    }

    fn room(&self) -> usize {
        self.memory.addresses().len() - PAGE_SIZE
    }
}

/// The bytes of a number in the machine's own order.
fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut number = [0; N];
    number.copy_from_slice(&bytes[at..at + N]);
    number
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    /// Another driver would read other things in the same commands.
    #[test]
    fn a_descriptor_of_another_driver_is_refused() {
        for path in ["/dev/null", "/proc/self/exe", "/"] {
            let other = File::open(path).expect("every system has it");
            let refused = FuseRing::new(other.as_fd(), PAGE_SIZE).expect_err(path);
            assert_eq!(refused.kind(), io::ErrorKind::Unsupported, "{path}: {refused}");
        }
    }
    fn entry() -> FuseEntry {
        let memory = Pages::new(2).expect("there are addresses");
        FuseEntry { memory, number: 3, queue: 1, len: 0, commit: 0, touched: 0 }
    }

    /// Puts a number where the kernel would.
    fn put(entry: &mut FuseEntry, at: usize, bytes: &[u8]) {
        entry.memory.as_mut_slice()[at..at + bytes.len()].copy_from_slice(bytes);
    }

    #[test]
    fn a_request_is_what_the_kernel_put_there_and_never_more_than_there_is_room_for() {
        let mut sent = entry();
        put(&mut sent, 0, &((IN_HEADER + 24 + 5) as u32).to_ne_bytes());
        put(&mut sent, PART, &[7; 24]);
        put(&mut sent, COMMIT_ID, &9_u64.to_ne_bytes());
        put(&mut sent, PAYLOAD, &5_u32.to_ne_bytes());
        put(&mut sent, PAGE_SIZE, b"bytes");
        let sent = sent.received();
        let (header, fields, data) = sent.request();
        assert_eq!((header.len(), fields, data), (IN_HEADER, &[7; 24][..], &b"bytes"[..]));
        assert_eq!((sent.commit, sent.touched()), (9, 2 * PAGE_SIZE));
        let mut wrong = entry();
        put(&mut wrong, 0, &u32::MAX.to_ne_bytes());
        put(&mut wrong, PAYLOAD, &u32::MAX.to_ne_bytes());
        let wrong = wrong.received();
        let (_, fields, data) = wrong.request();
        assert_eq!((fields.len(), data.len()), (PART, PAGE_SIZE));
    }

    #[test]
    fn an_answer_says_how_long_it_is() {
        let mut answer = entry();
        answer.data(3).copy_from_slice(b"abc");
        assert_eq!(answer.data(usize::MAX).len(), PAGE_SIZE, "as much as there is room for");
        answer.set_answer(&[1; OUT_HEADER], 3);
        let memory = answer.memory.as_slice();
        assert_eq!((memory[0], number(memory, PAYLOAD)), (1, 3_u32.to_ne_bytes()));
        assert_eq!(&memory[PAGE_SIZE..PAGE_SIZE + 3], b"abc");
    }
}
