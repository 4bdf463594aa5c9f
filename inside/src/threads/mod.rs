//! The two threads of the library in a process.
//!
//! ```text
//!   pager    looks how much memory there is, and makes cold pages leave
//!   server   serves faults, and reads what the program does with its memory
//!              `-- streaks: how many pages a fault brings in
//! ```

pub(crate) mod pager;
mod server;
mod streaks;
#[cfg(test)]
mod tests;
