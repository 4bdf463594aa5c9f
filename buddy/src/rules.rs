//! What a zone does beside handing out and taking back: each of the kernel's rules in a file.
//!
//! All of it is work on the lists of a zone, under its lock.

mod check;
mod fallback;
mod isolate;
mod online;
mod release;
mod reserve;
mod retype;
mod survey;

pub use check::ZoneCheck;
