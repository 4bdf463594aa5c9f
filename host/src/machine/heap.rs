//! Asking the process's allocator to give back the memory that it holds free.
//!
//! Every library that has `malloc`, linked or preloaded, keeps freed memory for reuse. Each has its
//! own call by which a program asks for that memory back. The names of those calls tell which
//! library is there.
//!
//! ```text
//!   mimalloc   mi_collect(true)              the calling thread's heap, and those of ended threads
//!   jemalloc   mallctl thread.tcache.flush   the calling thread's cache
//!              mallctl arena.4096.purge      free pages of all arenas
//!   glibc      malloc_trim(0)                free pages of all arenas
//! ```
//!
//! Invariant: memory in use is not touched. Lock: those of the allocator.

use std::ffi::{CStr, c_char, c_int, c_void};

type MiCollect = unsafe extern "C" fn(force: bool);
type Mallctl = unsafe extern "C" fn(
    name: *const c_char,
    old: *mut c_void,
    old_len: *mut usize,
    new: *mut c_void,
    new_len: usize,
) -> c_int;
type MallocTrim = unsafe extern "C" fn(pad: usize) -> c_int;

/// Asks the allocator behind `malloc` to return its free memory to the system, and gives the name
/// of the call that did it. `None` means that the allocator has no such call that we know. If
/// threads have caches of their own, each has to call it.
pub fn give_back_heap() -> Option<&'static str> {
    // A preloaded library is tried before glibc, whose call is still there and then does nothing.
    collect_mimalloc().or_else(purge_jemalloc).or_else(trim_glibc)
}

fn collect_mimalloc() -> Option<&'static str> {
    let address = find(c"mi_collect")?;
    // SAFETY: a function of that name is mimalloc's, which has had this signature since its first
    // release. It may be called by any thread at any time, and touches no memory in use.
    unsafe { std::mem::transmute::<*mut c_void, MiCollect>(address)(true) };
    Some("mi_collect")
}

fn purge_jemalloc() -> Option<&'static str> {
    let address = find(c"mallctl")?;
    // SAFETY: a function of that name is jemalloc's, and this is its signature. FreeBSD's libc has
    // the function too, because its allocator is jemalloc.
    let mallctl = unsafe { std::mem::transmute::<*mut c_void, Mallctl>(address) };
    let ask = |name: &CStr| {
        let (old, new) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the name ends with a zero. Both names are of commands that read and write no
        // value, so no pointer is followed. An unknown name gives an error number.
        unsafe { mallctl(name.as_ptr(), old, std::ptr::null_mut(), new, 0) == 0 }
    };
    ask(c"thread.tcache.flush");
    // 4096 is MALLCTL_ARENAS_ALL.
    ask(c"arena.4096.purge").then_some("arena.4096.purge")
}

fn trim_glibc() -> Option<&'static str> {
    let address = find(c"malloc_trim")?;
    // SAFETY: a function of that name is glibc's, and this is its signature. Any thread may call it
    // at any time.
    unsafe { std::mem::transmute::<*mut c_void, MallocTrim>(address)(0) };
    Some("malloc_trim")
}

/// The address of a function, if a library of the process has one of that name.
fn find(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name ends with a zero, and the default handle needs no opening.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}
