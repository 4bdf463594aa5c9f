//! A bare NBD client for what no tool can do: exact error numbers and half-sent requests.
//!
//! ```text
//!   server: NBDMAGIC IHAVEOPT flags.16        client: flags.32
//!   client: IHAVEOPT EXPORT_NAME.32 len.32 name
//!   server: size.64 flags.16
//!   client: 25609513 flags.16 type.16 cookie.64 offset.64 len.32 [payload]
//!   server: 67446698 error.32 cookie.64 [payload]
//! ```
//!
//! Invariant: one request at a time, so every reply answers the last request.

use std::io::{Read, Result, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054; // IHAVEOPT
const OPTION_EXPORT_NAME: u32 = 1;
const OPTION_LIST: u32 = 3;
const CLIENT_FLAGS: u32 = 3; // fixed newstyle, no zeroes
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;

const READ: u16 = 0;
const WRITE: u16 = 1;
const TRIM: u16 = 4;

/// A connection in its transmission phase.
pub(crate) struct Nbd {
    stream: UnixStream,
    size: u64,
}

/// What the server answered: nothing wrong, or an error number of the protocol.
pub(crate) type Reply<T> = std::result::Result<T, u32>;

impl Nbd {
    pub(crate) fn connect(socket: &Path) -> Nbd {
        Nbd::negotiate(socket).expect("the server takes a client")
    }

    /// A connection, if a server listens. The socket of a dead server refuses.
    pub(crate) fn connect_if_serving(socket: &Path) -> Option<Nbd> {
        Nbd::negotiate(socket).ok()
    }

    /// The first export of a server's list: its name and, right after it, its description.
    pub(crate) fn listed(socket: &Path) -> Result<String> {
        let mut stream = Nbd::greet(socket)?;
        stream.write_all(&OPTION_MAGIC.to_be_bytes())?;
        stream.write_all(&OPTION_LIST.to_be_bytes())?;
        stream.write_all(&0_u32.to_be_bytes())?;
        let mut head = [0; 24]; // magic.64 option.32 type.32 len.32, and the name's len.32
        stream.read_exact(&mut head)?;
        let len = u32::from_be_bytes(head[16..20].try_into().expect("four bytes"));
        let mut text = vec![0; len as usize - 4];
        stream.read_exact(&mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    fn greet(socket: &Path) -> Result<UnixStream> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        stream.read_exact(&mut [0; 18])?;
        stream.write_all(&CLIENT_FLAGS.to_be_bytes())?;
        Ok(stream)
    }

    fn negotiate(socket: &Path) -> Result<Nbd> {
        Nbd::negotiate_for(socket, "") // the default export
    }

    /// The export of a name, if there is one.
    pub(crate) fn negotiate_for(socket: &Path, name: &str) -> Result<Nbd> {
        let mut stream = Nbd::greet(socket)?;
        stream.write_all(&OPTION_MAGIC.to_be_bytes())?;
        stream.write_all(&OPTION_EXPORT_NAME.to_be_bytes())?;
        stream.write_all(&(name.len() as u32).to_be_bytes())?;
        stream.write_all(name.as_bytes())?;
        let mut export = [0; 10];
        stream.read_exact(&mut export)?;
        let size = u64::from_be_bytes(export[..8].try_into().expect("eight bytes"));
        Ok(Nbd { stream, size })
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn read(&mut self, offset: u64, len: usize) -> Reply<Vec<u8>> {
        self.ask(READ, offset, len as u32, &[]).expect("the server answers a read")?;
        let mut data = vec![0; len];
        self.stream.read_exact(&mut data).expect("the payload follows its reply");
        Ok(data)
    }

    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> Reply<()> {
        self.try_write(offset, data).expect("the server answers a write")
    }

    /// A write whose connection may break.
    pub(crate) fn try_write(&mut self, offset: u64, data: &[u8]) -> Result<Reply<()>> {
        self.ask(WRITE, offset, data.len() as u32, data)
    }

    pub(crate) fn trim(&mut self, offset: u64, len: u32) -> Reply<()> {
        self.ask(TRIM, offset, len, &[]).expect("the server answers a trim")
    }

    /// Announces a write, sends half of it and hangs up.
    pub(crate) fn die_in_write(mut self, offset: u64, data: &[u8]) {
        self.stall_in_write(offset, data);
    }

    /// Announces a write and sends half of it.
    pub(crate) fn stall_in_write(&mut self, offset: u64, data: &[u8]) {
        let request = request(WRITE, offset, data.len() as u32);
        self.stream.write_all(&request).expect("the server listens");
        self.stream.write_all(&data[..data.len() / 2]).expect("the server listens");
    }

    fn ask(&mut self, kind: u16, offset: u64, len: u32, payload: &[u8]) -> Result<Reply<()>> {
        self.stream.write_all(&request(kind, offset, len))?;
        self.stream.write_all(payload)?;
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply)?;
        let word =
            |at: usize| u32::from_be_bytes(reply[at..at + 4].try_into().expect("four bytes"));
        assert_eq!(word(0), REPLY_MAGIC, "a simple reply");
        Ok(if word(4) == 0 { Ok(()) } else { Err(word(4)) })
    }
}

fn request(kind: u16, offset: u64, len: u32) -> Vec<u8> {
    let mut request = REQUEST_MAGIC.to_be_bytes().to_vec();
    request.extend([0, 0]);
    request.extend(kind.to_be_bytes());
    request.extend([0; 8]);
    request.extend(offset.to_be_bytes());
    request.extend(len.to_be_bytes());
    request
}
