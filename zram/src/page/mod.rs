//! Reading a page: decoded from its slot, or fetched from the backing disk.
//!
//! `decode` decodes a locked slot, `fetch` reads a page that was written back, and `load` reads a
//! whole page, wherever it is. Nothing here changes a page. The room stands on the device.

mod decode;
mod fetch;
mod load;

pub(crate) use decode::{Decoded, undecoded};
pub(crate) use fetch::{Fetched, Fetches};
