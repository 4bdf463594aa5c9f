//! The handshake: each side sends its magic number, and then the client sends options until one of
//! them ends it.
//!
//! ```text
//!   server: NBDMAGIC IHAVEOPT flags
//!   client: flags
//!   client: IHAVEOPT option length data     -.  at most OPTIONS_MAX times,
//!   server: magic option reply length data  -'  and all within the handshake's time
//! ```
//!
//! If the client begins TLS in between, all that was agreed is forgotten, and options go on inside.
//!
//! Invariant: whatever the client sends, the next option starts after exactly the announced length.
//! If a client loses count, the server finds a wrong magic number and ends the connection.
//!
//! Locks: none, except those of the devices while an export is opened.

use super::exports::Exports;
use super::haggling::{Haggling, reply};
use super::option::{self, Next};
use super::transmission::{Agreed, End, Export, Link, wire};
use crate::terms::limits::{OPTION_DATA_MAX, OPTIONS_MAX};
use crate::tls::Tls;

/// Runs the handshake until the client has chosen an export.
pub(super) fn negotiate(
    exports: &dyn Exports,
    tls: Option<&Tls>,
    link: &mut Link<'_>,
) -> Result<(Export, Agreed), End> {
    let no_zeroes = greet(link)?;
    let mut haggling =
        Haggling { exports, link, tls, structured: false, context_of: None, no_zeroes };
    for _ in 0..OPTIONS_MAX {
        if let Next::Transmission(export) = next_option(&mut haggling)? {
            // A context was chosen for one name, and does not hold for another.
            let allocation = haggling.context_of.as_deref() == Some(export.name());
            return Ok((export, Agreed { structured: haggling.structured, allocation }));
        }
    }
    Err(End::Nonsense("too many options"))
}

/// Tells a client that it is not served, whatever it asks for.
pub(super) fn turn_away(link: &mut Link<'_>, why: &str) -> Result<(), End> {
    greet(link)?;
    for _ in 0..OPTIONS_MAX {
        let (option, _) = read_option(link)?;
        match option {
            // The protocol has no way to refuse this option.
            wire::OPT_EXPORT_NAME => return Ok(()),
            wire::OPT_ABORT => {
                reply(link, option, wire::REP_ACK, &[])?;
                return link.send();
            }
            _ => reply(link, option, wire::REP_ERR_POLICY, &[why.as_bytes()])?,
        }
    }
    Ok(())
}

/// Exchanges greetings, and says whether the client knows `NO_ZEROES`.
fn greet(link: &mut Link<'_>) -> Result<bool, End> {
    link.put(&wire::INIT_MAGIC.to_be_bytes())?;
    link.put(&wire::OPTION_MAGIC.to_be_bytes())?;
    link.put(&(wire::FIXED_NEWSTYLE | wire::NO_ZEROES).to_be_bytes())?;
    let flags = u32::from_be_bytes(link.take()?);
    let known = u32::from(wire::FIXED_NEWSTYLE | wire::NO_ZEROES);
    if flags & !known != 0 {
        return Err(End::Nonsense("unknown handshake flags"));
    }
    Ok(flags & u32::from(wire::NO_ZEROES) != 0)
}

fn next_option(client: &mut Haggling<'_, '_>) -> Result<Next, End> {
    match read_option(client.link)? {
        (option, _) if client.owes_tls() && !option::is_free(option) => {
            option::demand_tls(client, option)?;
            Ok(Next::Option)
        }
        (option, Some(data)) => option::answer(client, option, &data),
        (option, None) => {
            client.refuse(option, wire::REP_ERR_TOO_BIG, "too much data for an option")?;
            Ok(Next::Option)
        }
    }
}

/// The next option and its data, or `None` for data that is too long.
fn read_option(link: &mut Link<'_>) -> Result<(u32, Option<Vec<u8>>), End> {
    if u64::from_be_bytes(link.take()?) != wire::OPTION_MAGIC {
        return Err(End::Nonsense("not an option"));
    }
    let option = u32::from_be_bytes(link.take()?);
    let len = u32::from_be_bytes(link.take()?);
    if len as usize > OPTION_DATA_MAX {
        link.skip(len.into())?;
        return Ok((option, None));
    }
    // The data is copied, because answering needs the link. It is bounded, and options are few.
    let len = len as usize;
    link.want(len)?;
    let data = link.input()[..len].to_vec();
    link.consume(len);
    Ok((option, Some(data)))
}
