//! Reaching memory that may be closed, or not be there: pages are put in place, structures of the
//! program are read and written.
//!
//! ```text
//!   Memory::put   /proc/self/mem, which writes to closed pages
//!                 or, where it cannot be opened, pages of ours that move there (mremap)
//!   peek, poke    as the kernel would: an error instead of a fault
//! ```
//!
//! Invariant: content comes to a page at once. Lock: none.

use crate::floor::call::call;
use crate::floor::passage::pass;
use crate::floor::yard;
use core::mem::MaybeUninit;

/// `/proc/self/mem`, open for a moment: the program may close descriptors at any time, and a forked
/// child needs its own.
pub(super) struct Memory(isize);

impl Memory {
    pub(super) fn open() -> Memory {
        let flags = (libc::O_RDWR | libc::O_CLOEXEC) as usize;
        let path = c"/proc/self/mem".as_ptr() as usize;
        // SAFETY: the path lives as long as the call runs.
        Memory(unsafe { call(libc::SYS_open, [path, flags, 0, 0, 0, 0]) })
    }

    /// Puts the bytes of whole pages in their place, which is closed. False if the system refuses.
    pub(super) fn put(&self, address: usize, bytes: &[u8]) -> bool {
        self.write(address, bytes) || moved(address, bytes)
    }

    fn write(&self, address: usize, bytes: &[u8]) -> bool {
        if self.0 < 0 {
            return false;
        }
        let arguments = [self.0 as usize, bytes.as_ptr() as usize, bytes.len(), address, 0, 0];
        // SAFETY: the place is closed, and its content is not there.
        unsafe { pass(libc::SYS_pwrite64, arguments) == bytes.len() as isize }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.0 >= 0 {
            // SAFETY: we have opened it.
            unsafe { call(libc::SYS_close, [self.0 as usize, 0, 0, 0, 0, 0]) };
        }
    }
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
