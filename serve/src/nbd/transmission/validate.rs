//! The first phase of a request: whether it may be done, and what is to be done.
//!
//! | command | flags, besides `FUA` | length | read-only disk | past the end |
//! |---|---|---|---|---|
//! | `READ` | `DF` if structured | `PAYLOAD_MAX` | | `EINVAL` |
//! | `WRITE` | | `PAYLOAD_MAX` | `EPERM` | `ENOSPC` |
//! | `FLUSH` | | 0, offset 0 | | |
//! | `TRIM` | | any | `EPERM` | `EINVAL` |
//! | `CACHE` | | any | | `EINVAL` |
//! | `WRITE_ZEROES` | `NO_HOLE`, `FAST_ZERO` | any | `EPERM` | `ENOSPC` |
//! | `BLOCK_STATUS` | `REQ_ONE` | any but 0 | | `EINVAL` |
//!
//! Any other command is `EINVAL`. A `DF` read longer than `PIECE` is `EOVERFLOW`. If a request has
//! several faults, the leftmost of the table is told.
//!
//! Invariant: a request that passes lies within the disk. Nothing is read from the client or sent
//! to it here. Locks: none.

use super::export::{Agreed, Export};
use super::refusal::Refusal;
use super::request::Request;
use super::wire;
use crate::terms::limits::{PAYLOAD_MAX, PIECE};
use disk::{Allocation, check_range};

/// What a valid request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Send the range.
    Read,
    /// Receive the range.
    Write,
    /// Make earlier writes durable.
    Flush,
    /// Forget the range.
    Trim,
    /// Get ready for reads of the range.
    Cache,
    /// Make the range zeros.
    WriteZeroes(Allocation),
    /// Tell which parts of the range are data, zeros or holes.
    Status {
        /// Whether one extent is enough.
        one: bool,
    },
}

/// What the request asks for, or why it is refused.
pub(super) fn validate(
    request: &Request,
    export: &Export,
    agreed: Agreed,
) -> Result<Action, Refusal> {
    let action = action(request, agreed)?;
    check_flags(request, agreed)?;
    check_length(request, action)?;
    if export.read_only() && changes(action) {
        return Err(Refusal { number: wire::EPERM, why: "the disk is read-only" });
    }
    let ranged = check_range(export.size(), request.offset, request.len.into());
    match action {
        Action::Write | Action::WriteZeroes(_) => ranged.map_err(|e| Refusal::of_write(&e))?,
        _ => ranged.map_err(|e| Refusal::of(&e))?,
    }
    Ok(action)
}

fn action(request: &Request, agreed: Agreed) -> Result<Action, Refusal> {
    match request.kind {
        wire::CMD_READ => Ok(Action::Read),
        wire::CMD_WRITE => Ok(Action::Write),
        wire::CMD_FLUSH => Ok(Action::Flush),
        wire::CMD_TRIM => Ok(Action::Trim),
        wire::CMD_CACHE => Ok(Action::Cache),
        wire::CMD_WRITE_ZEROES if request.flags & wire::FLAG_NO_HOLE != 0 => {
            Ok(Action::WriteZeroes(Allocation::Keep))
        }
        wire::CMD_WRITE_ZEROES => Ok(Action::WriteZeroes(Allocation::MayUnmap)),
        wire::CMD_BLOCK_STATUS if agreed.allocation => {
            Ok(Action::Status { one: request.flags & wire::FLAG_REQ_ONE != 0 })
        }
        wire::CMD_BLOCK_STATUS => Err(Refusal::invalid("no metadata context was chosen")),
        _ => Err(Refusal::invalid("unknown command")),
    }
}

fn check_flags(request: &Request, agreed: Agreed) -> Result<(), Refusal> {
    let allowed = wire::FLAG_FUA
        | match request.kind {
            wire::CMD_READ if agreed.structured => wire::FLAG_DF,
            wire::CMD_WRITE_ZEROES => wire::FLAG_NO_HOLE | wire::FLAG_FAST_ZERO,
            wire::CMD_BLOCK_STATUS => wire::FLAG_REQ_ONE,
            _ => 0,
        };
    if request.flags & !allowed == 0 {
        Ok(())
    } else {
        Err(Refusal::invalid("a flag that this command does not have"))
    }
}

fn check_length(request: &Request, action: Action) -> Result<(), Refusal> {
    match action {
        Action::Read | Action::Write if request.len > PAYLOAD_MAX => {
            Err(Refusal::invalid("longer than the maximum block size"))
        }
        Action::Read if request.flags & wire::FLAG_DF != 0 && request.len as usize > PIECE => {
            Err(Refusal { number: wire::EOVERFLOW, why: "too long for one chunk" })
        }
        Action::Flush if request.len != 0 || request.offset != 0 => {
            Err(Refusal::invalid("a flush has no range"))
        }
        Action::Status { .. } if request.len == 0 => {
            Err(Refusal::invalid("nothing to tell about an empty range"))
        }
        _ => Ok(()),
    }
}

fn changes(action: Action) -> bool {
    matches!(action, Action::Write | Action::Trim | Action::WriteZeroes(_))
}
