//! The loop of transmission: one request after the other goes through its three phases.
//!
//! Invariant: after a request, its header and exactly its payload were taken from the input,
//! whether it succeeded or not. So the next byte is the beginning of the next header.
//!
//! Locks: the disk's. None is held while the client is waited for.

use super::export::{Agreed, Export};
use super::link::{End, Link};
use super::refusal::Refusal;
use super::request::Request;
use super::validate::{Action, validate};
use super::{handle, read, reply, status, wire, write};
use crate::terms::limits::SKIP_MAX;

/// Serves requests until the client or the server ends it.
pub(crate) fn run(export: &Export, agreed: Agreed, link: &mut Link<'_>) -> Result<(), End> {
    loop {
        let Some(request) = Request::parse(&link.take()?) else {
            return Err(End::Nonsense("not a request"));
        };
        link.begin();
        if request.kind == wire::CMD_DISC {
            return link.send();
        }
        match validate(&request, export, agreed) {
            Ok(action) => serve(export, agreed, action, &request, link)?,
            Err(refusal) => refuse(agreed, &request, refusal, link)?,
        }
        link.complete()?;
    }
}

fn serve(
    export: &Export,
    agreed: Agreed,
    action: Action,
    request: &Request,
    link: &mut Link<'_>,
) -> Result<(), End> {
    let disk = export.disk();
    let outcome = match action {
        Action::Read if agreed.structured => return read::in_chunks(disk, request, link),
        Action::Read => return read::plainly(disk, request, link),
        Action::Status { one } => match status::tell(disk, request, one, link)? {
            Ok(()) => return Ok(()),
            Err(refusal) => Err(refusal),
        },
        Action::Write => write::receive(disk, request, link)?,
        _ => handle::handle(disk, action, request),
    };
    reply::conclude(link, agreed, request, outcome)
}

/// Skips the payload of a refused write and tells why. The connection ends if it is longer than
/// `SKIP_MAX`.
fn refuse(
    agreed: Agreed,
    request: &Request,
    refusal: Refusal,
    link: &mut Link<'_>,
) -> Result<(), End> {
    if request.kind == wire::CMD_WRITE {
        if request.len > SKIP_MAX {
            return Err(End::Nonsense("a payload beyond all limits"));
        }
        link.skip(request.len.into())?;
    }
    reply::conclude(link, agreed, request, Err(refusal))
}
