//! Folding the memory of the process that this code is in.
//!
//! ```text
//!   pager     server      the two threads
//!     `--> engine <--'    the ways of a page
//!   book  trays  store    where pages are
//!   uffd  resident  maps  what the kernel does and tells
//! ```

mod book;
pub(crate) mod end;
mod engine;
mod maps;
pub(crate) mod pager;
mod resident;
mod server;
mod store;
mod streaks;
mod terms;
mod trays;
mod uffd;

use std::fmt;
use std::io;

/// Why a process cannot fold.
#[derive(Debug)]
pub struct Refusal {
    what: &'static str,
    source: io::Error,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.source)
    }
}

impl std::error::Error for Refusal {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Whether this process could fold, and so its children.
///
/// # Errors
///
/// [`Refusal`], if the system refuses a userfaultfd that serves system calls and tells of forks, or
/// has no `UFFDIO_MOVE`, or no `/proc`.
pub fn can_fold() -> Result<(), Refusal> {
    let refused = |what| move |source| Refusal { what, source };
    uffd::Uffd::open().map_err(refused("the system refuses a userfaultfd for system calls"))?;
    resident::Resident::open().map_err(refused("a file of /proc/self cannot be read"))?;
    Ok(())
}
