//! Reading a page: decoded from its slot, or fetched from the backing disk.
//!
//! `decode` is what a locked slot holds, `fetch` reads what was written back, and `load` is a whole
//! page, wherever it is. Nothing here changes what a page is. The room stands on the device.

mod decode;
mod fetch;
mod load;

pub(crate) use decode::{Decoded, undecoded};
pub(crate) use fetch::{Fetched, Fetches};
