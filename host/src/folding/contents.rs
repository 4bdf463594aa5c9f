//! Which pages of a range have contents, and where.
//!
//! ```text
//!   in memory              `mincore`
//!   in the system's swap   the page map, or the file of guarded pages
//! ```
//!
//! The answers are bits, one for each page, the first lowest. A range has 64 pages at most.
//!
//! Invariant: nothing here changes a page. Lock: none.

use super::closing::Closing;
use super::error::FaultMode;
use super::fault_path::{FaultPath, Way};
use crate::machine::PAGE_SIZE;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Pages of a segment, which is the unit in which cold memory is found and moved.
pub const SEGMENT_PAGES: usize = 64; // 256 KiB

const _: () = assert!(SEGMENT_PAGES <= u64::BITS as usize, "a bit of a word for each page");

/// Bytes of a page's entry in `/proc/self/pagemap`.
const PAGEMAP_BYTES: usize = 8;

/// The pages of a range that have contents in memory or in the system's swap. `None` if the system
/// does not tell. May be called in a signal handler.
pub(super) fn touched(path: &FaultPath, range: &Range<usize>) -> Option<u64> {
    if let (FaultMode::Guards, Way::Closing(closing)) = (path.mode(), path.way()) {
        return in_memory(range).map(|there| with_swapped(&**closing, range, there));
    }
    let known = path.pagemap().and_then(|map| in_page_map(map, range));
    // Without the page map, only pages in memory are known.
    known.or_else(|| in_memory(range))
}

/// Those that the page map has.
pub(super) fn in_page_map(pagemap: &File, range: &Range<usize>) -> Option<u64> {
    let mut entries = [0; SEGMENT_PAGES * PAGEMAP_BYTES];
    let entries = &mut entries[..range.len() / PAGE_SIZE * PAGEMAP_BYTES];
    let first = range.start / PAGE_SIZE;
    pagemap.read_exact_at(entries, (first * PAGEMAP_BYTES) as u64).ok()?;
    // The two highest bits are "present" and "swapped". The bytes of an entry are in the machine's
    // order.
    let top = if cfg!(target_endian = "little") { PAGEMAP_BYTES - 1 } else { 0 };
    Some(as_bits(entries.chunks(PAGEMAP_BYTES).map(|entry| entry[top] >> 6 != 0)))
}

/// Those that are in memory: `mincore(2)`.
pub(super) fn in_memory(range: &Range<usize>) -> Option<u64> {
    let mut there = [0; SEGMENT_PAGES];
    let there = &mut there[..range.len() / PAGE_SIZE];
    let start = std::ptr::without_provenance_mut(range.start);
    // SAFETY: the vector has a byte for each page of the range.
    let answer = unsafe { libc::mincore(start, range.len(), there.as_mut_ptr()) };
    // The low bit of each byte says whether the page is there.
    (answer == 0).then(|| as_bits(there.iter().map(|&page| page & 1 == 1)))
}

/// Adds to the pages of a file that are in memory those in the system's swap. The page map has
/// neither if no page table has them.
fn with_swapped(closing: &dyn Closing, range: &Range<usize>, there: u64) -> u64 {
    let (mut touched, mut at) = (there, 0);
    while let Some(next) = (at..range.len() / PAGE_SIZE).find(|&page| there >> page & 1 == 0) {
        let data = closing.next_data(range.start + next * PAGE_SIZE);
        let Some(data) = data.filter(|&data| data < range.end) else { break };
        at = (data - range.start) / PAGE_SIZE;
        touched |= 1 << at;
        at += 1;
    }
    touched
}

/// A bit for each, the first lowest.
fn as_bits(pages: impl DoubleEndedIterator<Item = bool>) -> u64 {
    pages.rev().fold(0, |bits, page| bits << 1 | u64::from(page))
}
