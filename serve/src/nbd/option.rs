//! One option of the handshake and its answer.
//!
//! | option | answer |
//! |---|---|
//! | `EXPORT_NAME` | size and flags, then transmission; an unknown name ends the connection |
//! | `GO`, `INFO` | what was asked for, then `ACK`; after `GO`, transmission |
//! | `LIST` | every export, the default first |
//! | `STRUCTURED_REPLY` | `ACK` |
//! | `LIST_META_CONTEXT`, `SET_META_CONTEXT` | see `contexts` |
//! | `ABORT` | `ACK`, and the connection ends |
//! | `STARTTLS` | `ACK`, then TLS begins; `ERR_POLICY` without it; `ERR_INVALID` inside it |
//! | all but `STARTTLS` and `ABORT`, if TLS is required and has not begun | `ERR_TLS_REQD` |
//! | any other | `ERR_UNSUP` |
//!
//! Invariant: data that does not have exactly the option's form is answered with `ERR_INVALID`, and
//! changes nothing that was agreed before.
//!
//! Locks: none, except those of the devices while an export is opened.

use super::contexts;
use super::haggling::{Haggling, parse_name};
use super::transmission::{End, Export, wire};
use crate::terms::limits::PAYLOAD_MAX;

/// What comes after an option.
pub(super) enum Next {
    /// Another option.
    Option,
    /// Requests to this export.
    Transmission(Export),
}

/// Answers an option.
pub(super) fn answer(client: &mut Haggling<'_, '_>, option: u32, data: &[u8]) -> Result<Next, End> {
    match option {
        wire::OPT_EXPORT_NAME => return export_name(client, data),
        wire::OPT_GO | wire::OPT_INFO => return go(client, option, data),
        wire::OPT_ABORT => {
            client.reply(option, wire::REP_ACK, &[])?;
            // If the client has closed already, it does not want the answer.
            let _ = client.link.send();
            return Err(End::Done);
        }
        wire::OPT_LIST if data.is_empty() => list(client)?,
        wire::OPT_STRUCTURED_REPLY if data.is_empty() => {
            client.structured = true;
            client.reply(option, wire::REP_ACK, &[])?;
        }
        wire::OPT_LIST | wire::OPT_STRUCTURED_REPLY => {
            client.refuse(option, wire::REP_ERR_INVALID, "this option takes no data")?;
        }
        wire::OPT_LIST_META_CONTEXT | wire::OPT_SET_META_CONTEXT => {
            contexts::answer(client, option, data)?;
        }
        wire::OPT_STARTTLS => start_tls(client, data)?,
        _ => client.refuse(option, wire::REP_ERR_UNSUP, "unknown option")?,
    }
    Ok(Next::Option)
}

/// Whether a client that has to use TLS may send this option without.
pub(super) fn is_free(option: u32) -> bool {
    matches!(option, wire::OPT_STARTTLS | wire::OPT_ABORT)
}

/// Refuses an option of a client that has to use TLS first.
pub(super) fn demand_tls(client: &mut Haggling<'_, '_>, option: u32) -> Result<(), End> {
    // The protocol has no way to refuse this option.
    if option == wire::OPT_EXPORT_NAME {
        return Err(End::Nonsense("it does not use TLS, which is required"));
    }
    client.refuse(option, wire::REP_ERR_TLS_REQD, "this server requires TLS")
}

fn start_tls(client: &mut Haggling<'_, '_>, data: &[u8]) -> Result<(), End> {
    let option = wire::OPT_STARTTLS;
    let Some(tls) = client.tls else {
        return client.refuse(option, wire::REP_ERR_POLICY, "this server does not offer TLS");
    };
    if client.link.is_secure() {
        return client.refuse(option, wire::REP_ERR_INVALID, "TLS is on already");
    }
    if !data.is_empty() {
        return client.refuse(option, wire::REP_ERR_INVALID, "this option takes no data");
    }
    client.reply(option, wire::REP_ACK, &[])?;
    client.forget();
    client.link.secure(tls)
}

fn export_name(client: &mut Haggling<'_, '_>, name: &[u8]) -> Result<Next, End> {
    let export = client.open(name).map_err(|_| End::Nonsense("no such export"))?;
    let flags = export.transmission_flags(client.structured);
    client.link.put(&export.size().to_be_bytes())?;
    client.link.put(&flags.to_be_bytes())?;
    if !client.no_zeroes {
        client.link.put(&[0; 124])?;
    }
    Ok(Next::Transmission(export))
}

fn list(client: &mut Haggling<'_, '_>) -> Result<(), End> {
    for (name, description) in client.exports.list() {
        let len = (name.len() as u32).to_be_bytes();
        let parts = [&len[..], name.as_bytes(), description.as_bytes()];
        client.reply(wire::OPT_LIST, wire::REP_SERVER, &parts)?;
    }
    client.reply(wire::OPT_LIST, wire::REP_ACK, &[])
}

fn go(client: &mut Haggling<'_, '_>, option: u32, data: &[u8]) -> Result<Next, End> {
    let Some((name, wanted)) = parse_go(data) else {
        client.refuse(option, wire::REP_ERR_INVALID, "malformed data")?;
        return Ok(Next::Option);
    };
    let export = match client.open(name) {
        Ok(export) => export,
        Err(why) => {
            client.refuse(option, wire::REP_ERR_UNKNOWN, &why)?;
            return Ok(Next::Option);
        }
    };
    inform(client, option, &export, &wanted)?;
    client.reply(option, wire::REP_ACK, &[])?;
    Ok(if option == wire::OPT_GO { Next::Transmission(export) } else { Next::Option })
}

/// `name_len(4) name count(2) count * kind(2)`
fn parse_go(data: &[u8]) -> Option<(&[u8], Wanted)> {
    let (name, rest) = parse_name(data)?;
    let (count, kinds) = rest.split_first_chunk()?;
    if kinds.len() != 2 * usize::from(u16::from_be_bytes(*count)) {
        return None;
    }
    let mut wanted = Wanted::default();
    for kind in kinds.chunks_exact(2) {
        match u16::from_be_bytes([kind[0], kind[1]]) {
            wire::INFO_NAME => wanted.name = true,
            wire::INFO_DESCRIPTION => wanted.description = true,
            wire::INFO_BLOCK_SIZE => wanted.block_size = true,
            _ => {}
        }
    }
    Some((name, wanted))
}

/// What a client wants to know besides size and flags.
#[derive(Clone, Copy, Debug, Default)]
struct Wanted {
    name: bool,
    description: bool,
    block_size: bool,
}

fn inform(
    client: &mut Haggling<'_, '_>,
    option: u32,
    export: &Export,
    wanted: &Wanted,
) -> Result<(), End> {
    let flags = export.transmission_flags(client.structured).to_be_bytes();
    info(client, option, wire::INFO_EXPORT, &[&export.size().to_be_bytes(), &flags])?;
    if wanted.name {
        info(client, option, wire::INFO_NAME, &[export.name().as_bytes()])?;
    }
    if wanted.description && !export.description().is_empty() {
        info(client, option, wire::INFO_DESCRIPTION, &[export.description().as_bytes()])?;
    }
    if wanted.block_size {
        let preferred = export.disk().block_size().to_be_bytes();
        let sizes = [&1_u32.to_be_bytes()[..], &preferred, &PAYLOAD_MAX.to_be_bytes()];
        info(client, option, wire::INFO_BLOCK_SIZE, &sizes)?;
    }
    Ok(())
}

fn info(client: &mut Haggling<'_, '_>, option: u32, kind: u16, parts: &[&[u8]]) -> Result<(), End> {
    let kind = kind.to_be_bytes();
    let parts: Vec<&[u8]> = std::iter::once(&kind[..]).chain(parts.iter().copied()).collect();
    client.reply(option, wire::REP_INFO, &parts)
}
