//! A client in its handshake: what is agreed so far, and how its options are answered.
//!
//! ```text
//!   reply:   magic.8 option.4 kind.4 length.4 | data
//!   a name in an option's data:   length.4 | bytes
//! ```
//!
//! Invariant: nothing is agreed on until an option's data was read to its last byte. Locks: none.

use super::exports::Exports;
use super::transmission::{End, Export, Link, wire};
use crate::terms::limits::NAME_MAX;
use crate::tls::Tls;

/// A client before it has chosen an export.
pub(super) struct Haggling<'h, 'l> {
    pub(super) exports: &'h dyn Exports,
    pub(super) link: &'h mut Link<'l>,
    /// What TLS is made with, if it is offered.
    pub(super) tls: Option<&'h Tls>,
    /// The client has asked for structured replies.
    pub(super) structured: bool,
    /// The export for which the client has chosen `base:allocation`.
    pub(super) context_of: Option<String>,
    /// The client wants no zeros after `OPT_EXPORT_NAME`.
    pub(super) no_zeroes: bool,
}

impl Haggling<'_, '_> {
    /// The export of a name, or why there is none.
    pub(super) fn open(&self, name: &[u8]) -> Result<Export, String> {
        let name = str::from_utf8(name).map_err(|_| "no such export")?;
        self.exports.open(name, self.link.peer())
    }

    /// Whether the client must begin TLS before it may ask for anything.
    pub(super) fn owes_tls(&self) -> bool {
        self.tls.is_some_and(Tls::is_required) && !self.link.is_secure()
    }

    /// Forgets what was agreed, because an attacker in between may have agreed to it.
    pub(super) fn forget(&mut self) {
        self.structured = false;
        self.context_of = None;
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

/// Replies to an option with data in several parts.
pub(super) fn reply(
    link: &mut Link<'_>,
    option: u32,
    kind: u32,
    parts: &[&[u8]],
) -> Result<(), End> {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    // The parts are names and our own words, each at most as long as an option's data.
    let len = u32::try_from(len).map_err(|_| End::Nonsense("reply too long"))?;
    link.put(&wire::OPTION_REPLY_MAGIC.to_be_bytes())?;
    link.put(&option.to_be_bytes())?;
    link.put(&kind.to_be_bytes())?;
    link.put(&len.to_be_bytes())?;
    parts.iter().try_for_each(|part| link.put(part))
}

/// Splits `len(4) name` from the front of the data. Gives the name and the rest.
pub(super) fn parse_name(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = data.split_first_chunk()?;
    let len = u32::from_be_bytes(*len) as usize;
    if len <= NAME_MAX { rest.split_at_checked(len) } else { None }
}
