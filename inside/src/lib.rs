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
//! rooms that run inside programs are left out. The rooms, each of which uses only those under it:
//!
//! ```text
//!   start     where it begins: before `main`, and in forked children
//!   threads   the pager and the server
//!   ways      pages leave and come; what is on the way, and the store
//!   kernel    userfaultfd, and the files of `/proc/self`
//!   places    where each page is
//!   board     what processes of a run tell each other
//!   floor     threads, memory and system calls without a C library
//! ```
//!
//! Words: a *strand* is a thread of ours that no C library knows. The *yard* is the address range
//! in which our memory lies. A *tray* holds a group of pages between program and store. The *book*
//! says where each page is.

#![cfg_attr(
    not(any(inside_program, loom)),
    expect(dead_code, reason = "what threads of the library do is used inside programs alone")
)]

pub mod board;
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
    pub use crate::floor::still::{Still, Who};
    pub use crate::floor::turn::{Taken, Turn};
}

use std::fmt;
use std::io;

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

/// Whether this process could fold, and so its children.
///
/// # Errors
///
/// [`CannotFold`], if the system refuses a userfaultfd that serves system calls and tells of forks,
/// or has no `UFFDIO_MOVE`, or no `/proc`.
#[cfg(not(loom))]
pub fn can_fold() -> Result<(), CannotFold> {
    let refused = |what| move |source| CannotFold { what, source };
    kernel::Uffd::open().map_err(refused("the system refuses a userfaultfd for system calls"))?;
    kernel::Resident::open().map_err(refused("a file of /proc/self cannot be read"))?;
    Ok(())
}
