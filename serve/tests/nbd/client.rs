//! A small NBD client. It was written from the specification and shares no code with the server.
//!
//! Invariant: an answer that the specification does not allow at this point is an error. So a test
//! that gets an answer has also checked its form.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

pub(crate) const IHAVEOPT: u64 = 0x49484156454F5054;
pub(crate) const OPT_STARTTLS: u32 = 5;
pub(crate) const OPT_GO: u32 = 7;
pub(crate) const OPT_STRUCTURED: u32 = 8;
pub(crate) const OPT_SET_META: u32 = 10;
pub(crate) const REP_ACK: u32 = 1;
pub(crate) const READ: u16 = 0;
pub(crate) const WRITE: u16 = 1;
pub(crate) const DISC: u16 = 2;
pub(crate) const FLUSH: u16 = 3;
pub(crate) const TRIM: u16 = 4;
pub(crate) const CACHE: u16 = 5;
pub(crate) const ZEROES: u16 = 6;
pub(crate) const STATUS: u16 = 7;
pub(crate) const FUA: u16 = 1;
pub(crate) const NO_HOLE: u16 = 2;
pub(crate) const DF: u16 = 4;
pub(crate) const REQ_ONE: u16 = 8;
pub(crate) const FAST_ZERO: u16 = 16;

/// Longer than any answer takes; a test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// Anything that connects.
pub(crate) trait Line: Read + Write + Send {}
impl Line for UnixStream {}
impl Line for TcpStream {}

/// One request as it goes out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ask {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    pub(crate) len: u32,
    pub(crate) payload: Vec<u8>,
}

/// One complete answer.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Success without data, or the data of a read.
    Data(Vec<u8>),
    /// Lengths and flags.
    Extents(Vec<(u32, u32)>),
    /// NBD's error number.
    Error(u32),
}

impl fmt::Debug for Answer {
    /// Short, whatever was read: the beginning is enough to see what went wrong.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Data(data) => {
                write!(f, "{} bytes {:x?}..", data.len(), &data[..data.len().min(9)])
            }
            Self::Extents(extents) => f.debug_list().entries(extents.iter().take(9)).finish(),
            Self::Error(number) => write!(f, "error {number}"),
        }
    }
}

/// A connection.
pub(crate) struct Client {
    pub(crate) line: Box<dyn Line>,
    pub(crate) structured: bool,
    pub(crate) size: u64,
    pub(crate) flags: u16,
    /// Chunks in the last structured answer.
    pub(crate) chunks: usize,
}

pub(crate) fn bad(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

impl Client {
    /// Connected; nothing said yet.
    pub(crate) fn raw(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self::over(Box::new(stream)))
    }

    pub(crate) fn over(line: Box<dyn Line>) -> Self {
        Self { line, structured: false, size: 0, flags: 0, chunks: 0 }
    }

    /// Greeted with the given client flags.
    pub(crate) fn greeted(path: &Path, flags: u32) -> io::Result<Self> {
        let mut client = Self::raw(path)?;
        client.greet(flags)?;
        Ok(client)
    }

    /// In transmission, with structured replies and `base:allocation`, or without.
    pub(crate) fn open(path: &Path, structured: bool) -> io::Result<Self> {
        let mut client = Self::greeted(path, 3)?;
        client.haggle(structured)?;
        Ok(client)
    }

    /// Goes from greeted to transmission.
    pub(crate) fn haggle(&mut self, structured: bool) -> io::Result<()> {
        if structured {
            self.ask_structured()?;
            let mut data = vec![0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 15];
            data.extend(b"base:allocation");
            let replies = self.option(OPT_SET_META, &data)?;
            let expected = [&1_u32.to_be_bytes()[..], b"base:allocation"].concat();
            if replies != [(4, expected), (REP_ACK, Vec::new())] {
                return Err(bad(format!("metadata context: {replies:?}")));
            }
        }
        self.go("").map(|_| ())
    }

    pub(crate) fn greet(&mut self, flags: u32) -> io::Result<()> {
        if self.u64()? != 0x4e42444d41474943 || self.u64()? != IHAVEOPT || self.u16()? != 3 {
            return Err(bad("not the greeting of a fixed newstyle server"));
        }
        self.line.write_all(&flags.to_be_bytes())
    }

    pub(crate) fn ask_structured(&mut self) -> io::Result<()> {
        let replies = self.option(OPT_STRUCTURED, &[])?;
        self.structured = replies == [(REP_ACK, Vec::new())];
        if self.structured { Ok(()) } else { Err(bad(format!("structured: {replies:?}"))) }
    }

    /// Chooses the export; notes its size and flags.
    pub(crate) fn go(&mut self, name: &str) -> io::Result<Vec<(u32, Vec<u8>)>> {
        let mut data = (name.len() as u32).to_be_bytes().to_vec();
        data.extend(name.as_bytes());
        data.extend([0, 3, 0, 1, 0, 2, 0, 3]);
        let replies = self.option(OPT_GO, &data)?;
        for (_, data) in replies.iter().filter(|(kind, data)| *kind == 3 && data[..2] == [0, 0]) {
            self.size = u64::from_be_bytes(data[2..10].try_into().unwrap());
            self.flags = u16::from_be_bytes(data[10..12].try_into().unwrap());
        }
        Ok(replies)
    }

    pub(crate) fn send_option(&mut self, option: u32, data: &[u8]) -> io::Result<()> {
        let mut bytes = IHAVEOPT.to_be_bytes().to_vec();
        bytes.extend(option.to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(data);
        self.line.write_all(&bytes)
    }

    /// Sends an option; returns the replies up to the final one.
    pub(crate) fn option(&mut self, option: u32, data: &[u8]) -> io::Result<Vec<(u32, Vec<u8>)>> {
        self.send_option(option, data)?;
        let mut replies = Vec::new();
        loop {
            if self.u64()? != 0x3e889045565a9 || self.u32()? != option {
                return Err(bad("not a reply to this option"));
            }
            let (kind, len) = (self.u32()?, self.u32()?);
            replies.push((kind, self.bytes(len as usize)?));
            if kind == REP_ACK || kind >> 31 == 1 {
                return Ok(replies);
            }
        }
    }

    pub(crate) fn send(&mut self, ask: &Ask) -> io::Result<()> {
        self.line.write_all(&encode(ask))
    }

    /// Receives the answer to `ask`, which must be the next one.
    pub(crate) fn answer(&mut self, ask: &Ask) -> io::Result<Answer> {
        self.chunks = 0;
        match self.u32()? {
            0x67446698 => self.simple(ask),
            0x668e33ef if self.structured => self.structured(ask),
            magic => Err(bad(format!("not a reply: {magic:x}"))),
        }
    }

    pub(crate) fn call(&mut self, ask: &Ask) -> io::Result<Answer> {
        self.send(ask)?;
        self.answer(ask)
    }

    /// A request without payload.
    pub(crate) fn simple_call(&mut self, kind: u16, offset: u64, len: u32) -> io::Result<Answer> {
        self.call(&Ask { kind, offset, len, cookie: offset ^ 0xabcd, ..Ask::default() })
    }

    pub(crate) fn read(&mut self, offset: u64, len: u32) -> io::Result<Answer> {
        self.simple_call(READ, offset, len)
    }

    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<Answer> {
        self.call(&writing(offset, data))
    }

    fn simple(&mut self, ask: &Ask) -> io::Result<Answer> {
        let (error, cookie) = (self.u32()?, self.u64()?);
        if cookie != ask.cookie {
            return Err(bad(format!("cookie {cookie:x} instead of {:x}", ask.cookie)));
        }
        match (error, ask.kind) {
            (0, READ) if self.structured => Err(bad("a simple reply to a structured read")),
            (0, READ) => Ok(Answer::Data(self.bytes(ask.len as usize)?)),
            (0, STATUS) => Err(bad("a simple reply to a block status request")),
            (0, _) => Ok(Answer::Data(Vec::new())),
            (error, _) => Ok(Answer::Error(error)),
        }
    }

    fn structured(&mut self, ask: &Ask) -> io::Result<Answer> {
        let mut data = vec![None; if ask.kind == READ { ask.len as usize } else { 0 }];
        let mut extents = None;
        loop {
            let (flags, kind, cookie, len) = (self.u16()?, self.u16()?, self.u64()?, self.u32()?);
            if cookie != ask.cookie || flags > 1 {
                return Err(bad(format!("chunk flags {flags}, cookie {cookie:x}")));
            }
            let body = self.bytes(len as usize)?;
            self.chunks += 1;
            match (kind, ask.kind) {
                (0, _) if body.is_empty() && flags == 1 => {}
                (1, READ) => place(&mut data, ask, &body[..8], &body[8..])?,
                (2, READ) => {
                    let len = u32::from_be_bytes(body[8..].try_into().map_err(|_| bad("hole"))?);
                    place(&mut data, ask, &body[..8], &vec![0; len as usize])?;
                }
                (5, STATUS) => extents = Some(parse_extents(&body)?),
                (0x8001 | 0x8002, _) if flags == 1 => return parse_error(kind, &body),
                _ => return Err(bad(format!("chunk {kind:x} to command {}", ask.kind))),
            }
            if flags == 1 {
                break;
            }
            if self.u32()? != 0x668e33ef {
                return Err(bad("a reply ends without its last chunk"));
            }
        }
        match extents {
            Some(extents) => Ok(Answer::Extents(extents)),
            None => data.into_iter().collect::<Option<_>>().map(Answer::Data).ok_or_else(|| {
                bad(format!("a read of {} bytes was not answered in full", ask.len))
            }),
        }
    }

    pub(crate) fn bytes(&mut self, len: usize) -> io::Result<Vec<u8>> {
        if len > 64 << 20 {
            return Err(bad(format!("an absurd length: {len}")));
        }
        let mut bytes = vec![0; len];
        self.line.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.line.read_exact(&mut bytes).map(|()| bytes)
    }

    fn u16(&mut self) -> io::Result<u16> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> io::Result<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> io::Result<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// Whether the server has closed; bytes still to come are thrown away.
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut buffer = [0; 4096];
        loop {
            match self.line.read(&mut buffer) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() == io::ErrorKind::ConnectionReset,
            }
        }
    }
}

pub(crate) fn encode(ask: &Ask) -> Vec<u8> {
    let mut bytes = vec![0x25, 0x60, 0x95, 0x13];
    bytes.extend(ask.flags.to_be_bytes());
    bytes.extend(ask.kind.to_be_bytes());
    bytes.extend(ask.cookie.to_be_bytes());
    bytes.extend(ask.offset.to_be_bytes());
    bytes.extend(ask.len.to_be_bytes());
    bytes.extend(&ask.payload);
    bytes
}

pub(crate) fn writing(offset: u64, data: &[u8]) -> Ask {
    let (len, payload) = (data.len() as u32, data.to_vec());
    Ask { kind: WRITE, offset, len, payload, cookie: !offset, ..Ask::default() }
}

/// Puts a chunk's bytes where they belong; none may come twice or lie outside.
fn place(data: &mut [Option<u8>], ask: &Ask, at: &[u8], bytes: &[u8]) -> io::Result<()> {
    let at = u64::from_be_bytes(at.try_into().map_err(|_| bad("offset"))?);
    let start = at.checked_sub(ask.offset).ok_or_else(|| bad("a chunk before the range"))?;
    let end = start as usize + bytes.len();
    let range = data.get_mut(start as usize..end).ok_or_else(|| bad("a chunk past the range"))?;
    if bytes.is_empty() || range.iter().any(Option::is_some) {
        return Err(bad("an empty chunk, or one that overlaps another"));
    }
    range.iter_mut().zip(bytes).for_each(|(to, from)| *to = Some(*from));
    Ok(())
}

fn parse_extents(body: &[u8]) -> io::Result<Vec<(u32, u32)>> {
    let word = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
    if body.len() < 12 || !(body.len() - 4).is_multiple_of(8) || word(&body[..4]) != 1 {
        return Err(bad("not the extents of context 1"));
    }
    Ok(body[4..].chunks_exact(8).map(|pair| (word(&pair[..4]), word(&pair[4..]))).collect())
}

fn parse_error(kind: u16, body: &[u8]) -> io::Result<Answer> {
    let number = body.get(..4).ok_or_else(|| bad("short error chunk"))?;
    let words = usize::from(u16::from_be_bytes([body[4], body[5]]));
    let tail = if kind == 0x8002 { 8 } else { 0 };
    if body.len() != 6 + words + tail || std::str::from_utf8(&body[6..6 + words]).is_err() {
        return Err(bad("an error chunk of the wrong form"));
    }
    Ok(Answer::Error(u32::from_be_bytes(number.try_into().unwrap())))
}
