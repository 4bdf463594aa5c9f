//! Objects and zspages on the move: compaction, joining of classes, migration to other frames, and
//! when the memory's worker asks for it.

mod compact;
mod join;
mod migrate;
mod rest;
mod tenant;

pub use migrate::ZspageInfo;
