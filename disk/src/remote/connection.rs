//! One connection to an NBD server: requests of many threads, and replies in any order.
//!
//! ```text
//!   threads   call: send, wait ------ cookie ------>  server
//!   reader    the reply's cookie says who waits  <--  server
//! ```
//!
//! Invariants
//! - I1 a request ends with its reply, when the connection is lost, or when its time is up.
//! - I2 when the time of one is up the connection is lost: nothing more is sent on it.
//! - I3 a connection that is lost *is over* when the server has closed it too. Until then the
//!   server may still do a write that nobody waits for, so what is written next must wait. Most
//!   servers have then done what they read. But qemu-nbd may still be writing what it read before.
//!
//! Locks: `sending` is held while a request is sent, and `waiting` for moments. A thread never has
//! both. Replies are read by a thread of its own, so a server that waits until its replies are read
//! goes on reading requests.

use std::collections::HashMap;
use std::io::{self, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use host::unmodelled::RankedMutex;
use host::{Event, Rank};

use super::address::Address;
use super::handshake::{self, Export};
use super::stream::{Stream, Until, take};

const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
/// The server's answer if it is about to end. Then it may be back soon.
const ESHUTDOWN: u32 = 108;
/// Bytes of data that are sent together with their header.
const TOGETHER_MAX: usize = 64 << 10; // 64 KiB
/// Bytes of replies that are read at once.
const BUFFER: usize = 64 << 10; // 64 KiB

/// What is asked of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum Command {
    Read = 0,
    Write = 1,
    Disconnect = 2,
    Flush = 3,
    WriteZeroes = 6,
}

/// A request. `data` is that of a write.
#[derive(Clone, Copy)]
pub(super) struct Request<'a> {
    pub(super) command: Command,
    pub(super) flags: u16,
    pub(super) offset: u64,
    pub(super) len: u32,
    pub(super) data: &'a [u8],
}

/// Why a request has no answer.
#[derive(Debug)]
pub(super) enum Failed {
    /// The server answered with this error number.
    Refused(u32),
    /// The server does not do it: it said that it is about to end, or was not asked.
    Undone(io::Error),
    /// The connection is gone. The request may have been done, or may be done yet.
    Lost(io::Error),
    /// Its time was up. The request may have been done, or may be done yet.
    Late,
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Connection {
    stream: Stream,
    pub(super) export: Export,
    sending: RankedMutex<()>,
    waiting: RankedMutex<Waiting>,
    /// A request has ended.
    ended: Event,
    /// Nothing is answered any more.
    is_lost: AtomicBool,
    /// The server has closed it.
    is_over: AtomicBool,
}

#[derive(Debug, Default)]
struct Waiting {
    requests: HashMap<u64, State>,
    next: u64,
    /// Why the connection was lost.
    lost: Option<io::ErrorKind>,
}

#[derive(Debug)]
enum State {
    /// It has no answer yet, which will carry so many bytes if it is no error.
    Sent(usize),
    Answered(Result<Vec<u8>, u32>),
}

impl State {
    /// Bytes of data in the answer that is waited for.
    fn reads(&self) -> Option<usize> {
        if let State::Sent(reads) = self { Some(*reads) } else { None }
    }
}

impl Connection {
    /// Connects. The system gives up a machine that is silent for `patience`.
    pub(super) fn open(
        address: &Address,
        until: Instant,
        patience: Duration,
    ) -> io::Result<Arc<Connection>> {
        let stream = Stream::connect(&address.place, until)?;
        let export = handshake::agree(&mut Until { stream: &stream, until }, &address.name)?;
        stream.give_up_after(patience);
        let connection = Arc::new(Connection {
            stream,
            export,
            sending: RankedMutex::new(Rank::Leaf, ()),
            waiting: RankedMutex::new(Rank::Leaf, Waiting::default()),
            ended: Event::new(),
            is_lost: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        });
        let reader = Arc::clone(&connection);
        host::thread::spawn("nbd-replies", move || reader.read_to_the_end())?;
        Ok(connection)
    }

    pub(super) fn is_lost(&self) -> bool {
        // relaxed: a flag that stands alone; who needs the reason takes the lock.
        self.is_lost.load(Ordering::Relaxed)
    }

    /// Waits until the server has closed a connection that is lost. False if the time is up before.
    pub(super) fn is_over(&self, until: Instant) -> bool {
        loop {
            let seen = self.ended.seen();
            // Acquire pairs with the Release in `read_to_the_end`, so that what the server has done
            // came before.
            if self.is_over.load(Ordering::Acquire) {
                return true;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            self.ended.wait(seen, left);
        }
    }

    /// Sends a request and waits for its reply. Returns the bytes of a read.
    pub(super) fn call(&self, request: Request<'_>, until: Instant) -> Result<Vec<u8>, Failed> {
        let reads = if request.command == Command::Read { request.len as usize } else { 0 };
        let cookie = self.announce(reads)?;
        if let Err(error) = self.send(cookie, request, until) {
            self.lose(error.kind());
        }
        self.wait_for(cookie, until)
    }

    /// Says good-bye and ends the connection.
    pub(super) fn close(&self, until: Instant) {
        let (command, flags, offset, len, data) = (Command::Disconnect, 0, 0, 0, &[][..]);
        // The server notices that the connection ends in any case.
        let _ = self.send(0, Request { command, flags, offset, len, data }, until);
        self.lose(io::ErrorKind::NotConnected);
    }

    fn announce(&self, reads: usize) -> Result<u64, Failed> {
        let mut waiting = self.waiting.lock();
        if let Some(kind) = waiting.lost {
            return Err(Failed::Undone(kind.into()));
        }
        waiting.next += 1;
        let cookie = waiting.next;
        waiting.requests.insert(cookie, State::Sent(reads));
        Ok(cookie)
    }

    fn send(&self, cookie: u64, request: Request<'_>, until: Instant) -> io::Result<()> {
        let mut header = [0; 28];
        header[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        header[4..6].copy_from_slice(&request.flags.to_be_bytes());
        header[6..8].copy_from_slice(&(request.command as u16).to_be_bytes());
        header[8..16].copy_from_slice(&cookie.to_be_bytes());
        header[16..24].copy_from_slice(&request.offset.to_be_bytes());
        header[24..].copy_from_slice(&request.len.to_be_bytes());
        // A short request goes in one call of the system.
        let (mut first, mut rest) = (header.to_vec(), request.data);
        if rest.len() <= TOGETHER_MAX {
            first.extend_from_slice(rest);
            rest = &[];
        }
        let _sending = self.sending.lock();
        self.stream.send(&first, until)?;
        self.stream.send(rest, until)
    }

    fn wait_for(&self, cookie: u64, until: Instant) -> Result<Vec<u8>, Failed> {
        loop {
            let seen = self.ended.seen();
            if let Some(outcome) = self.outcome(cookie) {
                return outcome;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.waiting.lock().requests.remove(&cookie);
                self.lose(io::ErrorKind::TimedOut);
                return Err(Failed::Late);
            }
            self.ended.wait(seen, left);
        }
    }

    /// How a request has ended; `None` if it has not.
    fn outcome(&self, cookie: u64) -> Option<Result<Vec<u8>, Failed>> {
        let mut waiting = self.waiting.lock();
        match (waiting.requests.remove(&cookie), waiting.lost) {
            (Some(State::Answered(Err(ESHUTDOWN))), _) => {
                Some(Err(Failed::Undone(io::ErrorKind::ConnectionAborted.into())))
            }
            (Some(State::Answered(answer)), _) => Some(answer.map_err(Failed::Refused)),
            (_, Some(kind)) => Some(Err(Failed::Lost(kind.into()))),
            (Some(sent), None) => {
                waiting.requests.insert(cookie, sent);
                None
            }
            (None, None) => Some(Err(Failed::Lost(io::ErrorKind::InvalidData.into()))),
        }
    }

    /// Reads replies, and after the last one whatever comes, until the server closes.
    fn read_to_the_end(&self) {
        if let Ok(stream) = self.stream.read_on() {
            let mut from = BufReader::with_capacity(BUFFER, stream);
            let error = loop {
                if let Err(error) = self.read_reply(&mut from) {
                    break error;
                }
            };
            self.lose(error.kind());
            // An error here is an end as well.
            let _ = io::copy(&mut from, &mut io::sink());
        }
        self.lose(io::ErrorKind::ConnectionAborted);
        // Release pairs with the Acquire in `is_over`, so that the last reply came before.
        self.is_over.store(true, Ordering::Release);
        self.ended.raise();
    }

    fn read_reply(&self, from: &mut impl Read) -> io::Result<()> {
        let magic = u32::from_be_bytes(take(&mut *from)?);
        let error = u32::from_be_bytes(take(&mut *from)?);
        let cookie = u64::from_be_bytes(take(&mut *from)?);
        let known = self.waiting.lock().requests.get(&cookie).map(State::reads);
        let reads = match known.flatten() {
            Some(reads) if magic == REPLY_MAGIC => reads,
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        let answer = match error {
            0 => {
                let mut data = vec![0; reads];
                from.read_exact(&mut data)?;
                Ok(data)
            }
            error => Err(error),
        };
        if let Some(state) = self.waiting.lock().requests.get_mut(&cookie) {
            *state = State::Answered(answer);
        }
        self.ended.raise();
        Ok(())
    }

    fn lose(&self, kind: io::ErrorKind) {
        {
            let mut waiting = self.waiting.lock();
            waiting.lost.get_or_insert(kind);
            // relaxed: as in `is_lost`.
            self.is_lost.store(true, Ordering::Relaxed);
        }
        self.ended.raise();
        self.stream.end_sending();
    }
}
