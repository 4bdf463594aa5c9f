//! Trays: memory in which the pages of a group stand between the program and the store.
//!
//! ```text
//!   | tray 0: 64 pages | guard | tray 1 | guard | ...
//!     a page stands at its number in the group
//! ```
//!
//! Pages in a tray have a second chance: a touch copies them back. The oldest tray goes to the
//! store when memory is needed.
//!
//! Each tray is a mapping of its own. Emptying one would be an event that our own thread has to
//! read, so a tray is not registered while it is emptied.
//!
//! Invariant: a tray that is free has no page in memory. Lock: the caller's.

use crate::kernel::Uffd;
use crate::places::{GROUP, GROUP_PAGES, PAGE, Place, Word};
use std::io;
use std::ops::Range;

/// Addresses from one tray to the next.
const STRIDE: usize = GROUP + PAGE;

/// What stands in a tray that is in use.
pub(crate) struct Tray {
    /// Where the page at each place belongs; 0 if there is none. A page may move while it is here.
    pub(crate) homes: [usize; GROUP_PAGES],
}

/// All trays.
pub(crate) struct Trays {
    base: usize,
    free: Vec<u32>,
    /// By number; those in use have content.
    trays: Vec<Option<Box<Tray>>>,
}

impl Trays {
    /// Makes `count` trays and registers them.
    ///
    /// # Errors
    ///
    /// What the system answers.
    pub(crate) fn new(count: u32, uffd: &Uffd) -> io::Result<Trays> {
        let base = reserve(count as usize * STRIDE)?;
        let trays = Trays {
            base,
            free: (0..count).rev().collect(),
            trays: (0..count).map(|_| None).collect(),
        };
        for tray in 0..count {
            let range = trays.range(tray);
            let access = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: a part of a new mapping that nothing uses.
            let opened = unsafe { libc::mprotect(range.start as *mut libc::c_void, GROUP, access) };
            if opened != 0 {
                return Err(io::Error::last_os_error());
            }
            uffd.register(&range)?;
        }
        Ok(trays)
    }

    pub(crate) fn range(&self, tray: u32) -> Range<usize> {
        let start = self.base + tray as usize * STRIDE;
        start..start + GROUP
    }

    /// Takes a free tray.
    pub(crate) fn take(&mut self) -> Option<u32> {
        let tray = self.free.pop()?;
        self.trays[tray as usize] = Some(Box::new(Tray { homes: [0; GROUP_PAGES] }));
        Some(tray)
    }

    /// A tray that is in use.
    pub(crate) fn tray(&mut self, tray: u32) -> Option<&mut Tray> {
        self.trays[tray as usize].as_deref_mut()
    }

    /// The bytes of `count` pages from a place on.
    ///
    /// # Safety
    ///
    /// The pages are in the tray, and it is not emptied while the bytes are used.
    pub(crate) unsafe fn pages(&self, tray: u32, place: usize, count: usize) -> &'static [u8] {
        assert!(place + count <= GROUP_PAGES, "places of the tray");
        let start = self.range(tray).start + place * PAGE;
        // SAFETY: the caller's contract; nobody writes to a page in a tray.
        unsafe { std::slice::from_raw_parts(start as *const u8, count * PAGE) }
    }

    /// Pages moved from one address to another: those in trays are told. `words` are the pages with
    /// their new addresses.
    pub(crate) fn moved(&mut self, words: impl Iterator<Item = (usize, Word)>) {
        for (address, word) in words {
            if let Place::Tray(tray, place) = word.place()
                && let Some(tray) = self.tray(tray)
            {
                tray.homes[place] = address;
            }
        }
    }

    /// Makes a tray free that was emptied.
    pub(crate) fn give_back(&mut self, tray: u32) {
        self.trays[tray as usize] = None;
        self.free.push(tray);
    }
}

/// Takes the memory of a tray away. No page in it is wanted any more.
///
/// # Errors
///
/// What the system answers. The tray cannot be used then.
///
/// # Safety
///
/// `range` is a tray's, and nothing refers to its bytes.
pub(crate) unsafe fn empty(range: &Range<usize>, uffd: &Uffd) -> io::Result<()> {
    uffd.unregister(range)?;
    let start = range.start as *mut libc::c_void;
    // SAFETY: the caller's contract.
    let discard = || unsafe { libc::madvise(start, range.len(), libc::MADV_DONTNEED) };
    // A program that locks its memory (`mlockall`) locks ours too.
    // SAFETY: the caller's contract.
    let unlock = || unsafe { libc::munlock(start, range.len()) };
    if discard() != 0 && (unlock() != 0 || discard() != 0) {
        return Err(io::Error::last_os_error());
    }
    uffd.register(range)
}

fn reserve(len: usize) -> io::Result<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_NONE, flags, -1, 0) };
    if start == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(start as usize) }
}
