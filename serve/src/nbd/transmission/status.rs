//! A block status request: what the disk knows about a range, in terms of `base:allocation`.
//!
//! Invariants: extents follow one another from the request's offset. None is empty, neighbours
//! differ, and the last ends within the range. A long answer is cut short and not refused. The
//! protocol says that the client then asks again from where it ends.
//!
//! Locks: the disk's.

use super::link::{End, Link};
use super::refusal::Refusal;
use super::reply::{self, CHUNK_BYTES, Place};
use super::request::Request;
use super::wire;
use crate::terms::limits::{EXTENT_PROBES_MAX, EXTENTS_MAX};
use disk::{Disk, DiskError, Extent, ExtentKind};

/// The number of `base:allocation` in block status replies.
pub(crate) const ALLOCATION_ID: u32 = 1;
/// Bytes of one extent in the reply.
const EXTENT_BYTES: usize = 8;

/// Extents found so far.
struct Found {
    runs: [Run; EXTENTS_MAX], // 8 KiB, on the stack of the connection
    count: usize,
}

/// One extent as it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    len: u32,
    flags: u32,
}

/// Replies to a valid request with its extents, or only the first if `one` is set.
pub(super) fn tell(
    disk: &dyn Disk,
    request: &Request,
    one: bool,
    link: &mut Link<'_>,
) -> Result<Result<(), Refusal>, End> {
    let found = match find(disk, request, if one { 1 } else { EXTENTS_MAX }) {
        Ok(found) => found,
        Err(error) => return Ok(Err(Refusal::of(&error))),
    };
    let len = 4 + found.count * EXTENT_BYTES;
    link.make_room(CHUNK_BYTES + len)?;
    reply::chunk(link, request.cookie, Place::Last, wire::CHUNK_BLOCK_STATUS, len)?;
    link.put(&ALLOCATION_ID.to_be_bytes())?;
    for run in &found.runs[..found.count] {
        link.put(&run.len.to_be_bytes())?;
        link.put(&run.flags.to_be_bytes())?;
    }
    Ok(Ok(()))
}

/// The kind and length of a run, of at most `left` bytes. The disk's contract promises at least one
/// byte. Of a disk that breaks it nothing is known, so everything may be data: a hole of a byte
/// would be read as a zero.
pub(super) fn run_of(extent: &Extent, left: u32) -> (ExtentKind, u32) {
    match u32::try_from(extent.len).unwrap_or(left).min(left) {
        0 => (ExtentKind::Data, left),
        len => (extent.kind, len),
    }
}

/// Asks the disk for one run after the other, and joins neighbours of one kind.
fn find(disk: &dyn Disk, request: &Request, limit: usize) -> Result<Found, DiskError> {
    let mut found = Found { runs: [Run { len: 0, flags: 0 }; EXTENTS_MAX], count: 0 };
    let (mut offset, mut left) = (request.offset, request.len);
    for _ in 0..EXTENT_PROBES_MAX {
        if left == 0 {
            break;
        }
        let extent = disk.next_extent(offset, left.into())?;
        let (kind, len) = run_of(&extent, left);
        if !found.add(Run { len, flags: flags(kind) }, limit) {
            break;
        }
        offset += u64::from(len);
        left -= len;
    }
    Ok(found)
}

impl Found {
    /// Adds a run that follows the last one. False if it would be one too many.
    fn add(&mut self, run: Run, limit: usize) -> bool {
        if let Some(last) = self.runs[..self.count].last_mut()
            && last.flags == run.flags
        {
            last.len += run.len;
            return true;
        }
        if self.count == limit {
            return false;
        }
        self.runs[self.count] = run;
        self.count += 1;
        true
    }
}

fn flags(kind: ExtentKind) -> u32 {
    match kind {
        ExtentKind::Data => 0,
        ExtentKind::Zero => wire::STATE_ZERO,
        ExtentKind::Hole => wire::STATE_HOLE | wire::STATE_ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It was taken for a hole of one byte, and a client read a zero where there was none.
    #[test]
    fn a_run_of_no_bytes_is_no_hole() {
        let run = |len, kind| run_of(&Extent { len, kind }, 8192);
        assert_eq!(run(0, ExtentKind::Hole), (ExtentKind::Data, 8192));
        assert_eq!(run(4096, ExtentKind::Hole), (ExtentKind::Hole, 4096));
        assert_eq!(run(1 << 40, ExtentKind::Zero), (ExtentKind::Zero, 8192));
    }
}
