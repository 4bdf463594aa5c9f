//! Codecs, and the streams with which they work.
//!
//! ```text
//!   page_codec   an algorithm with its parameters     streams   a few, shared by all threads
//!        \                                             /
//!         `-------------> stream: contexts, output <--'
//!                            |
//!                        dictionary                   train     makes a dictionary from pages
//!
//!   learned      a codec gets its dictionary later    names     a codec as text, and back
//!
//!   shuffle      orders the bytes of a page for page_codec
//!   unit         several pages as one frame: a packer makes it, a stream has room to read it
//! ```
//!
//! Invariant: a stream knows no codec. A codec hands it what it needs.
//!
//! Lock: one for each stream of `streams`.

mod dictionary;
mod guide;
mod learned;
mod names;
mod page_codec;
mod shuffle;
mod stream;
mod streams;
mod train;
mod unit;

pub use page_codec::{Codec, Parameters};
pub use stream::Stream;
pub use streams::Streams;
pub use train::{
    DICTIONARY_LEN_MIN, TABLES_LEN, TrainError, shipped_tables, train, train_samples, train_tables,
};
pub use unit::UnitPacker;
