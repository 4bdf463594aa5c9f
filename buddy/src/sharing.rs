//! A zone for many threads: its lock, and lists of each CPU that come and go without it.

mod cpu_lists;
mod percpu;
mod shared;

pub use shared::SharedZone;
