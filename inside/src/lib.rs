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
//! [`can_fold`]. With the flag `inside_program`, and linked without a C library, it is the file that
//! the loader puts into a program. Its rooms, each of which uses only those under it:
//!
//! ```text
//!   floor/start   where it begins
//!   fold          folding the memory of the process
//!   board         what processes of a run tell each other
//!   floor         threads, memory and system calls without a C library
//! ```
//!
//! Words: a *strand* is a thread of ours that no C library knows. The *yard* is the address range
//! in which our memory lies. A *tray* holds a group of pages between program and store. The *book*
//! says where each page is.

#![cfg_attr(
    not(inside_program),
    expect(dead_code, reason = "what threads of the library do is used inside programs alone")
)]

pub mod board;
mod floor;
mod fold;

pub use fold::{Refusal, can_fold};
