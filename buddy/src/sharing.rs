//! A zone for many threads: its lock, and lists of each CPU that come and go without it. With the
//! feature `study` also what a study compares with the published counts.

mod cpu_lists;
mod percpu;
mod shared;
#[cfg(feature = "study")]
pub mod study;

pub use shared::SharedZone;
