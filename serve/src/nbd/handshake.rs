//! The handshake: magic both ways, then options until one of them ends it.
//!
//! ```text
//!   server: NBDMAGIC IHAVEOPT flags
//!   client: flags
//!   client: IHAVEOPT option length data     -.  at most OPTIONS_MAX times,
//!   server: magic option reply length data  -'  in all within the handshake's time
//! ```
//!
//! Invariant: whatever the client sends, the next option starts after exactly the announced
//! length; a client that loses count meets a wrong magic, which ends the connection.

use crate::exports::Exports;
use crate::limits::{OPTION_DATA_MAX, OPTIONS_MAX};
use crate::link::{End, Link};
use crate::nbd::export::{Agreed, Export};
use crate::nbd::option::{self, Next};
use crate::nbd::wire;

/// A client before it has chosen an export.
pub(super) struct Haggling<'h, 'l> {
    pub(super) exports: &'h dyn Exports,
    pub(super) link: &'h mut Link<'l>,
    /// The client has asked for structured replies.
    pub(super) structured: bool,
    /// The export for which the client has chosen `base:allocation`.
    pub(super) context_of: Option<String>,
    /// The client wants no zeros after `OPT_EXPORT_NAME`.
    pub(super) no_zeroes: bool,
}

/// Runs the handshake until the client has chosen an export.
pub(super) fn negotiate(
    exports: &dyn Exports,
    link: &mut Link<'_>,
) -> Result<(Export, Agreed), End> {
    let no_zeroes = greet(link)?;
    let mut haggling = Haggling { exports, link, structured: false, context_of: None, no_zeroes };
    for _ in 0..OPTIONS_MAX {
        if let Next::Transmission(export) = haggling.next_option()? {
            // Contexts belong to a name, and are void with another.
            let allocation = haggling.context_of.as_deref() == Some(export.name());
            return Ok((export, Agreed { structured: haggling.structured, allocation }));
        }
    }
    Err(End::Nonsense("too many options"))
}

/// Tells a client that it is not served, in answer to whatever it wants; gives how it ended.
pub(super) fn turn_away(link: &mut Link<'_>, why: &str) -> Result<(), End> {
    greet(link)?;
    for _ in 0..OPTIONS_MAX {
        let (option, _) = read_option(link)?;
        match option {
            // There are no words for it.
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

/// Exchanges greetings; returns whether the client knows `NO_ZEROES`.
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

impl Haggling<'_, '_> {
    fn next_option(&mut self) -> Result<Next, End> {
        match read_option(self.link)? {
            (option, Some(data)) => option::answer(self, option, &data),
            (option, None) => {
                self.refuse(option, wire::REP_ERR_TOO_BIG, "too much data for an option")?;
                Ok(Next::Option)
            }
        }
    }

    /// The export of a name, or why there is none.
    pub(super) fn open(&self, name: &[u8]) -> Result<Export, String> {
        let name = str::from_utf8(name).map_err(|_| "no such export")?;
        self.exports.open(name, self.link.peer()).map(Export::new)
    }

    /// Replies to an option with data in several parts.
    pub(super) fn reply(&mut self, option: u32, kind: u32, parts: &[&[u8]]) -> Result<(), End> {
        reply(self.link, option, kind, parts)
    }

    /// Replies to an option with an error and why.
    pub(super) fn refuse(&mut self, option: u32, error: u32, why: &str) -> Result<(), End> {
        self.reply(option, error, &[why.as_bytes()])
    }
}

/// The next option and its data, without it where that is too long.
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
    // A copy, because answering needs the link; bounded, and options are few.
    let len = len as usize;
    link.want(len)?;
    let data = link.input()[..len].to_vec();
    link.consume(len);
    Ok((option, Some(data)))
}

fn reply(link: &mut Link<'_>, option: u32, kind: u32, parts: &[&[u8]]) -> Result<(), End> {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    // Parts are names and words of ours, each bounded by an option's data.
    let len = u32::try_from(len).map_err(|_| End::Nonsense("reply too long"))?;
    link.put(&wire::OPTION_REPLY_MAGIC.to_be_bytes())?;
    link.put(&option.to_be_bytes())?;
    link.put(&kind.to_be_bytes())?;
    link.put(&len.to_be_bytes())?;
    parts.iter().try_for_each(|part| link.put(part))
}
