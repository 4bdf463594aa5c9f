//! The second phase of a request: the disk does it. This file has the requests without payload in
//! either direction. `read`, `write` and `status` have files of their own.
//!
//! Invariant: a change with the `FUA` flag is answered only after a flush. Locks: the disk's.

use super::refusal::Refusal;
use super::request::Request;
use super::validate::Action;
use super::wire;
use disk::Disk;

/// Does a request without payload.
pub(super) fn handle(disk: &dyn Disk, action: Action, request: &Request) -> Result<(), Refusal> {
    let (offset, len) = (request.offset, u64::from(request.len));
    match action {
        Action::Flush => disk.flush().map_err(|error| Refusal::of(&error)),
        Action::Cache => disk.prefetch(offset, len).map_err(|error| Refusal::of(&error)),
        Action::Trim => {
            disk.discard(offset, len).map_err(|error| Refusal::of(&error))?;
            make_durable(disk, request)
        }
        Action::WriteZeroes(keep) => {
            disk.write_zeroes(offset, len, keep).map_err(|error| Refusal::of_write(&error))?;
            make_durable(disk, request)
        }
        Action::Read | Action::Write | Action::Status { .. } => {
            Err(Refusal::invalid("this request has a payload"))
        }
    }
}

/// Flushes the disk if the request has the `FUA` flag. A disk has no finer means.
pub(super) fn make_durable(disk: &dyn Disk, request: &Request) -> Result<(), Refusal> {
    if request.flags & wire::FLAG_FUA == 0 {
        return Ok(());
    }
    disk.flush().map_err(|error| Refusal::of(&error))
}
