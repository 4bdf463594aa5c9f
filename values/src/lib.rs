//! A dense store of values: bytes of any length up to a MiB, compressed, under numbers.
//!
//! ```text
//!   ValuePool    objects of a pool, compressed, cut and counted      form: their bytes
//!   Dictionary   what values have in common, shared by pools
//! ```
//!
//! The stores for other languages are made of it: `ramfold_pool` of C, and `ramfold.Store` of
//! Python. It has numbers that are refused when they are stale, frees by a shared right, and errors
//! that say what to do.
//!
//! ```
//! use ramfold_values::{Room, ValuePool, memory};
//! let values = ValuePool::new(memory(Room::default())?, Some("zstd:3".parse()?), None)?;
//! let number = values.put(&[7; 3000])?;
//! let mut back = Vec::new();
//! values.get(number, usize::MAX, &mut |_, piece| back.extend_from_slice(piece))?;
//! assert_eq!(back, [7; 3000]);
//! values.delete(number)?;
//! assert!(values.len(number).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod dictionary;
mod error;
mod form;
mod scratch;
mod store;

pub use dictionary::Dictionary;
pub use error::ValuesError;
pub use store::{Room, ValuePool, ValueStats, memory};
