//! Requests of clients: whole pages by number, and byte ranges as a [`Disk`](disk::Disk).
//!
//! `store` and `discard` change a page. `by_number` and `bytes` are the two entrances.
//!
//! The room stands on `page` for reading. It stands on `post`, because a write that finds no room
//! brings memory down. It stands on `report`, which knows what is on the backing disk.

mod by_number;
mod bytes;
mod detached;
#[cfg(not(feature = "study"))]
mod discard;
mod equal;
mod store;
#[cfg(feature = "study")]
mod study;
