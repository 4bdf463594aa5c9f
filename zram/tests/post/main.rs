//! Work on stored pages: idle marks, write-back, recompression.
//!
//! Each file says at its head what it claims.
#![cfg(not(loom))]

mod cold;
mod devices;
mod late;
mod meddled;
#[path = "../support/memory.rs"]
mod memory;
mod policy;
mod recompress;
mod threads;
mod tiers;
mod twin;
#[path = "../support/ways.rs"]
mod ways;
mod write_back;
