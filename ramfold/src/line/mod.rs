//! The command line: what was typed, what a change means, and the ways out for text and errors.
//!
//! ```text
//!   words --usage--> args: options, each well formed --> a verb
//!                      |-- attribute: what `set` changes
//!                      '-- size: numbers that people read and write
//!   output: standard output and standard error          failure: why a verb did not succeed
//!   whole: files that are made or replaced as a whole
//! ```
//!
//! Invariant: nothing here asks a server, except that `attribute` makes a change to devices that it
//! was given. Locks: none.

pub(crate) mod args;
pub(crate) mod attribute;
pub(crate) mod choices;
mod failure;
pub(crate) mod output;
pub(crate) mod size;
pub(crate) mod usage;
pub(crate) mod whole;

pub(crate) use failure::Failure;
