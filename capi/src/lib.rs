//! ramfold for C: memory that folds, and a dense store of compressed values.
//!
//! ```text
//!   ramfold.h --> border     pointers of C become slices and numbers; panics become codes
//!                   |
//!                   v        from here on everything is safe Rust
//!                 handles    numbers that name memories, dictionaries, pools, pagers, regions
//!                   |
//!                 values     objects of a pool, compressed, cut and counted      form: their bytes
//!                 dictionary what values have in common
//!                 regions    regions, small ones as plots of one field
//!                 code       codes, and the last message of a thread
//! ```
//!
//! The header `include/ramfold.h` documents every function, and `docs/c.md` is the manual. Nothing
//! here is for Rust: the crate `ramfold` is.
//!
//! Invariant: a function of the border returns a code for whatever it is given, except a pointer
//! that is neither NULL nor valid.

#![deny(unsafe_code)]

#[expect(unsafe_code, reason = "pointers of C are read and written there, and nowhere else")]
mod border;
mod code;
mod handles;
mod regions;
