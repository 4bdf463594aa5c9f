//! Reaching memory that may be closed, or not be there: pages are put in place, structures of the
//! program are read and written.
//!
//! ```text
//!   put           /proc/self/mem, which writes to closed pages
//!                 or, where it cannot be opened, pages of ours that move there (mremap)
//!   peek, poke    as the kernel would: an error instead of a fault
//! ```
//!
//! `/proc/self/mem` stays open, at a number that the program does not come to: the first above its
//! limit, if it may be there. The filter keeps the C library from closing it. A forked child opens
//! its own, because the file is the memory of the process that opened it.
//!
//! Invariant: content comes to a page at once. Lock: none; the number changes only while there is
//! one thread.

use crate::floor::call::call;
use crate::floor::passage::pass;
use crate::floor::yard;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicI32, Ordering};

/// Higher numbers make the kernel's table of descriptors large.
const NUMBER_MAX: u64 = 4096;
const NONE: i32 = -1;

/// The number, which is the same in forked children: the filter knows it.
static NUMBER: AtomicI32 = AtomicI32::new(NONE);
/// The descriptor, if it is the memory of this process.
static OPEN: AtomicI32 = AtomicI32::new(NONE);

/// The number of the descriptor by which closed memory is written; -1 if there is none.
pub(crate) fn number() -> i32 {
    // relaxed: it changes only while there is one thread.
    NUMBER.load(Ordering::Relaxed)
}

/// Opens the memory of this process. In a forked child, it takes the place of its parent's.
pub(super) fn open() {
    let path = c"/proc/self/mem".as_ptr() as usize;
    let flags = (libc::O_RDWR | libc::O_CLOEXEC) as usize;
    // SAFETY: the path lives as long as the call runs.
    let low = unsafe { call(libc::SYS_open, [path, flags, 0, 0, 0, 0]) };
    let placed = if low < 0 { NONE } else { with_limit(|wanted| place(low as usize, wanted)) };
    if low >= 0 {
        close(low as i32);
    }
    if placed == NONE && number() != NONE {
        close(number());
    }
    if number() == NONE {
        // relaxed: there is one thread.
        NUMBER.store(placed, Ordering::Relaxed);
    }
    // relaxed: as above.
    OPEN.store(placed, Ordering::Relaxed);
}

/// In a forked child: the descriptor is its parent's memory.
pub(super) fn forget() {
    // relaxed: there is one thread.
    OPEN.store(NONE, Ordering::Relaxed);
}

fn close(descriptor: i32) {
    // SAFETY: we have opened it.
    unsafe { call(libc::SYS_close, [descriptor as usize, 0, 0, 0, 0, 0]) };
}

/// Makes a file have the number, or the first free one from `wanted` on.
fn place(file: usize, wanted: usize) -> i32 {
    let (known, flags) = (number(), libc::O_CLOEXEC as usize);
    // SAFETY: the calls change descriptors of ours.
    let placed = unsafe {
        if known == NONE {
            call(libc::SYS_fcntl, [file, libc::F_DUPFD_CLOEXEC as usize, wanted, 0, 0, 0])
        } else {
            call(libc::SYS_dup3, [file, known as usize, flags, 0, 0, 0])
        }
    };
    if placed < 0 { NONE } else { placed as i32 }
}

/// Does `work`, which gets the number that is wanted, under a limit of descriptors that allows it.
fn with_limit<R>(work: impl FnOnce(usize) -> R) -> R {
    let mut limit = [0u64; 2];
    // SAFETY: the limits live as long as the calls run.
    let change = |new: usize, old: usize| unsafe {
        call(libc::SYS_prlimit64, [0, libc::RLIMIT_NOFILE as usize, new, old, 0, 0])
    };
    change(0, limit.as_mut_ptr() as usize);
    let [soft, hard] = limit;
    // The first that the program cannot have. If its limit cannot be raised, its last.
    let beyond = soft.min(hard.saturating_sub(1)).min(NUMBER_MAX);
    let wanted = u64::try_from(number()).unwrap_or(beyond);
    let enough = [soft.max(wanted + 1).min(hard), hard];
    change(enough.as_ptr() as usize, 0);
    let done = work(wanted as usize);
    change(limit.as_ptr() as usize, 0);
    done
}

/// Copies whole pages that are closed. False if the system refuses.
pub(super) fn get(address: usize, bytes: &mut [u8]) -> bool {
    // relaxed: it changes only while there is one thread.
    let file = OPEN.load(Ordering::Relaxed);
    let arguments = [file as usize, bytes.as_mut_ptr() as usize, bytes.len(), address, 0, 0];
    // SAFETY: the bytes are ours to write.
    unsafe { pass(libc::SYS_pread64, arguments) == bytes.len() as isize }
}

/// Puts the bytes of whole pages in their place, which is closed. False if the system refuses.
pub(super) fn put(address: usize, bytes: &[u8]) -> bool {
    write(address, bytes) || moved(address, bytes)
}

fn write(address: usize, bytes: &[u8]) -> bool {
    // relaxed: it changes only while there is one thread.
    let file = OPEN.load(Ordering::Relaxed);
    let arguments = [file as usize, bytes.as_ptr() as usize, bytes.len(), address, 0, 0];
    // SAFETY: the place is closed, and its content is not there.
    unsafe { pass(libc::SYS_pwrite64, arguments) == bytes.len() as isize }
}

/// Fills pages of the yard and moves them to their place.
fn moved(address: usize, bytes: &[u8]) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping; its pages go to a place that is closed and empty.
    unsafe {
        let at = yard::map(0, bytes.len(), access, flags, -1, 0);
        if at <= 0 {
            return false;
        }
        core::ptr::copy_nonoverlapping(bytes.as_ptr(), at as *mut u8, bytes.len());
        call(libc::SYS_mprotect, [at as usize, bytes.len(), 0, 0, 0, 0]);
        let how = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as usize;
        let arguments = [at as usize, bytes.len(), bytes.len(), how, address, 0];
        pass(libc::SYS_mremap, arguments) == address as isize
    }
}

/// Reads a value of the program. `None` if it is not there.
pub(super) fn peek<T: Copy>(address: usize) -> Option<T> {
    let mut value = MaybeUninit::<T>::uninit();
    let local = [value.as_mut_ptr() as usize, size_of::<T>()];
    let remote = [address, size_of::<T>()];
    let arguments = [own_pid(), &raw const local as usize, 1, &raw const remote as usize, 1, 0];
    // SAFETY: the value has room; the kernel checks the address.
    let read = unsafe { pass(libc::SYS_process_vm_readv, arguments) };
    if is_refused(read) {
        // SAFETY: a system without the call. The program would have met a fault in the kernel.
        return Some(unsafe { (address as *const T).read_unaligned() });
    }
    // SAFETY: all bytes are read, and any bytes are a value of the types that are asked for.
    (read == size_of::<T>() as isize).then(|| unsafe { value.assume_init() })
}

/// Writes a value to memory of the program. False if it is not there.
pub(super) fn poke<T: Copy>(address: usize, value: T) -> bool {
    let local = [&raw const value as usize, size_of::<T>()];
    let remote = [address, size_of::<T>()];
    let arguments = [own_pid(), &raw const local as usize, 1, &raw const remote as usize, 1, 0];
    // SAFETY: the kernel checks the address, which the program has given for this value.
    let written = unsafe { pass(libc::SYS_process_vm_writev, arguments) };
    if is_refused(written) {
        // SAFETY: as in `peek`.
        unsafe { (address as *mut T).write_unaligned(value) };
        return true;
    }
    written == size_of::<T>() as isize
}

/// Whether the system does not have the call, or a filter refuses it.
fn is_refused(answer: isize) -> bool {
    let errors = [libc::ENOSYS, libc::EPERM];
    errors.iter().any(|&error| answer == -(error as isize))
}

/// The number of this thread's process.
pub(super) fn own_pid() -> usize {
    // SAFETY: the call has no arguments.
    unsafe { call(libc::SYS_getpid, [0; 6]) as usize }
}
