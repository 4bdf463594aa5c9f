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

use crate::limits::{OPTION_DATA_MAX, OPTIONS_MAX};
use crate::link::{End, Link};
use crate::nbd::export::{Agreed, Export};
use crate::nbd::option::{self, Next};
use crate::nbd::wire;

/// A client before it has chosen an export.
pub(super) struct Haggling<'h, 'l> {
    pub(super) export: &'h Export,
    pub(super) link: &'h mut Link<'l>,
    pub(super) agreed: Agreed,
    /// The client wants no zeros after `OPT_EXPORT_NAME`.
    pub(super) no_zeroes: bool,
}

/// Runs the handshake until the client has chosen the export.
pub(super) fn negotiate(export: &Export, link: &mut Link<'_>) -> Result<Agreed, End> {
    let no_zeroes = greet(link)?;
    let mut haggling = Haggling { export, link, agreed: Agreed::default(), no_zeroes };
    for _ in 0..OPTIONS_MAX {
        if haggling.next_option()? == Next::Transmission {
            return Ok(haggling.agreed);
        }
    }
    Err(End::Nonsense("too many options"))
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
        if u64::from_be_bytes(self.link.take()?) != wire::OPTION_MAGIC {
            return Err(End::Nonsense("not an option"));
        }
        let option = u32::from_be_bytes(self.link.take()?);
        let len = u32::from_be_bytes(self.link.take()?);
        if len as usize > OPTION_DATA_MAX {
            self.link.skip(len.into())?;
            self.refuse(option, wire::REP_ERR_TOO_BIG, "too much data for an option")?;
            return Ok(Next::Option);
        }
        let data = self.option_data(len as usize)?;
        option::answer(self, option, &data)
    }

    /// Takes an option's data. A copy, because answering needs the link; bounded, and options
    /// are few.
    fn option_data(&mut self, len: usize) -> Result<Vec<u8>, End> {
        self.link.want(len)?;
        let data = self.link.input()[..len].to_vec();
        self.link.consume(len);
        Ok(data)
    }

    /// Replies to an option with data in several parts.
    pub(super) fn reply(&mut self, option: u32, kind: u32, parts: &[&[u8]]) -> Result<(), End> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        // Parts are names and descriptions of ours, each bounded by an option's data.
        let len = u32::try_from(len).map_err(|_| End::Nonsense("reply too long"))?;
        self.link.put(&wire::OPTION_REPLY_MAGIC.to_be_bytes())?;
        self.link.put(&option.to_be_bytes())?;
        self.link.put(&kind.to_be_bytes())?;
        self.link.put(&len.to_be_bytes())?;
        parts.iter().try_for_each(|part| self.link.put(part))
    }

    /// Replies to an option with an error and why.
    pub(super) fn refuse(&mut self, option: u32, error: u32, why: &str) -> Result<(), End> {
        self.reply(option, error, &[why.as_bytes()])
    }
}
