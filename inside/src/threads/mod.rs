//! The two threads of the library in a process, and what they become in a child.
//!
//! ```text
//!   pager    looks how much memory there is, and makes cold pages leave
//!   server   serves faults, and reads what the program does with its memory
//!              |-- awake: how it waits for the next fault
//!              |-- streaks: how many pages a fault brings in
//!              |-- passage: a fork that is under way
//!              `-- children: those that need their parent still
//!   sharing  what forks share, and how often to ask
//!   figures  what both kinds of pagers say of the process
//!   disk     what both kinds of pagers do with a disk
//!   manners  descriptors, names and time of our threads
//!   heir     a forked child goes on with its copy of our memory
//! ```

mod awake;
mod children;
mod disk;
mod figures;
pub(crate) mod heir;
pub(crate) mod keeper;
mod manners;
pub(crate) mod pager;
mod passage;
mod server;
mod sharing;
mod streaks;
mod tending;
#[cfg(test)]
mod tests;
