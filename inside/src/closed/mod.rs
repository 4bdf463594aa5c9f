//! Folding without userfaultfd: pages that are out are closed, and a touch is a signal.
//!
//! ```text
//!   setup      arena, passage, handlers, filter
//!   handlers   SIGSEGV: opens what was touched      SIGSYS: looks at a system call
//!     masks, calls, memory, programs    what the calls are, and what is done instead
//!     way     a page closes, leaves, comes back and opens
//!     fold    store and queues
//!     state   what is known of the arena, under one lock
//!     spans, pins, reach, files, arena
//! ```
//!
//! Memory that folds is placed in the *arena*, an address range of its own. A system call that has
//! an address of it among its arguments is trapped by a filter. The handler opens the pages and
//! *pins* them, so that they stay open until the call has returned.

mod arena;
mod calls;
mod files;
mod filter;
mod fold;
mod handlers;
mod masks;
mod memory;
mod nested;
mod pins;
mod previous;
mod reach;
mod setup;
mod state;
mod way;

pub(crate) use files::without_ours;
pub(crate) use fold::Fold;
#[cfg(inside_program)]
pub(crate) use previous::OURS;
#[cfg(inside_program)]
pub(crate) use setup::{Library, begin};
pub(crate) use setup::{is_allowed, refusal};
pub(crate) use state::{State, patiently, with};
pub(crate) use way::{begin as fold, hold, look_again};
