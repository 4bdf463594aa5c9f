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

/// How the memory of programs folds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The kernel tells of faults: userfaultfd.
    Faults,
    /// Pages that are out are closed, and a touch is a signal. The environment asks for it.
    Closed,
}

/// The variable of the environment, and its value, which ask for [`Way::Closed`].
pub const WISH: (&str, &str) = ("RAMFOLD_PATH", "closed");

/// How this process could fold, and so its children.
///
/// # Errors
///
/// [`CannotFold`], if there is no `/proc`, or if the system refuses the way: a userfaultfd that
/// serves system calls and tells of forks, with `UFFDIO_MOVE`; or, by wish, a filter of system
/// calls, and writing to closed memory by `/proc/self/mem`.
#[cfg(not(loom))]
pub fn can_fold() -> Result<Way, CannotFold> {
    let refused = |what| move |source| CannotFold { what, source };
    kernel::Resident::open().map_err(refused("a file of /proc/self cannot be read"))?;
    if std::env::var_os(WISH.0).is_some_and(|value| value == WISH.1) {
        let refused = refused("the system refuses what folding by signals needs");
        let unsupported = || refused(std::io::ErrorKind::Unsupported.into());
        return may_close().then_some(Way::Closed).ok_or_else(unsupported);
    }
    kernel::Uffd::open().map_err(refused("the system refuses a userfaultfd for system calls"))?;
    Ok(Way::Faults)
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
