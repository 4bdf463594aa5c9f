//! The command line: what was typed, what a change means, and the ways out for text and errors.
//!
//! ```text
//!   words --usage--> args: options, each well formed --> a verb
//!                      |-- mounting: the words of mount and umount
//!                      |-- forms: addresses, numbers
//!                      |-- attribute: what `set` changes      export: a device that is asked for
//!                      '-- size: numbers that people read and write
//!   output: standard output and standard error          failure: why a verb did not succeed
//!   exposition: figures for monitoring      whole: files that are made or replaced as a whole
//! ```
//!
//! Invariant: nothing here asks a server, except that `attribute` and `export` change devices that
//! they were given. Locks: none.

pub(crate) mod args;
pub(crate) mod attribute;
pub(crate) mod choices;
#[cfg(test)]
mod documents;
pub(crate) mod export;
pub(crate) mod exposition;
mod failure;
mod forms;
pub(crate) mod monitoring;
pub(crate) mod mounting;
pub(crate) mod output;
pub(crate) mod size;
pub(crate) mod usage;
pub(crate) mod whole;

pub(crate) use failure::Failure;
