//! Reaching memory that may be closed, or not be there: pages are put in place and copied,
//! structures of the program are read and written.
//!
//! ```text
//!   put, get      /proc/self/mem, which reaches closed pages
//!                 put, where it cannot be opened: pages of ours move there (mremap)
//!   shared        /proc/self/pagemap: which pages a forked process has too
//!   peek, poke    as the kernel would: an error instead of a fault
//!   allows        the kernel reads a word, or writes it as it is
//! ```
//!
//! Invariant: content comes to a page at once. Lock: none.

use super::files;
use crate::floor::call::call;
use crate::floor::passage::pass;
use crate::floor::yard;
use crate::kernel::{PAGEMAP_SCAN, Run, scan_of};
use crate::places::{GROUP_PAGES, PAGE, bits};
use core::mem::MaybeUninit;

/// Bits of a word of `/proc/self/pagemap`: nobody else has the page, it is in swap, in memory. The
/// kernel's `pagemap.rst` describes them.
const EXCLUSIVE: u32 = 56;
const SWAPPED: u32 = 62;
const PRESENT: u32 = 63;

/// `PAGE_IS_PFNZERO` of `linux/fs.h`: the page was read and never written, and takes no memory.
const ZERO: u64 = 1 << 5;

const _: () =
    assert!(EXCLUSIVE < SWAPPED && SWAPPED < PRESENT && PRESENT < u64::BITS, "bits of a word");

/// Copies whole pages that are closed. False if the system refuses.
pub(crate) fn get(address: usize, bytes: &mut [u8]) -> bool {
    let arguments =
        [files::memory() as usize, bytes.as_mut_ptr() as usize, bytes.len(), address, 0, 0];
    // SAFETY: the bytes are ours to write.
    unsafe { pass(libc::SYS_pread64, arguments) == bytes.len() as isize }
}

/// Of some pages, from `address` on, as bits: those that other processes have too, and those that
/// this process alone has in memory. The system's page of zeros is neither, if it tells them apart.
/// If it does not tell, all are its own.
pub(crate) fn shared(address: usize, pages: usize) -> (u64, u64) {
    let Some(words) = entries(address, pages) else { return (0, u64::MAX) };
    let (shared, own) =
        words[..pages].iter().enumerate().fold((0, 0), |(shared, own), (page, &word)| {
            let (there, alone) = (bit(word, PRESENT) << page, bit(word, EXCLUSIVE) << page);
            (shared | there & !alone, own | there & alone)
        });
    if shared == 0 { (0, own) } else { (shared & !zeros(address, pages), own) }
}

/// Of some pages, as `shared`: those that are the system's page of zeros. None if the system does
/// not tell, as before Linux 6.7.
fn zeros(address: usize, pages: usize) -> u64 {
    // Every second page.
    let mut runs: [Run; GROUP_PAGES / 2] = [[0; 3]; GROUP_PAGES / 2];
    let mut asked = scan_of(address..address + pages * PAGE, &mut runs, ZERO);
    let arguments =
        [files::pages() as usize, PAGEMAP_SCAN as usize, asked.as_mut_ptr() as usize, 0, 0, 0];
    // SAFETY: the structure and the vector are as long as they say.
    let count = usize::try_from(unsafe { call(libc::SYS_ioctl, arguments) }).unwrap_or(0);
    let page = |at: u64| (at as usize - address) / PAGE;
    let all = runs[..count].iter().map(|run| bits(page(run[0]), page(run[1]) - page(run[0])));
    all.fold(0, |all, run| all | run)
}

/// The pages of a group that have content, in memory or in the system's own swap, as bits. If the
/// system does not tell, all of them.
pub(crate) fn content(group: usize) -> u64 {
    entries(group, GROUP_PAGES).map_or(u64::MAX, |words| filled(&words))
}

fn filled(words: &[u64; GROUP_PAGES]) -> u64 {
    let is_filled = |word: u64| bit(word, PRESENT) | bit(word, SWAPPED);
    words.iter().enumerate().fold(0, |all, (page, &word)| all | is_filled(word) << page)
}

/// What the system says of some pages, at most those of a group.
fn entries(address: usize, pages: usize) -> Option<[u64; GROUP_PAGES]> {
    let mut words = [0u64; GROUP_PAGES];
    let (len, from) = (pages * size_of::<u64>(), address / PAGE * size_of::<u64>());
    let file = files::pages() as usize;
    let arguments = [file, words.as_mut_ptr() as usize, len, from, 0, 0];
    // SAFETY: the words are ours to write, and there are as many as pages of a group.
    let read =
        pages <= GROUP_PAGES && unsafe { call(libc::SYS_pread64, arguments) } == len as isize;
    read.then_some(words)
}

fn bit(word: u64, bit: u32) -> u64 {
    word >> bit & 1
}

/// Puts the bytes of whole pages in their place, which is closed. False if the system refuses.
pub(crate) fn put(address: usize, bytes: &[u8]) -> bool {
    write(address, bytes) || moved(address, bytes)
}

fn write(address: usize, bytes: &[u8]) -> bool {
    let arguments = [files::memory() as usize, bytes.as_ptr() as usize, bytes.len(), address, 0, 0];
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
pub(crate) fn peek<T: Copy>(address: usize) -> Option<T> {
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
pub(crate) fn poke<T: Copy>(address: usize, value: T) -> bool {
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

/// Whether the program may read at an address now, or write. The kernel is asked to use a futex
/// there. To try a write, it adds no bit to the word, at once: what another thread writes meanwhile
/// stays. Then it meets a comparison that there is not, and gives up, so that no thread wakes.
pub(crate) fn allows(address: usize, write: bool) -> bool {
    const NO_COMPARISON: usize = 0xf << 24;
    const OR_ZERO: usize = (libc::FUTEX_OP_OR as usize) << 28 | NO_COMPARISON;
    const _: () = assert!(NO_COMPARISON < 1 << 28, "beside the operation");
    let (word, other) = (address & !3, 0u32);
    let (how, first, second, last) = match write {
        true => (libc::FUTEX_WAKE_OP, &raw const other as usize, word, OR_ZERO),
        false => (libc::FUTEX_CMP_REQUEUE, word, &raw const other as usize, 0),
    };
    let how = (how | libc::FUTEX_PRIVATE_FLAG) as usize;
    // SAFETY: no byte changes, and no thread wakes.
    let answer = unsafe { pass(libc::SYS_futex, [first, how, 0, 0, second, last]) };
    answer != -(libc::EFAULT as isize)
}

/// Whether the system does not have the call, or a filter refuses it.
fn is_refused(answer: isize) -> bool {
    let errors = [libc::ENOSYS, libc::EPERM];
    errors.iter().any(|&error| answer == -(error as isize))
}

/// The number of this thread's process.
pub(crate) fn own_pid() -> usize {
    // SAFETY: the call has no arguments.
    unsafe { call(libc::SYS_getpid, [0; 6]) as usize }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::places::GROUP;

    #[test]
    fn what_may_be_read_and_written_is_known_and_stays_as_it_is() {
        crate::floor::passage::for_tests();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, of which all that is touched is ours.
        unsafe {
            let at = libc::mmap(core::ptr::null_mut(), PAGE, access, flags, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            let last = at as usize + PAGE - 1;
            let byte = last as *mut u8;
            for value in [0, 201] {
                byte.write_volatile(value);
                let rows = [(libc::PROT_NONE, false, false), (libc::PROT_READ, true, false)];
                for (given, reads, writes) in rows.into_iter().chain([(access, true, true)]) {
                    // glibc's `mprotect` hands on all 64 bits of an argument that has 32.
                    let arguments = [at as usize, PAGE, given as usize, 0, 0, 0];
                    assert_eq!(call(libc::SYS_mprotect, arguments), 0);
                    assert_eq!((allows(last, false), allows(last, true)), (reads, writes));
                }
                assert_eq!(byte.read_volatile(), value);
            }
            libc::munmap(at, PAGE);
            assert!(!allows(last, false) && !allows(last, true), "nothing is there");
        }
    }

    #[test]
    fn pages_in_memory_and_in_swap_have_content() {
        let mut words = [0; GROUP_PAGES];
        words[0] = 1 << PRESENT | 1 << EXCLUSIVE;
        words[5] = 1 << PRESENT;
        words[7] = 1 << SWAPPED;
        words[63] = 1 << SWAPPED | 77;
        assert_eq!(filled(&words), 1 << 63 | 1 << 7 | 1 << 5 | 1);
    }

    /// Whether the system tells pages of zeros apart.
    fn has_scan() -> bool {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("a system");
        let mut numbers = release.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
        (numbers.next(), numbers.next()) >= (Some(6), Some(7))
    }

    /// Memory that is written in part, and shared with a child for a while.
    #[test]
    fn pages_are_shared_while_a_child_has_them() {
        crate::floor::passage::for_tests();
        files::open();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, of which all that is touched is ours.
        let at = unsafe {
            let at = libc::mmap(core::ptr::null_mut(), GROUP, access, flags, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            libc::madvise(at, GROUP, libc::MADV_NOHUGEPAGE);
            at as usize
        };
        let write = |page: usize| {
            // SAFETY: as above.
            unsafe { ((at + page * PAGE) as *mut u8).write_volatile(1) };
        };
        write(0);
        write(5);
        assert_eq!(shared(at, GROUP_PAGES), (0, 0b10_0001), "what was never touched is nobody's");
        assert_eq!(content(at), 0b10_0001);
        let read: Vec<usize> = (7..GROUP_PAGES).step_by(2).collect();
        for &page in &read {
            // SAFETY: as above.
            assert_eq!(unsafe { ((at + page * PAGE) as *const u8).read_volatile() }, 0);
        }
        let zeros = if has_scan() { 0 } else { read.iter().fold(0, |all, page| all | 1 << page) };
        assert_eq!(shared(at, GROUP_PAGES), (zeros, 0b10_0001), "the system's zeros");
        // SAFETY: the child waits for its end, and does nothing else.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: it does not return.
            unsafe {
                libc::pause();
                libc::_exit(0);
            }
        }
        assert_eq!(shared(at, GROUP_PAGES), (zeros | 0b10_0001, 0));
        write(5);
        assert_eq!(shared(at, GROUP_PAGES), (zeros | 1, 0b10_0000), "a copy of its own");
        assert_eq!(shared(at + 5 * PAGE, 16), (zeros >> 5 & 0xffff, 1), "from another page on");
        // SAFETY: the child is ours.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, core::ptr::null_mut(), 0);
        }
        assert_eq!(shared(at, GROUP_PAGES), (zeros, 0b10_0001), "the child has gone");
    }
}
