//! Folding without userfaultfd: pages that are out are closed, and a touch is a signal.
//!
//! ```text
//!   setup      arena, passage, handlers, filter
//!   handlers   SIGSEGV: opens what was touched      SIGSYS: looks at a system call
//!     masks, previous            signals, and the program's own actions
//!     calls, memory, carry,
//!     nested                     what the calls are, and what is done instead
//!     code, musl, cancel         the program's C library, and what musl does otherwise than glibc
//!     origin                     what the program was made by
//! ```
//!
//! A system call that has an address of the arena among its arguments is trapped by a filter. The
//! handler opens the pages and pins them, so that they stay open until the call has returned.

mod arguments;
mod calls;
mod cancel;
mod carry;
mod code;
mod filter;
mod handlers;
mod masks;
mod memory;
mod musl;
mod nested;
mod origin;
mod previous;
mod setup;

#[cfg(inside_program)]
pub(crate) use previous::OURS;
#[cfg(inside_program)]
pub(crate) use setup::{Library, begin, refuse};
pub(crate) use setup::{is_allowed, refusal};
