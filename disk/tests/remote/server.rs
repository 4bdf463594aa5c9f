//! A small NBD server whose answers a test decides.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ramfold_disk::NbdDisk;

pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
pub(crate) const SIZE: u64 = 1 << 20;

/// It has flags, flushes and writes zeros.
pub(crate) const FLAGS: u16 = 1 | 1 << 2 | 1 << 6;
pub(crate) const GO: u32 = 7;
pub(crate) const READ: u16 = 0;
pub(crate) const DISCONNECT: u16 = 2;

/// What the server is asked.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) command: u16,
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    pub(crate) len: u32,
}

/// What it does about a request.
pub(crate) enum Answer {
    Right,
    Error(u32),
    /// It closes the connection.
    Close,
    /// It says nothing.
    Nothing,
    /// It keeps the request, and answers it after the next one.
    Later,
    /// It answers a request that nobody made.
    Stray,
}

/// Where a server listens. The file is removed with it.
pub(crate) struct Place(pub(crate) PathBuf);

impl Place {
    pub(crate) fn new() -> Place {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ramfold-remote-{}-{number}.sock", std::process::id());
        Place(std::env::temp_dir().join(name))
    }

    pub(crate) fn address(&self) -> String {
        format!("nbd+unix:///x?socket={}&timeout={}", self.0.display(), PATIENCE.as_secs())
    }

    pub(crate) fn open(&self) -> std::io::Result<NbdDisk> {
        NbdDisk::open(&self.address())
    }

    pub(crate) fn listen(&self) -> UnixListener {
        let _ = std::fs::remove_file(&self.0);
        UnixListener::bind(&self.0).expect("a socket")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Serves connection after connection. `answer` gets the number of the connection, from 0, and the
/// number of the request in it. The size is that of the connection's number.
pub(crate) fn serve(
    listener: UnixListener,
    size: fn(usize) -> u64,
    mut answer: impl FnMut(usize, usize, Asked) -> Answer + Send + 'static,
) {
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            // The client may leave at any time.
            let _ = converse(stream.expect("a client"), size(number), FLAGS, |at, asked| {
                answer(number, at, asked)
            });
        }
    });
}

pub(crate) fn converse(
    mut stream: UnixStream,
    size: u64,
    flags: u16,
    mut answer: impl FnMut(usize, Asked) -> Answer,
) -> std::io::Result<()> {
    greet(&mut stream)?;
    let (option, _) = option(&mut stream)?;
    assert_eq!(option, GO);
    let info = [&0_u16.to_be_bytes()[..], &size.to_be_bytes(), &flags.to_be_bytes()].concat();
    reply(&mut stream, 3, &info)?;
    let sizes = [1_u32, 4096, 1 << 16].map(u32::to_be_bytes).concat();
    reply(&mut stream, 3, &[&3_u16.to_be_bytes()[..], &sizes].concat())?;
    reply(&mut stream, 1, &[])?;
    let mut kept = None;
    for at in 0.. {
        let asked = request(&mut stream)?;
        match answer(at, asked) {
            Answer::Right => right(&mut stream, asked)?,
            Answer::Error(error) => head(&mut stream, error, asked.cookie)?,
            Answer::Close => return Ok(()),
            Answer::Nothing => {}
            Answer::Later => kept = Some(asked),
            Answer::Stray => head(&mut stream, 0, asked.cookie + 1000)?,
        }
        if let Some(asked) = kept.take_if(|kept| kept.cookie != asked.cookie) {
            right(&mut stream, asked)?;
        }
    }
    Ok(())
}

pub(crate) fn greet(stream: &mut UnixStream) -> std::io::Result<()> {
    stream.write_all(b"NBDMAGICIHAVEOPT\x00\x03")?;
    stream.read_exact(&mut [0; 4])
}

pub(crate) fn option(stream: &mut UnixStream) -> std::io::Result<(u32, Vec<u8>)> {
    let mut head = [0; 16];
    stream.read_exact(&mut head)?;
    let mut data = vec![0; word(&head[12..]) as usize];
    stream.read_exact(&mut data)?;
    Ok((word(&head[8..12]), data))
}

pub(crate) fn reply(stream: &mut UnixStream, kind: u32, data: &[u8]) -> std::io::Result<()> {
    let magic = 0x0003_e889_0455_65a9_u64.to_be_bytes();
    let words = [GO, kind, data.len() as u32].map(u32::to_be_bytes).concat();
    stream.write_all(&[&magic[..], &words, data].concat())
}

pub(crate) fn request(stream: &mut UnixStream) -> std::io::Result<Asked> {
    let mut head = [0; 28];
    stream.read_exact(&mut head)?;
    let long = |at: usize| u64::from_be_bytes(head[at..at + 8].try_into().expect("eight bytes"));
    let command = u16::from_be_bytes([head[6], head[7]]);
    let asked = Asked { command, cookie: long(8), offset: long(16), len: word(&head[24..]) };
    if command == 1 {
        stream.read_exact(&mut vec![0; asked.len as usize])?;
    }
    Ok(asked)
}

pub(crate) fn word(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes.try_into().expect("eight or four bytes"))
}

pub(crate) fn head(stream: &mut UnixStream, error: u32, cookie: u64) -> std::io::Result<()> {
    let words = [0x6744_6698, error].map(u32::to_be_bytes).concat();
    stream.write_all(&[&words[..], &cookie.to_be_bytes()].concat())
}

/// Each byte of the server's disk says at which page it is.
pub(crate) fn right(stream: &mut UnixStream, asked: Asked) -> std::io::Result<()> {
    head(stream, 0, asked.cookie)?;
    if asked.command != READ {
        return Ok(());
    }
    let bytes: Vec<u8> = (0..u64::from(asked.len)).map(|at| page_of(asked.offset + at)).collect();
    stream.write_all(&bytes)
}

pub(crate) fn page_of(offset: u64) -> u8 {
    (offset / 4096 % 251) as u8
}

pub(crate) fn same(_: usize) -> u64 {
    SIZE
}
