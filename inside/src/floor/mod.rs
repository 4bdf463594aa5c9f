//! The ground that our code stands on inside a program, in place of a C library.
//!
//! ```text
//!   gate ----> turn, still     forks
//!   names ---> heap ----> yard what the standard library asks for
//!   bytes                      what the compiler asks for
//!              strand ----'    threads with stacks of their own
//!                `--> pristine our variables, for a forked child
//!   crossing -----' strands    threads of the program on stacks of ours
//!   pin                        system calls that use a group
//!   passage                    calls that no filter traps
//!   runner                     what else may run the program
//!   call                       the kernel
//! ```

#[cfg(all(target_arch = "x86_64", not(loom)))]
pub(crate) mod call;
#[cfg(all(target_arch = "x86_64", not(loom)))]
pub(crate) mod crossing;
#[cfg(all(target_arch = "x86_64", not(loom)))]
pub(crate) mod gate;
#[cfg(all(target_arch = "x86_64", not(loom)))]
pub(crate) mod passage;
#[cfg(any(target_arch = "x86_64", loom))]
pub(crate) mod pin;
#[cfg(all(target_arch = "x86_64", not(loom)))]
pub(crate) mod pristine;
#[cfg(all(target_arch = "x86_64", not(loom)))]
pub(crate) mod runner;
#[cfg(any(target_arch = "x86_64", loom))]
pub(crate) mod still;
#[cfg(all(target_arch = "x86_64", not(loom)))]
pub(crate) mod strand;
#[cfg(any(target_arch = "x86_64", loom))]
pub(crate) mod turn;
#[cfg(all(target_arch = "x86_64", not(loom)))]
pub(crate) mod yard;

#[cfg(any(inside_program, all(test, target_arch = "x86_64", not(loom))))]
mod bytes;
#[cfg(inside_program)]
mod heap;
#[cfg(inside_program)]
mod names;
