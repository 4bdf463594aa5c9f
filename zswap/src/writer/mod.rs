//! What writing back needs: its buffers, the turn to use them, a thread that does it in the
//! background, and the cost of pages that come back.
//!
//! The room stands on the backing disk and the order. Nothing here knows a cache: `shared` puts
//! these parts to work.

mod buffers;
mod refaults;
mod turn;
mod worker;

pub(crate) use buffers::{Pick, Writer};
pub(crate) use refaults::Refaults;
pub(crate) use turn::{MyTurn, Turn};
pub(crate) use worker::Worker;
