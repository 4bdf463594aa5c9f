//! Windows: the files on the disk that pages are written to, each mapped to be read.
//!
//! ```text
//!   window   | block | block | ... used | not written yet |      64 MiB of a file without a name
//!              read in the mapping        written through the file, by the one that has it open
//! ```
//!
//! *Each block is written once.* What a mapping has shown it shows for ever, in this process and in
//! all of its forked children, which have the mapping too. So a fork, of whatever kind, has nothing
//! to wait for and nothing to copy. A child has no file open, and begins windows of its own.
//!
//! A window whose blocks are all free is given up. The file is gone with the last process that has
//! it. Its address is used again, and so is its number.
//!
//! A mapping is read by a system call: if the disk does not give the bytes, that is an error, and
//! no signal.
//!
//! Invariants
//! - W1: a block that a slot names was written, and its bytes do not change.
//! - W2: only the current window grows, by the writer that has its file.
//!
//! Lock: the caller's; none to read.

use crate::floor::call::call;
use crate::floor::yard;
use crate::places::PAGE;
use std::fs::File;
use std::os::fd::AsRawFd;

/// Blocks of a window. Tests fill several.
pub(super) const BLOCKS: u32 = if cfg!(test) { 1 << 8 } else { 1 << 14 }; // 16384 blocks, 64 MiB
const BYTES: usize = BLOCKS as usize * PAGE;
/// A block's number is less than this.
const BLOCKS_MAX: u32 = u32::MAX;

/// Windows may have so many times the blocks that are live, and so many windows more, until one is
/// emptied.
const SPARSE: u64 = 2;

#[derive(Debug)]
struct Window {
    at: usize,
    /// Blocks that were written, and those of them that slots name.
    used: u32,
    live: u32,
    is_open: bool,
}

/// All windows of a process, by number.
#[derive(Debug, Default)]
pub(super) struct Windows {
    all: Vec<Window>,
    current: Option<u32>,
}

impl Windows {
    /// Begins a window over an empty file. It is the current one from now on. False if the system
    /// has no address for it.
    pub(super) fn begin(&mut self, file: &File) -> bool {
        let known = self.all.iter().position(|window| !window.is_open);
        let at = known.map_or(0, |number| self.all[number].at);
        let number = known.unwrap_or(self.all.len()) as u32;
        if number >= BLOCKS_MAX / BLOCKS {
            return false;
        }
        let place = if known.is_some() { libc::MAP_FIXED } else { 0 };
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE | place;
        // SAFETY: a new mapping in the yard, or over one that was given up.
        let at = unsafe { yard::map(at, BYTES, libc::PROT_READ, flags, file.as_raw_fd(), 0) };
        if at <= 0 {
            return false;
        }
        let window = Window { at: at as usize, used: 0, live: 0, is_open: true };
        match known {
            Some(number) => self.all[number] = window,
            None => self.all.push(window),
        }
        self.current = Some(number);
        true
    }

    /// In a forked child: no window is current, because their files are the parent's.
    pub(super) fn begin_anew(&mut self) {
        self.current = None;
    }

    /// The next blocks that may be written, as numbers, if there is a window for them.
    pub(super) fn next(&self) -> std::ops::Range<u32> {
        let Some(number) = self.current else { return 0..0 };
        let first = number * BLOCKS;
        first + self.all[number as usize].used..first + BLOCKS
    }

    /// So many of the next blocks were written.
    pub(super) fn wrote(&mut self, count: u32) {
        if let Some(number) = self.current {
            self.all[number as usize].used += count;
        }
    }

    /// A slot names a block.
    pub(super) fn take(&mut self, block: u32) {
        self.all[window_of(block)].live += 1;
    }

    /// A slot does not name a block any more.
    pub(super) fn give(&mut self, block: u32) {
        self.all[window_of(block)].live -= 1;
    }

    /// Where a block is in memory.
    pub(super) fn address(&self, block: u32) -> usize {
        self.all[window_of(block)].at + offset(block)
    }

    /// Blocks that slots name.
    pub(super) fn live(&self) -> u64 {
        self.open().map(|window| u64::from(window.live)).sum()
    }

    /// Compares each window with the blocks of it that are `named`.
    #[cfg(test)]
    pub(super) fn check(&self, named: impl Fn(u32) -> usize) {
        for (number, window) in (0u32..).zip(&self.all) {
            let live = if window.is_open { window.live } else { 0 };
            assert_eq!(live as usize, named(number), "window {number}");
            assert!(live <= window.used && window.used <= BLOCKS, "window {number}: {window:?}");
        }
    }

    /// Windows that there are.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.open().count()
    }

    /// Gives up windows of which no block is named.
    pub(super) fn close_empty(&mut self) {
        for (number, window) in self.all.iter_mut().enumerate() {
            if window.is_open && window.live == 0 && self.current != Some(number as u32) {
                // SAFETY: no slot names a block of it. A reader that is late meets an error.
                unsafe { yard::unmap(window.at, BYTES) };
                window.is_open = false;
            }
        }
    }

    /// The window that is to be emptied, because windows have many blocks that no slot names: the
    /// one with the fewest that slots name.
    pub(super) fn sparsest(&self) -> Option<u32> {
        let used: u64 = self.open().map(|window| u64::from(window.used)).sum();
        if used <= SPARSE * (self.live() + u64::from(BLOCKS)) {
            return None;
        }
        let others = (0u32..).zip(&self.all).filter(|(number, window)| {
            window.is_open && window.live > 0 && self.current != Some(*number)
        });
        others.min_by_key(|(_, window)| window.live).map(|(number, _)| number)
    }

    fn open(&self) -> impl Iterator<Item = &Window> {
        self.all.iter().filter(|window| window.is_open)
    }
}

/// The window of a block.
pub(super) fn window_of(block: u32) -> usize {
    (block / BLOCKS) as usize
}

/// Where a block begins in its file.
pub(super) fn offset(block: u32) -> usize {
    (block % BLOCKS) as usize * PAGE
}

/// Copies a page of a window. False if the disk does not give it.
pub(super) fn read(address: usize, page: &mut [u8]) -> bool {
    let local = [page.as_mut_ptr() as usize, page.len()];
    let remote = [address, page.len()];
    // SAFETY: the call has no arguments. A child that shares this memory is another process.
    let pid = unsafe { call(libc::SYS_getpid, [0; 6]) } as usize;
    let arguments = [pid, &raw const local as usize, 1, &raw const remote as usize, 1, 0];
    // SAFETY: the page is the caller's to write; the kernel checks the other address.
    let read = unsafe { call(libc::SYS_process_vm_readv, arguments) };
    if [libc::ENOSYS, libc::EPERM].map(|errno| -errno as isize).contains(&read) {
        // SAFETY: the system, or a filter of the program's, has no such call. The address is one of
        // the yard: if the disk fails, that is a signal which ends the process.
        unsafe {
            core::ptr::copy_nonoverlapping(address as *const u8, page.as_mut_ptr(), page.len())
        };
        return true;
    }
    read == page.len() as isize
}

/// Has the disk give a page soon.
pub(super) fn prefetch(address: usize) {
    let arguments = [address, PAGE, libc::MADV_WILLNEED as usize, 0, 0, 0];
    // SAFETY: it changes no byte.
    unsafe { call(libc::SYS_madvise, arguments) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::nameless;
    use std::os::unix::fs::FileExt;

    fn file() -> File {
        nameless::create(&std::env::temp_dir()).expect("a file without a name")
    }

    #[test]
    fn a_block_is_written_once_and_a_window_goes_with_its_last_block() {
        yard::reserve_for_tests();
        let (mut windows, first, second) = (Windows::default(), file(), file());
        assert!(windows.next().is_empty(), "there is none");
        assert!(windows.begin(&first));
        assert_eq!(windows.next(), 0..BLOCKS);
        first.write_all_at(&[7; 2 * PAGE], 0).expect("room");
        windows.wrote(2);
        windows.take(1);
        let mut page = [0; PAGE];
        assert!(read(windows.address(1), &mut page) && page == [7; PAGE]);
        assert!(!read(windows.address(2), &mut page), "it is beyond the end of the file");
        assert_eq!((windows.next(), windows.live()), (2..BLOCKS, 1));
        windows.take(0);
        windows.give(0);
        assert_eq!(windows.next(), 2..BLOCKS, "a forked child may name it still");
        assert!(windows.begin(&second));
        assert_eq!(windows.next(), BLOCKS..2 * BLOCKS);
        windows.close_empty();
        assert!(read(windows.address(1), &mut page), "a slot names it");
        windows.give(1);
        let address = windows.address(1);
        windows.close_empty();
        assert!(!read(address, &mut page), "it is given up");
        assert!(windows.begin(&file()));
        assert_eq!(windows.next(), 0..BLOCKS, "the number is used again");
        assert_eq!(windows.address(1), address, "and the address");
        windows.begin_anew();
        assert!(windows.next().is_empty(), "a child writes to none of them");
    }

    #[test]
    fn the_emptiest_window_is_emptied_when_many_blocks_are_free() {
        yard::reserve_for_tests();
        let mut windows = Windows::default();
        for number in 0..4 {
            assert!(windows.begin(&file()));
            windows.wrote(BLOCKS);
            (0..BLOCKS).for_each(|block| windows.take(number * BLOCKS + block));
        }
        assert_eq!(windows.sparsest(), None);
        (2 * BLOCKS..4 * BLOCKS).for_each(|block| windows.give(block));
        (0..BLOCKS / 2).for_each(|block| windows.give(block));
        (0..BLOCKS / 2).for_each(|block| windows.give(BLOCKS + block));
        assert_eq!(windows.sparsest(), None, "one of four is live");
        windows.give(BLOCKS - 1);
        assert_eq!(windows.sparsest(), Some(0), "the last one is current");
    }
}
