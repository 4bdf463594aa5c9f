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
//! Invariant: a request is sent after the reply of the one that had its cookie, so a server has at
//! most `depth` of them.

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
        let (mut written, mut latencies) = (0, Vec::new());
        let start = Instant::now();
        let mut sent = vec![start; depth.min(workload.slots())];
        for (cookie, sent) in sent.iter_mut().enumerate() {
            *sent = Instant::now();
            self.request(cookie, workload.write(written))?;
            written += 1;
        }
        let mut under_way = sent.len();
        while under_way > 0 {
            let cookie = self.reply()?;
            let sent = sent.get_mut(cookie).ok_or_else(|| strange("cookie"))?;
            let now = Instant::now();
            latencies.push(u32::try_from((now - *sent).as_nanos()).unwrap_or(u32::MAX));
            if now - start >= time {
                under_way -= 1;
                continue;
            }
            *sent = now;
            self.request(cookie, workload.write(written))?;
            written += 1;
        }
        Ok(Written { writes: written, elapsed: start.elapsed(), latencies })
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
