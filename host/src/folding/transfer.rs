//! Moving or copying pages by requests that the system may stop in the middle.
//!
//! ```text
//!   ask(0) --> 5 pages, EAGAIN     ask(5) --> 9 pages, EBUSY     Transfer { pages: 14, Busy }
//! ```
//!
//! Invariant: the pages done are always the first ones of the transfer. Lock: none.

use super::uffd::Progress;
use rustix::io::Errno;

/// Why a transfer stopped before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The next page to move is not there, because no thread has touched it.
    Hole,
    /// The next page is in use by the system, or shared with a forked child.
    Busy,
    /// A page is there already.
    Present,
    /// The system had no memory.
    NoMemory,
    /// The process has no mapping left that closing or opening the page would take.
    NoMapping,
    /// The system gave another error, by its number, which nothing here can mend.
    Broken(i32),
}

/// How far a transfer came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// Pages done, from the first on.
    pub pages: usize,
    /// Why it stopped, if it did not do all.
    pub stop: Option<Stop>,
}

/// Repeats a request until all `count` pages are done, or until it stops for a reason that does not
/// pass by itself. `ask` gets the number of pages that are done, and requests the rest.
pub(crate) fn transfer(count: usize, ask: impl Fn(usize) -> Progress) -> Transfer {
    let mut pages = 0;
    while pages < count {
        let progress = ask(pages);
        pages += progress.pages;
        let stop = match progress.stopped {
            // The next request will name what stopped this one. Or the mappings were changing,
            // which passes.
            None | Some(Errno::AGAIN) => continue,
            Some(Errno::NOENT) => Stop::Hole,
            Some(Errno::BUSY) => Stop::Busy,
            Some(Errno::EXIST) => Stop::Present,
            Some(Errno::NOMEM) => Stop::NoMemory,
            Some(error) => Stop::Broken(error.raw_os_error()),
        };
        return Transfer { pages, stop: Some(stop) };
    }
    Transfer { pages, stop: None }
}
