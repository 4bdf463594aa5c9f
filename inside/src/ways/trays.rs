//! Trays: memory in which the pages of a group stand between the program and the store.
//!
//! ```text
//!   | tray 0: 64 pages | tray 1 | tray 2 | ...
//!     a page stands at its number in the group
//! ```
//!
//! Pages in a tray have a second chance: a touch moves them back. The oldest tray goes to the store
//! when memory is needed.
//!
//! After a fork parent and heir share the pages that stand in trays. The system does not move such
//! a page, so it is copied out.
//!
//! Emptying a tray would be an event that our own thread has to read, so a tray is not registered
//! while it is emptied.
//!
//! Invariant: a tray that is free has no page in memory. Lock: the caller's.

use crate::kernel::Uffd;
use crate::places::{GROUP, GROUP_PAGES, PAGE, Place, Word, bits};
use std::io;
use std::ops::Range;

/// What stands in a tray that is in use.
pub(crate) struct Tray {
    /// Where the page at each place belongs; 0 if there is none. A page may move while it is here.
    pub(crate) homes: [usize; GROUP_PAGES],
    /// The group that it was filled from.
    pub(super) group: usize,
    /// Pages that were touched here, and pages that came back beside them.
    pub(super) touched: u64,
    pub(super) beside: u64,
    /// Another process has its pages too.
    shared: bool,
}

impl Tray {
    /// The pages that it was filled with, as bits.
    pub(super) fn filled(&self) -> u64 {
        let places = self.homes.iter().enumerate();
        places.filter(|&(_, &home)| home != 0).fold(0, |all, (place, _)| all | bits(place, 1))
    }
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
        let base = reserve(count as usize * GROUP)?;
        let trays = Trays {
            base,
            free: (0..count).rev().collect(),
            trays: (0..count).map(|_| None).collect(),
        };
        uffd.register(&trays.all())?;
        Ok(trays)
    }

    /// The memory of all trays.
    pub(super) fn all(&self) -> Range<usize> {
        self.base..self.base + self.trays.len() * GROUP
    }

    /// What stands in trays now is shared with another process.
    pub(crate) fn share(&mut self) {
        self.trays.iter_mut().flatten().for_each(|tray| tray.shared = true);
    }

    /// Whether pages of a tray are shared with another process.
    pub(super) fn is_shared(&self, tray: u32) -> bool {
        self.trays[tray as usize].as_ref().is_some_and(|tray| tray.shared)
    }

    pub(crate) fn range(&self, tray: u32) -> Range<usize> {
        let start = self.base + tray as usize * GROUP;
        start..start + GROUP
    }

    /// Takes a free tray for the pages of a group.
    pub(crate) fn take(&mut self, group: usize) -> Option<u32> {
        let tray = self.free.pop()?;
        let empty = Tray { homes: [0; GROUP_PAGES], group, touched: 0, beside: 0, shared: false };
        self.trays[tray as usize] = Some(Box::new(empty));
        Some(tray)
    }

    /// A page was touched in a tray, and `came` have left it for the program.
    pub(super) fn touched(&mut self, tray: u32, page: usize, came: u64) {
        if let Some(tray) = self.tray(tray) {
            tray.touched |= bits(page, 1);
            tray.beside |= came & !bits(page, 1);
        }
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

    /// A tray that could not be emptied is not used any more.
    pub(super) fn retire(&mut self, tray: u32) {
        self.trays[tray as usize] = None;
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
/// What the system answers. The tray cannot be used any more then.
///
/// # Safety
///
/// `range` is a tray's, and nothing refers to its bytes.
pub(crate) unsafe fn empty(range: &Range<usize>, uffd: &Uffd) -> io::Result<()> {
    // A program may have as many mappings as the system lets it have. Then the mapping of the trays
    // cannot be split, and the other thread reads an event of ours.
    let is_split = uffd.unregister(range).is_ok();
    let start = range.start as *mut libc::c_void;
    // SAFETY: the caller's contract.
    let discard = || unsafe { libc::madvise(start, range.len(), libc::MADV_DONTNEED) };
    // A program that locks its memory (`mlockall`) locks ours too.
    // SAFETY: the caller's contract.
    let unlock = || unsafe { libc::munlock(start, range.len()) };
    if discard() != 0 && (unlock() != 0 || discard() != 0) {
        return Err(io::Error::last_os_error());
    }
    if is_split { uffd.register(range) } else { Ok(()) }
}

fn reserve(len: usize) -> io::Result<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // The system would make huge pages of trays, of which no page leaves alone. An error means that
    // it makes none anyway.
    // SAFETY: the mapping is new, and ours.
    unsafe { libc::madvise(start, len, libc::MADV_NOHUGEPAGE) };
    // Nothing moves between locked memory and other memory. A program may lock all that is mapped
    // from now on (`mlockall`).
    // SAFETY: as above.
    unsafe { libc::munlock(start, len) };
    Ok(start as usize)
}
