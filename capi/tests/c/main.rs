//! The library as a C program gets it: installed, linked, and called.
//!
//! ```text
//!   install --> header, libraries, pkg-config --cc, c++--> programs of tests/programs, examples,
//!                                                          and docs/c.md
//!   rig         installs, builds and runs
//!   everything  every function; plain, under AddressSanitizer, under valgrind
//!   kv          the example: a key-value server
//!   document    the programs of docs/c.md
//! ```

#![forbid(unsafe_code)]

mod document;
mod everything;
mod kv;
mod rig;
