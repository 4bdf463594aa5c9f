//! Files of `/proc/self` that stay open among the program's descriptors.
//!
//! ```text
//!   mem        closed memory is read and written by it
//!   pagemap    says which pages a forked process has alone
//! ```
//!
//! Their numbers are ones that the program does not come to: the first above its limit, if they may
//! be there. The filter keeps the C library from closing them. A forked child opens its own,
//! because the files are about the process that opened them.
//!
//! Invariant: a number is the same in forked children. Lock: none; all of it changes only while
//! there is one thread.

use crate::floor::call::call;
use crate::floor::passage::pass;
use core::ffi::CStr;
use core::sync::atomic::{AtomicI32, Ordering};

/// How many there are.
pub(crate) const FILES: usize = 2;

const NONE: i32 = -1;
/// Higher numbers make the kernel's table of descriptors large.
const NUMBER_MAX: u64 = 4096;

struct File {
    path: &'static CStr,
    flags: i32,
    /// The number, which the filter knows.
    number: AtomicI32,
    /// The descriptor, if it is about this process.
    open: AtomicI32,
}

static MEMORY: File = File::new(c"/proc/self/mem", libc::O_RDWR);
static PAGES: File = File::new(c"/proc/self/pagemap", libc::O_RDONLY);
static ALL: [&File; FILES] = [&MEMORY, &PAGES];

/// The descriptor of memory; -1 if there is none.
pub(crate) fn memory() -> i32 {
    // relaxed: it changes only while there is one thread.
    MEMORY.open.load(Ordering::Relaxed)
}

/// The descriptor of the map of pages; -1 if there is none.
pub(crate) fn pages() -> i32 {
    // relaxed: as above.
    PAGES.open.load(Ordering::Relaxed)
}

/// The numbers; -1 for a file that there is not.
pub(crate) fn numbers() -> [i32; FILES] {
    // relaxed: as above.
    ALL.map(|file| file.number.load(Ordering::Relaxed))
}

/// A range of descriptors without ours: first and last of each part.
pub(crate) fn without_ours(first: u32, last: u32) -> impl Iterator<Item = (u32, u32)> {
    let mut ours = numbers().map(|number| u32::try_from(number).unwrap_or(u32::MAX));
    ours.sort_unstable();
    parts(first, last, ours)
}

/// A range of numbers without some, which are in order. The greatest number is in no part.
fn parts(first: u32, last: u32, without: [u32; FILES]) -> impl Iterator<Item = (u32, u32)> {
    let mut from = Some(first);
    let ends = without.into_iter().chain([u32::MAX]);
    ends.filter_map(move |end| {
        let start = from?.max(first);
        from = end.checked_add(1);
        let end = end.checked_sub(1)?.min(last);
        (start <= end).then_some((start, end))
    })
}

/// Opens them. In a forked child, they take the places of its parent's.
pub(crate) fn open() {
    ALL.iter().for_each(|file| file.open());
}

/// In a forked child: they are about its parent.
pub(crate) fn forget() {
    // relaxed: there is one thread.
    ALL.iter().for_each(|file| file.open.store(NONE, Ordering::Relaxed));
}

impl File {
    const fn new(path: &'static CStr, flags: i32) -> File {
        File { path, flags, number: AtomicI32::new(NONE), open: AtomicI32::new(NONE) }
    }

    fn open(&self) {
        let flags = (self.flags | libc::O_CLOEXEC) as usize;
        // SAFETY: the path lives as long as the call runs.
        let low = unsafe { call(libc::SYS_open, [self.path.as_ptr() as usize, flags, 0, 0, 0, 0]) };
        // relaxed: there is one thread.
        let known = self.number.load(Ordering::Relaxed);
        let placed = if low < 0 { NONE } else { place(low as usize, known) };
        if low >= 0 {
            close(low as i32);
        }
        // Without a new file the parent's stays, so that the number is not the program's.
        if known == NONE {
            // relaxed: as above.
            self.number.store(placed, Ordering::Relaxed);
        }
        // relaxed: as above.
        self.open.store(placed, Ordering::Relaxed);
    }
}

fn close(descriptor: i32) {
    // SAFETY: we have opened it.
    unsafe { call(libc::SYS_close, [descriptor as usize, 0, 0, 0, 0, 0]) };
}

/// Makes a file have a number that is known, or a free one that the program does not come to.
fn place(file: usize, known: i32) -> i32 {
    let mut limit = [0u64; 2];
    // SAFETY: the limits live as long as the calls run.
    let change = |new: usize, old: usize| unsafe {
        pass(libc::SYS_prlimit64, [0, libc::RLIMIT_NOFILE as usize, new, old, 0, 0])
    };
    change(0, limit.as_mut_ptr() as usize);
    let [soft, hard] = limit;
    // The first that the program cannot have. If its limit cannot be raised, its last ones.
    let beyond = soft.min(hard.saturating_sub(FILES as u64)).min(NUMBER_MAX);
    let wanted = u64::try_from(known).unwrap_or(beyond);
    let enough = [soft.max(wanted + FILES as u64).min(hard), hard];
    change(enough.as_ptr() as usize, 0);
    // SAFETY: the calls change descriptors of ours.
    let placed = unsafe {
        if known == NONE {
            let how = libc::F_DUPFD_CLOEXEC as usize;
            call(libc::SYS_fcntl, [file, how, wanted as usize, 0, 0, 0])
        } else {
            call(libc::SYS_dup3, [file, known as usize, libc::O_CLOEXEC as usize, 0, 0, 0])
        }
    };
    change(limit.as_ptr() as usize, 0);
    if placed < 0 { NONE } else { placed as i32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_where_numbers_of_ours_are() {
        let cut = |first, last, without| parts(first, last, without).collect::<Vec<_>>();
        let none = u32::MAX;
        assert_eq!(cut(3, none, [1024, 1025]), [(3, 1023), (1026, none - 1)]);
        assert_eq!(cut(3, 1024, [1024, 1030]), [(3, 1023)]);
        assert_eq!(cut(0, none, [0, none]), [(1, none - 1)]);
        assert_eq!(cut(5, 2000, [1000, 1500]), [(5, 999), (1001, 1499), (1501, 2000)]);
        assert_eq!(cut(1025, 2000, [1024, none]), [(1025, 2000)]);
        assert_eq!(cut(7, 7, [7, none]), []);
        assert_eq!(cut(3, 9, [none, none]), [(3, 9)]);
    }
}
