//! What is derived from the table of the command line, which is [`Line`](crate::line::args::Line).
//!
//! ```text
//!   table -- config: keys of a file are the long options       --> words of a command line
//!        '-- manual: a page for each command, and for the file --> text for man
//!        '-- completions                                       --> a script for a shell
//! ```
//!
//! Invariant: no option is named here a second time, except in a text about it. Locks: none.

pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod manual;
