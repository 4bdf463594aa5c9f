//! Reading a page: decoded from its slot, or fetched from the backing disk.
//!
//! `decode` decodes a locked slot, `fetch` reads a page that was written back, and `load` reads a
//! whole page, wherever it is. `take_out` gives a page of a unit an object of its own. Nothing else
//! here changes a page. The room stands on the device.

mod decode;
mod fetch;
mod load;
mod take_out;

pub(crate) use decode::{Decoded, undecoded};
pub(crate) use fetch::{Fetched, Fetches};
