//! An NBD client that writes the pages of a workload, as many at a time as fio has under way.
//!
//! ```text
//!   server   NBDMAGIC IHAVEOPT flags                       size, flags       reply, reply, ..
//!   client                      flags, export name ""                request, request, ..
//! ```
//!
//! fio makes up what it writes, and every store of compressed pages works on just that. Replies may
//! come in any order; a cookie says which request one is of.
//!
//! Invariants
//! - a request is sent after the reply of the one that had its cookie, so a server has at most
//!   `depth` of them.
//! - it is sent after the reply of the last write to its slot. A server may keep one request back
//!   while it answers any number of others.

use super::workload::Workload;
use crate::pages::PAGE_SIZE;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

const HELLO: &[u8; 16] = b"NBDMAGICIHAVEOPT";
const OPTION: &[u8; 8] = b"IHAVEOPT";
/// Fixed newstyle, and no zeros after what is said of the export.
const FIXED_NEWSTYLE_AND_NO_ZEROES: [u16; 2] = [1, 2];
const EXPORT_NAME: u32 = 1;
const REQUEST: u32 = 0x2560_9513;
const REPLY: u32 = 0x6744_6698;
const WRITE: u16 = 1;

/// What was written.
pub(super) struct Written {
    pub(super) writes: usize,
    pub(super) elapsed: Duration,
    /// Of each, in nanoseconds.
    pub(super) latencies: Vec<u32>,
}

/// A connection to a server's default export.
pub(super) struct Client(UnixStream);

impl Client {
    /// Connects to a socket, and agrees on the export.
    pub(super) fn connect(socket: &Path) -> io::Result<Client> {
        let mut client = Client(UnixStream::connect(socket)?);
        let hello: [u8; HELLO.len()] = client.read()?;
        let offered = u16::from_be_bytes(client.read()?);
        if &hello != HELLO || !offers_ours(offered) {
            return Err(strange("greeting"));
        }
        let mut answer = FIXED_NEWSTYLE_AND_NO_ZEROES
            .iter()
            .map(|&flag| u32::from(flag))
            .sum::<u32>()
            .to_be_bytes()
            .to_vec();
        answer.extend_from_slice(OPTION);
        answer.extend_from_slice(&EXPORT_NAME.to_be_bytes());
        answer.extend_from_slice(&0_u32.to_be_bytes()); // the length of the name
        client.0.write_all(&answer)?;
        let _size: [u8; 8] = client.read()?;
        let _flags: [u8; 2] = client.read()?;
        Ok(client)
    }

    /// Writes what the workload says for a while, `depth` requests at a time.
    pub(super) fn work(
        &mut self,
        workload: &Workload<'_>,
        depth: usize,
        time: Duration,
    ) -> io::Result<Written> {
        let mut latencies = Vec::new();
        let mut under_way = UnderWay::new(depth.min(workload.slots()));
        let start = Instant::now();
        loop {
            while start.elapsed() < time || under_way.first_requests() {
                let Some((cookie, number)) = under_way.next(workload.slots()) else { break };
                self.request(cookie, workload.write(number))?;
            }
            if under_way.is_empty() {
                break;
            }
            let sent = under_way.end(self.reply()?).ok_or_else(|| strange("cookie"))?;
            latencies.push(u32::try_from(sent.elapsed().as_nanos()).unwrap_or(u32::MAX));
        }
        Ok(Written { writes: under_way.sent, elapsed: start.elapsed(), latencies })
    }

    fn request(&mut self, cookie: usize, (slot, page): (usize, &[u8])) -> io::Result<()> {
        let mut request = Vec::with_capacity(32 + PAGE_SIZE);
        request.extend_from_slice(&REQUEST.to_be_bytes());
        request.extend_from_slice(&0_u16.to_be_bytes()); // no flags
        request.extend_from_slice(&WRITE.to_be_bytes());
        request.extend_from_slice(&(cookie as u64).to_be_bytes());
        request.extend_from_slice(&((slot * PAGE_SIZE) as u64).to_be_bytes());
        request.extend_from_slice(&(PAGE_SIZE as u32).to_be_bytes());
        request.extend_from_slice(page);
        self.0.write_all(&request)
    }

    /// The cookie of the next reply.
    fn reply(&mut self) -> io::Result<usize> {
        let magic = u32::from_be_bytes(self.read()?);
        let error = u32::from_be_bytes(self.read()?);
        let cookie = u64::from_be_bytes(self.read()?) as usize;
        match (magic, error) {
            (REPLY, 0) => Ok(cookie),
            (REPLY, error) => Err(io::Error::from_raw_os_error(error as i32)),
            _ => Err(strange("reply")),
        }
    }

    fn read<const LEN: usize>(&mut self) -> io::Result<[u8; LEN]> {
        let mut bytes = [0; LEN];
        self.0.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

/// The requests of a workload that have no reply yet.
struct UnderWay {
    /// For each cookie in use, the number of its write and when it was sent.
    cookies: Vec<Option<(usize, Instant)>>,
    /// Writes sent so far, which is the number of the next one.
    sent: usize,
}

impl UnderWay {
    fn new(depth: usize) -> UnderWay {
        UnderWay { cookies: vec![None; depth], sent: 0 }
    }

    fn is_empty(&self) -> bool {
        self.cookies.iter().all(Option::is_none)
    }

    /// Whether some cookie was never used.
    fn first_requests(&self) -> bool {
        self.sent < self.cookies.len()
    }

    /// A free cookie and the number of the next write; `None` while all are in use, or while the
    /// write of one pass earlier, which is to the same slot, has no reply.
    fn next(&mut self, slots: usize) -> Option<(usize, usize)> {
        let oldest = self.cookies.iter().flatten().map(|&(number, _)| number).min();
        if oldest.is_some_and(|oldest| self.sent >= oldest + slots) {
            return None;
        }
        let cookie = self.cookies.iter().position(Option::is_none)?;
        let number = self.sent;
        self.cookies[cookie] = Some((number, Instant::now()));
        self.sent += 1;
        Some((cookie, number))
    }

    /// When the request of a cookie was sent, which is answered now; `None` if there is none.
    fn end(&mut self, cookie: usize) -> Option<Instant> {
        Some(self.cookies.get_mut(cookie)?.take()?.1)
    }
}

/// Whether a server's flags have ours.
fn offers_ours(offered: u16) -> bool {
    FIXED_NEWSTYLE_AND_NO_ZEROES.iter().all(|flag| offered / flag % 2 == 1)
}

fn strange(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("this is no NBD {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::{Cleanup, PrivateDirectory};
    use ::serve::{Server, ServerConfig};
    use disk::{Disk, RamDisk};
    use std::sync::Arc;

    /// A server that answers all but one request for ever gets no second write to a slot.
    #[test]
    fn a_write_waits_for_the_one_before_it_to_its_slot() {
        const SLOTS: usize = 5;
        let mut under_way = UnderWay::new(3);
        let (kept_back, number) = under_way.next(SLOTS).unwrap();
        assert_eq!(number, 0);
        for expected in 1..SLOTS {
            let (cookie, number) = under_way.next(SLOTS).unwrap();
            assert_eq!(number, expected);
            under_way.end(cookie).unwrap();
        }
        assert_eq!(under_way.next(SLOTS), None, "write 5 is to the slot of write 0");
        assert!(under_way.end(kept_back).is_some());
        assert_eq!(under_way.end(kept_back), None, "it was answered");
        assert_eq!(under_way.next(SLOTS).unwrap().1, SLOTS);
    }

    /// Against our own server: what it holds in the end is what the workload says.
    #[test]
    fn a_server_holds_what_was_written() {
        const SLOTS: usize = 40;
        let cleanup = Cleanup::default();
        let directory = PrivateDirectory::new(&cleanup).unwrap();
        let socket = directory.path().join("disk.sock");
        let pages = crate::pages::synthetic::bytes(SLOTS * PAGE_SIZE);
        let disk = Arc::new(RamDisk::new(pages.len() as u64).unwrap());
        disk.write(0, &pages).unwrap();
        let mut config = ServerConfig::new("disk");
        config.unix.push(socket.clone());
        let server = Server::start(Arc::clone(&disk) as Arc<dyn Disk>, config).unwrap();
        let workload = Workload::new(&pages, 0);
        let mut client = Client::connect(&socket).unwrap();
        let none = client.work(&workload, 16, Duration::ZERO).unwrap();
        assert_eq!((none.writes, none.latencies.len()), (16, 16), "one of each cookie");
        let mut held = vec![0; pages.len()];
        disk.read(0, &mut held).unwrap();
        assert!(held == workload.after(none.writes), "after {} writes", none.writes);
        server.stop();
    }
}
