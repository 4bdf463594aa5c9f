//! What a client and an NBD server agree on before the first request.
//!
//! ```text
//!   server   NBDMAGIC IHAVEOPT flags
//!   client   flags, GO (the name, and that block sizes are wanted)
//!   server   the export's size and flags, its block sizes, ACK
//! ```
//!
//! A server that does not know GO gets EXPORT_NAME, to which it answers with size and flags alone.
//! The numbers are those of the NBD project's `doc/proto.md`.
//!
//! Invariant: whatever a server sends, at most `REPLIES_MAX` replies of `REPLY_MAX` bytes are read.
//! Locks: none.

use std::io::{self, Read, Write};

use super::stream::take;

const INIT_MAGIC: &[u8; 8] = b"NBDMAGIC";
const OPTION_MAGIC: &[u8; 8] = b"IHAVEOPT";
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const FIXED_NEWSTYLE: u16 = 1 << 0;
const NO_ZEROES: u16 = 1 << 1;
const _: () = assert!(FIXED_NEWSTYLE & NO_ZEROES == 0, "each flag is a bit of its own");
const OPT_EXPORT_NAME: u32 = 1;
const OPT_GO: u32 = 7;
const REP_ACK: u32 = 1;
const REP_INFO: u32 = 3;
const REP_ERR: u32 = 1 << 31;
const REP_ERR_UNSUP: u32 = REP_ERR | 1;
const INFO_EXPORT: u16 = 0;
const INFO_BLOCK_SIZE: u16 = 3;
/// Bytes of zeros after the answer to EXPORT_NAME, unless both sides know better.
const ZEROES: usize = 124;

const REPLIES_MAX: usize = 64;
const REPLY_MAX: u32 = 64 << 10; // 64 KiB
/// The longest read or write that every server takes, in bytes.
const PAYLOAD_MAX: u32 = 32 << 20; // 32 MiB

/// What is known of a server's disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Export {
    pub(super) size: u64,
    /// What the server can do, as bits of the protocol.
    pub(super) flags: u16,
    /// Offsets and lengths are to be multiples of this.
    pub(super) block_min: u32,
    /// And are best multiples of this.
    pub(super) block: u32,
    /// Bytes of one read or write at most.
    pub(super) payload_max: u32,
}

/// Agrees on the export of this name.
pub(super) fn agree<S>(stream: &mut S, name: &str) -> io::Result<Export>
where
    S: Read + Write,
{
    if take(&mut *stream)? != *INIT_MAGIC {
        return Err(strange("it does not speak NBD"));
    }
    if take(&mut *stream)? != *OPTION_MAGIC {
        return Err(strange("it speaks the old form of NBD, which knows no names"));
    }
    let offered = u16::from_be_bytes(take(&mut *stream)?);
    if offered & FIXED_NEWSTYLE == 0 {
        return Err(strange("it cannot answer options"));
    }
    let flags = offered & (FIXED_NEWSTYLE | NO_ZEROES);
    stream.write_all(&u32::from(flags).to_be_bytes())?;
    let mut wanted = (name.len() as u32).to_be_bytes().to_vec();
    wanted.extend_from_slice(name.as_bytes());
    wanted.extend_from_slice(&1_u16.to_be_bytes());
    wanted.extend_from_slice(&INFO_BLOCK_SIZE.to_be_bytes());
    option(stream, OPT_GO, &wanted)?;
    let export = match answer_to_go(stream)? {
        Some(export) => export,
        None => export_name(stream, name, flags & NO_ZEROES != 0)?,
    };
    check(&export)?;
    Ok(export)
}

fn option(stream: &mut impl Write, option: u32, data: &[u8]) -> io::Result<()> {
    let mut message = OPTION_MAGIC.to_vec();
    message.extend_from_slice(&option.to_be_bytes());
    message.extend_from_slice(&(data.len() as u32).to_be_bytes());
    message.extend_from_slice(data);
    stream.write_all(&message)
}

/// `None` if the server does not know the option.
fn answer_to_go(stream: &mut impl Read) -> io::Result<Option<Export>> {
    let mut export = None;
    let mut blocks = None;
    for _ in 0..REPLIES_MAX {
        let (kind, data) = reply(stream)?;
        match (kind, data.split_first_chunk()) {
            (REP_ACK, _) => {
                let (size, flags) = export.ok_or_else(|| strange("it did not say how large"))?;
                let (block_min, block, payload_max) = blocks.unwrap_or((1, 4096, PAYLOAD_MAX));
                return Ok(Some(Export { size, flags, block_min, block, payload_max }));
            }
            (REP_INFO, Some((kind, rest))) => match (u16::from_be_bytes(*kind), rest) {
                (INFO_EXPORT, rest) => export = Some(size_and_flags(rest)?),
                (INFO_BLOCK_SIZE, rest) => blocks = Some(block_sizes(rest)?),
                _ => {}
            },
            (REP_ERR_UNSUP, _) => return Ok(None),
            (refusal, _) if refusal & REP_ERR != 0 => return Err(refused(refusal, &data)),
            _ => return Err(strange("its answer is not understood")),
        }
    }
    Err(strange("it answers without end"))
}

fn reply(stream: &mut impl Read) -> io::Result<(u32, Vec<u8>)> {
    if u64::from_be_bytes(take(&mut *stream)?) != REPLY_MAGIC {
        return Err(strange("its answer is not understood"));
    }
    let option = u32::from_be_bytes(take(&mut *stream)?);
    let kind = u32::from_be_bytes(take(&mut *stream)?);
    let len = u32::from_be_bytes(take(&mut *stream)?);
    if option != OPT_GO || len > REPLY_MAX {
        return Err(strange("its answer is not understood"));
    }
    let mut data = vec![0; len as usize];
    stream.read_exact(&mut data)?;
    Ok((kind, data))
}

fn size_and_flags(data: &[u8]) -> io::Result<(u64, u16)> {
    let parts = data.split_first_chunk().and_then(|(size, rest)| match *rest {
        [high, low] => Some((size, [high, low])),
        _ => None,
    });
    let (size, flags) = parts.ok_or_else(|| strange("its answer is not understood"))?;
    Ok((u64::from_be_bytes(*size), u16::from_be_bytes(flags)))
}

fn block_sizes(data: &[u8]) -> io::Result<(u32, u32, u32)> {
    let (words, rest) = data.as_chunks();
    let [least, best, most] = words else { return Err(strange("its block sizes are missing")) };
    let [least, best, most] = [least, best, most].map(|word| u32::from_be_bytes(*word));
    let fits = least.is_power_of_two() && best.is_power_of_two() && least <= best && best <= most;
    if !rest.is_empty() || !fits {
        return Err(strange("its block sizes contradict each other"));
    }
    Ok((least, best, most))
}

fn export_name<S>(stream: &mut S, name: &str, without_zeroes: bool) -> io::Result<Export>
where
    S: Read + Write,
{
    option(stream, OPT_EXPORT_NAME, name.as_bytes())?;
    // A server that does not have the export can only close the connection.
    let absent = |error: io::Error| match error.kind() {
        io::ErrorKind::UnexpectedEof => strange("it has no export of that name"),
        _ => error,
    };
    let size = u64::from_be_bytes(take(&mut *stream).map_err(absent)?);
    let flags = u16::from_be_bytes(take(&mut *stream)?);
    if !without_zeroes {
        take::<ZEROES>(&mut *stream)?;
    }
    Ok(Export { size, flags, block_min: 1, block: 4096, payload_max: PAYLOAD_MAX })
}

fn check(export: &Export) -> io::Result<()> {
    if export.size == 0 || i64::try_from(export.size).is_err() {
        return Err(strange("its size is 0, or more than a disk can have"));
    }
    if export.block_min > 4096 {
        return Err(strange("it takes only blocks larger than 4096 bytes"));
    }
    Ok(())
}

/// A refusal, with the server's own words if there are some.
fn refused(number: u32, data: &[u8]) -> io::Error {
    let why = match number & !REP_ERR {
        2 => "its rules forbid it",
        5 => "it wants TLS, which is not supported",
        6 => "it has no export of that name",
        7 => "it is about to end",
        8 => "it wants block sizes to be agreed on",
        _ => "it refuses the export",
    };
    let said: String = String::from_utf8_lossy(data).chars().filter(|c| !c.is_control()).collect();
    let said = if said.is_empty() { said } else { format!(" ({said})") };
    strange(&format!("{why}{said}"))
}

fn strange(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the NBD server: {what}"))
}
