//! The library that `ramfold run` puts inside programs, and the board by which its processes share
//! a limit.
//!
//! ```text
//!   program      | its threads | its memory                 |
//!                       |            ^
//!                  faults, events    | pages leave and come
//!                       v            v
//!   library      | server | pager | book | trays | store    |  --- board --- other processes
//! ```
//!
//! The same code is built in two ways. As a library of the command it has [`board`] and
//! [`can_fold`]. With the flag `inside_program`, and linked without a C library, it is the file
//! that the loader puts into a program. That file exists for 64-bit Intel and AMD; elsewhere the
//! rooms that run inside programs are left out. The rooms:
//!
//! ```text
//!   start     where it begins: before `main`, and in forked children
//!   threads   the pager and the server
//!   closed    the same without userfaultfd: signals, a filter of system calls
//!   arena     the memory that folds then, and the ways of its pages
//!   ways      pages leave and come; what is on the way, and the store
//!   kernel    userfaultfd, and the files of `/proc/self`
//!   places    where each page is
//!   board     what processes of a run tell each other
//!   floor     threads, memory and system calls without a C library
//! ```
//!
//! Invariant: each room uses only those under it.
//!
//! Words: a *strand* is a thread of ours that no C library knows. The *yard* is the address range
//! in which our memory lies. A *tray* holds a group of pages between program and store. The *book*
//! says where each page is.

#![cfg_attr(
    not(any(inside_program, loom)),
    expect(dead_code, reason = "what threads of the library do is used inside programs alone")
)]

#[cfg(all(target_arch = "x86_64", not(loom)))]
mod arena;
pub mod board;
#[cfg(all(target_arch = "x86_64", not(loom)))]
mod closed;
mod floor;
#[cfg(not(loom))]
mod kernel;
#[cfg(not(loom))]
mod places;
#[cfg(inside_program)]
mod start;
#[cfg(all(target_arch = "x86_64", not(loom)))]
mod threads;
#[cfg(all(target_arch = "x86_64", not(loom)))]
mod ways;

/// What models run.
#[cfg(loom)]
pub mod model {
    pub use crate::floor::pin::PinWord;
    pub use crate::floor::still::{Still, Who};
    pub use crate::floor::turn::{Taken, Turn};
}

use std::fmt;
use std::io;

pub use board::Way;

/// Why a process cannot fold.
#[derive(Debug)]
pub struct CannotFold {
    what: &'static str,
    source: io::Error,
}

impl fmt::Display for CannotFold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.source)
    }
}

impl std::error::Error for CannotFold {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// The variable of the environment that asks for a way, by its name.
pub const WISH: &str = "RAMFOLD_PATH";

/// How this process could fold, and so its children.
#[derive(Debug)]
pub struct Choice {
    /// The way.
    pub way: Way,
    /// Why it is not userfaultfd, if the system refuses that.
    pub refused: Option<CannotFold>,
}

/// How this process could fold, and so its children. Userfaultfd is first, unless the environment
/// asks for the other way.
///
/// # Errors
///
/// [`CannotFold`], if there is no `/proc`, or if the environment asks for a way that there is not.
/// Also if the system refuses the ways. One is a userfaultfd that serves system calls and tells of
/// forks, with `UFFDIO_MOVE`. The other is a filter of system calls.
#[cfg(not(loom))]
pub fn can_fold() -> Result<Choice, CannotFold> {
    let refused = |what| move |source| CannotFold { what, source };
    kernel::Resident::open().map_err(refused("a file of /proc/self cannot be read"))?;
    let wish = wish().map_err(refused("RAMFOLD_PATH is neither userfaultfd nor closed"))?;
    let mut why = None;
    if wish != Some(Way::Closed) {
        match kernel::Uffd::open() {
            Ok(_) => return Ok(Choice { way: Way::Faults, refused: None }),
            Err(error) => {
                why = Some(refused("the system refuses a userfaultfd for system calls")(error));
            }
        }
    }
    if wish != Some(Way::Faults) && may_close() {
        return Ok(Choice { way: Way::Closed, refused: why });
    }
    let no_signals = refused("the system refuses what folding by signals needs");
    Err(why.unwrap_or_else(|| no_signals(io::ErrorKind::Unsupported.into())))
}

/// Whether stores can have their files in a directory.
///
/// # Errors
///
/// What the system answers. `EOPNOTSUPP` and `EISDIR` say that the file system has no files without
/// a name.
#[cfg(not(loom))]
pub fn can_back(directory: &std::path::Path) -> io::Result<()> {
    kernel::nameless::check(directory)
}

/// The way that the environment asks for.
#[cfg(not(loom))]
fn wish() -> io::Result<Option<Way>> {
    let Some(wish) = std::env::var_os(WISH).filter(|wish| !wish.is_empty()) else {
        return Ok(None);
    };
    let known = [Way::Faults, Way::Closed].into_iter().find(|way| wish == way.name());
    known.map(Some).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// Whether the system allows what the closed way needs.
#[cfg(all(target_arch = "x86_64", not(loom)))]
fn may_close() -> bool {
    closed::is_allowed()
}

#[cfg(all(not(target_arch = "x86_64"), not(loom)))]
fn may_close() -> bool {
    false
}
