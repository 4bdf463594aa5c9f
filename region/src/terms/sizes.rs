//! How many pages move at a time, and the smallest limit.

use host::PAGE_SIZE;

/// Pages of a group, which are looked at and moved together.
pub(crate) const GROUP_PAGES: usize = host::SEGMENT_PAGES; // 64
/// Groups of a chunk.
pub(crate) const CHUNK_GROUPS: usize = 8; // 2 MiB
/// The most pages that one call brings in.
pub(crate) const AROUND_PAGES: usize = 16; // 64 KiB

/// The smallest limit of a region, in bytes: four times the pages that leave memory together.
pub const LIMIT_MIN: usize = 4 * GROUP_PAGES * PAGE_SIZE; // 1 MiB
