//! Our variables as they were when the program was loaded. A forked child that is no heir begins
//! with these.
//!
//! ```text
//!   first     variables ---> copy, in memory that a child has
//!   child     variables <--- copy
//! ```
//!
//! Such a child drops its parent's yard. Whatever our variables and those of the standard library
//! and the codecs refer to is gone then, and a lock may be held by a thread that it does not have.
//! So all of them are put back at once.
//!
//! Invariant: the copy is of the time before any other of our code ran. Lock: none; there is one
//! thread at both times.

use super::call::call;
use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};
use host::PAGE_SIZE as PAGE;

unsafe extern "C" {
    /// The beginning of our file in memory. The linker defines it.
    #[link_name = "__ehdr_start"]
    static FILE: libc::Elf64_Ehdr;
}

static COPY: AtomicUsize = AtomicUsize::new(0);

/// The program headers of our file, and where it is in memory.
pub(super) fn headers() -> (usize, &'static [libc::Elf64_Phdr]) {
    let file = &raw const FILE;
    // SAFETY: the loader has mapped the header of our file, and the table that it names.
    unsafe {
        let table = file.cast::<u8>().add((*file).e_phoff as usize).cast::<libc::Elf64_Phdr>();
        (file as usize, core::slice::from_raw_parts(table, usize::from((*file).e_phnum)))
    }
}

/// The addresses of our variables: the writable segment, less what the loader has closed.
fn variables() -> Range<usize> {
    let (base, headers) = headers();
    let end = |header: &libc::Elf64_Phdr| base + (header.p_vaddr + header.p_memsz) as usize;
    let is_writable =
        |it: &&libc::Elf64_Phdr| it.p_type == libc::PT_LOAD && it.p_flags & libc::PF_W != 0;
    let Some(segment) = headers.iter().find(is_writable) else { return 0..0 };
    let closed = headers.iter().find(|header| header.p_type == libc::PT_GNU_RELRO);
    let start = closed.map_or(base + segment.p_vaddr as usize, |it| end(it).next_multiple_of(PAGE));
    start..end(segment).max(start)
}

/// Keeps a copy. False if the system has no memory.
pub(crate) fn keep() -> bool {
    let range = variables();
    let access = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize;
    // SAFETY: a new mapping at an address that the kernel chooses.
    let copy = unsafe { call(libc::SYS_mmap, [0, range.len(), access, flags, usize::MAX, 0]) };
    if copy <= 0 {
        return false;
    }
    // relaxed: there is one thread.
    COPY.store(copy as usize, Ordering::Relaxed);
    // SAFETY: both are mapped and as long; there is one thread.
    unsafe { ptr::copy_nonoverlapping(range.start as *const u8, copy as *mut u8, range.len()) };
    true
}

/// Puts the variables back.
///
/// # Safety
///
/// There is one thread, and it is in none of our code that looks at a variable afterwards which it
/// has looked at before.
pub(crate) unsafe fn restore() {
    // relaxed: as above. The copy has this variable too.
    let (range, copy) = (variables(), COPY.load(Ordering::Relaxed));
    // SAFETY: the caller's contract.
    unsafe { ptr::copy_nonoverlapping(copy as *const u8, range.start as *mut u8, range.len()) };
}
