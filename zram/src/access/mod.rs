//! Requests of clients: whole pages by number, and byte ranges as a [`Disk`](disk::Disk).
//!
//! `store` and `discard` change a page; `by_number` and `bytes` are the two ways in. The room
//! stands on `page` for reading, on `post`, which brings memory down for a write that finds no
//! room, and on `report`, which knows what is on the backing disk.

mod by_number;
mod bytes;
mod discard;
mod store;
