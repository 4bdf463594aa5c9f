//! The ground that our code stands on inside a program, in place of a C library.
//!
//! ```text
//!   start --------> gate              the beginning; forks
//!     `--> names -> heap ----> yard   what the standard library asks for
//!     `-----------> strand ----'      threads with stacks of their own
//!     `-----------> pristine          our variables, for a forked child
//!                      `-----> call   the kernel
//! ```

pub(crate) mod call;
pub(crate) mod gate;
mod pristine;
pub(crate) mod strand;
pub(crate) mod yard;

#[cfg(inside_program)]
mod heap;
#[cfg(inside_program)]
mod names;
#[cfg(inside_program)]
mod start;
