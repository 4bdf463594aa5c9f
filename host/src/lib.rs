//! The unsafe fence: arena, tables, locks.
#![forbid(unsafe_code)]
