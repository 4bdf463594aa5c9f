//! The algorithms: each turns a page into a blob, and a blob into a page.
//!
//! ```text
//!             compresses with             decompresses with
//!   lzo       a table of the stream       nothing
//!   lz4       a table of the thread       nothing
//!   lz4hc     a state of the stream       nothing (it is lz4's)
//!   zstd      contexts in `kept`          one context
//!   deflate   contexts in `kept`          one context
//!   pagelz    a state of the stream       nothing
//! ```
//!
//! Invariant: a blob is hostile. A decoder checks every bound, fills the whole page or fails, and
//! never reads or writes outside of the two slices it was given.
//!
//! Locks: none, except the one in a dictionary of `lz4` or `lz4hc`, held while it is attached.

pub(crate) mod deflate;
mod kept;
pub(crate) mod lz4;
pub(crate) mod lz4hc;
pub(crate) mod lzo;
pub(crate) mod pagelz;
pub(crate) mod zstd;
