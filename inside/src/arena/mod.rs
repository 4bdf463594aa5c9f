//! The memory of a program that folds without userfaultfd, and the ways of its pages.
//!
//! ```text
//!   way     a page comes back and opens; what leaves next
//!   out     a page closes and leaves           fresh  memory that was never touched
//!   state   what is known of the arena, under one lock
//!   fold    store and queues
//!   pins    groups that system calls use        reach   closed memory is read and written
//!   files   by which that is done               addresses
//!   stacks  for handlers, and for children      narrow  more for stacks of threads
//!   executing  threads that execute programs
//! ```
//!
//! The *arena* is an address range of its own, in which memory lies that folds. Pages of it are
//! open, or *closed*: without access. A group that is *pinned* stays open.

pub(crate) mod addresses;
mod executing;
pub(crate) mod files;
mod fold;
pub(crate) mod fresh;
pub(crate) mod narrow;
pub(crate) mod out;
pub(crate) mod pins;
pub(crate) mod reach;
pub(crate) mod stacks;
pub(crate) mod state;
pub(crate) mod way;

pub(crate) use files::without_ours;
pub(crate) use fold::Fold;
pub(crate) use out::guard;
pub(crate) use state::{State, go_on, patiently, with};
pub(crate) use way::{begin as fold, hold, look_again, try_shelf};
