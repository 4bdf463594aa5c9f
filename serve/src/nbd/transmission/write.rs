//! A write: its payload goes to the disk as soon as it arrives.
//!
//! ```text
//!   offset                         page boundaries
//!     |      '        '        '        |
//!     [ received so far ......... ]            -> two pages and the part before them are
//!     [ first  ][ page   ][ page  ]. . . ]        written, the rest waits for more
//! ```
//!
//! Invariants: every piece except the last ends on a page boundary. A client that stalls keeps only
//! its inbox in use. After the first failure the rest of the payload is skipped, and the failure is
//! told once.
//!
//! Locks: the disk's. None is held while the client is waited for.

use super::handle::make_durable;
use super::link::{End, Link};
use super::refusal::Refusal;
use super::request::Request;
use crate::terms::limits::PAGE;
use disk::Disk;

/// Receives a valid write's payload and stores it.
pub(super) fn receive(
    disk: &dyn Disk,
    request: &Request,
    link: &mut Link<'_>,
) -> Result<Result<(), Refusal>, End> {
    let mut offset = request.offset;
    let mut left = request.len as usize;
    while left > 0 {
        let piece = next_piece(offset, left, link)?;
        let stored = disk.write(offset, &link.input()[..piece]);
        link.consume(piece);
        offset += piece as u64;
        left -= piece;
        if let Err(error) = stored {
            link.skip(left as u64)?;
            return Ok(Err(Refusal::of_write(&error)));
        }
    }
    Ok(make_durable(disk, request))
}

/// Waits until a piece can be written, and gives its length.
fn next_piece(offset: u64, left: usize, link: &mut Link<'_>) -> Result<usize, End> {
    link.want(left.min(to_boundary(offset)))?;
    Ok(whole_pages(offset, left, link.input().len()))
}

/// Bytes from `offset` to the next page boundary, at least 1.
fn to_boundary(offset: u64) -> usize {
    PAGE - (offset % PAGE as u64) as usize
}

/// How many of `have` received bytes to write at `offset`: those up to the last page boundary, or
/// all `left` bytes of the payload if they are there.
fn whole_pages(offset: u64, left: usize, have: usize) -> usize {
    if have >= left {
        return left;
    }
    let first = to_boundary(offset);
    debug_assert!(have >= first, "not even the first page is complete");
    first + (have - first) / PAGE * PAGE
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_end_on_boundaries_or_at_the_end(
            offset in 0..1_u64 << 40,
            left in 1..100_000_usize,
            extra in 0..100_000_usize,
        ) {
            let have = left.min(to_boundary(offset)) + extra;
            let piece = whole_pages(offset, left, have);
            prop_assert!(piece >= 1 && piece <= left && piece <= have);
            let on_boundary = (offset + piece as u64).is_multiple_of(PAGE as u64);
            prop_assert!(on_boundary || piece == left, "a piece ends within a page");
            prop_assert!(piece == left || have - piece < PAGE, "a whole page was left behind");
        }
    }
}
