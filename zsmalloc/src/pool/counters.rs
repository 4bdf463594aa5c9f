//! What a pool counts: totals that any thread changes, and that nothing is decided by but limits.

use host::sync::atomic::AtomicU64;

use crate::numbers::SHARDS_MAX;

/// On cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Apart<T>(pub(crate) T);

/// Independent totals of a pool. They have cache lines of their own, because every operation reads
/// what lies beside them.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Counters {
    /// Frames of all zspages, and the most there ever were.
    pub(crate) frames: AtomicU64,
    pub(crate) frames_max: AtomicU64,
    /// Touched frames among them.
    pub(crate) resident: AtomicU64,
    /// Frames freed by compaction.
    pub(crate) compacted: AtomicU64,
    /// Times that compaction gave a class up early, because a thread waited for it.
    pub(crate) yields: AtomicU64,
    /// Zspages that are counted above but are in no class, because they are being built or given
    /// back. Those that the classes count are left out. There is a count for each thread; only the
    /// sums have a meaning.
    pub(crate) departed: [Apart<AtomicU64>; SHARDS_MAX],
    pub(crate) arrived: [Apart<AtomicU64>; SHARDS_MAX],
    /// The most bytes of objects in touched frames; 0 means no limit.
    pub(crate) limit: AtomicU64,
    /// Leaves of clients' tables.
    pub(crate) leaves: AtomicU64,
    /// Bytes of the classes' arrays of zspages.
    pub(crate) position_bytes: AtomicU64,
}
