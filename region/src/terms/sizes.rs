//! How many pages move at a time, and how small a limit can be.

use host::PAGE_SIZE;

/// Pages of a group, which are looked at and moved together.
pub(crate) const GROUP_PAGES: usize = host::SEGMENT_PAGES; // 64
/// Groups of a chunk.
pub(crate) const CHUNK_GROUPS: usize = 8; // 2 MiB
/// Pages that one call brings in, at most.
pub(crate) const AROUND_PAGES: usize = 16; // 64 KiB

/// The least a region can be limited to, in bytes: four times what leaves memory at a time.
pub const LIMIT_MIN: usize = 4 * GROUP_PAGES * PAGE_SIZE; // 1 MiB
