//! What a memory knows of the pools that live in it.
//!
//! ```text
//!   Pool: Tenant ---- enters ----> Memory: a list of Weak<dyn Tenant>
//!        ^                            |
//!        `---- compact, move, free ---'     by the worker, by an evacuation, by a flush
//! ```
//!
//! Invariant: a memory calls a tenant with no lock held, not even that of the list.

use host::Pfn;

use super::{Frames, MigrateError};

/// A user of a memory's frames, which the memory can ask for some of them.
pub(crate) trait Tenant: Send + Sync {
    /// The number that its zspages' descriptors have.
    fn id(&self) -> u32;
    /// Compacts, if nothing changed since the last call. False while it is in use.
    fn compact_at_rest(&self) -> bool;
    /// Compacts now.
    fn compact(&self);
    /// Frees what its clients gave up and what only lags behind.
    fn flush_lagging(&self);
    /// Frees everything that is pending.
    fn flush_deferred(&self);
    /// Frees what fills whole buffers now.
    fn drain_deferred(&self);
    /// Bytes of what is pending.
    fn pending_bytes(&self) -> u64;
    /// Moves the zspage that starts at frame `pfn` to other frames.
    fn migrate(&self, pfn: Pfn, to: Frames) -> Result<(), MigrateError>;
}
