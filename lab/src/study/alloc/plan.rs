//! What a measurement is of: as the study says it and the child understands it.

use std::time::Duration;
use zsmalloc::Rule;

/// The name of our store in rows.
pub(super) const ZSMALLOC: &str = "zsmalloc";

/// What a measurement is of, besides the holder.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) threads: u32,
    pub(super) run: u32,
    /// Of a pool.
    pub(super) chain_order: u32,
    pub(super) rule: Rule,
    /// How long a heap is left alone to give memory back.
    pub(super) rest: Duration,
}
