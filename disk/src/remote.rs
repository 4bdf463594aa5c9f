//! A disk on another machine, or of another process: the client of an NBD server.
//!
//! ```text
//!   Disk::read, write, ..  -->  lane of the place: a connection, made when needed  -->  server
//!                          <--  repeated if the connection is lost                 <--
//! ```
//!
//! Many servers do the requests of one connection one after the other. If a server allows several
//! connections at once, there are up to [`LANES`] of them from the start, each for its places of
//! the disk.
//!
//! The protocol is that of the NBD project's `doc/proto.md`, with simple replies.
//!
//! Invariants
//! - R1 a request that returns `Ok` was done by the server, on an export of the size it had first.
//! - R2 a request ends within its time. It is sent again each time the connection is lost, which
//!   changes nothing: it writes the same bytes to the same place. A long read or write is several
//!   requests, and ends at the first one that fails.
//! - R3 the next connection of a lane is made when the server has closed its last one, and a place
//!   has one lane. So on most servers no write that was given up comes after one that was made
//!   later.
//! - R4 a page that the server does not give is an error. It is counted, and no byte is made up.
//! - R5 after a request whose time was up, one request a second is tried on that lane, and the
//!   others of the lane fail at once, until one succeeds. So a caller with many requests does not
//!   wait for each of them.
//!
//! R3 promises nothing of a server that closes while it still writes, as qemu-nbd does. Nor does it
//! if the machine or the network between is gone for longer than a request's time. So the range of
//! a change that was sent and had no reply is *unsettled* for the life of the disk, also if the
//! request was repeated and succeeded. [`Disk::may_still_change`] says so of it.
//!
//! A server that was started anew may have lost what it held, and nothing in the protocol says so.
//! The caller notices by checksums, as zram and zswap do ([`Seal`](crate::Seal)).
//!
//! Locks: `unsettled`, and the link and the doubt of a lane, leaves, each held for moments. No
//! connection is made or waited for under them.

mod address;
mod connection;
mod handshake;
mod lane;
mod stream;
mod unsettled;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use host::Rank;
use host::unmodelled::RankedMutex;

use crate::contract::{Allocation, Disk, DiskError, check_range};
use address::Address;
use connection::{Command, Connection, Failed, Request};
use handshake::Export;
use lane::{Lane, PAUSE_MAX, PAUSE_MIN, Trial};
use unsettled::Unsettled;

/// How long a request may take, with all that is tried: 30 s.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often a server that did not answer is tried, and for how long.
const PROBE: Duration = Duration::from_secs(1);
/// Bytes of zeros that one request asks for at most, a multiple of any block.
const ZEROES_MAX: u64 = 1 << 30; // 1 GiB
/// Connections to a server that allows several, as many as `nbdcopy` makes.
const LANES: usize = 4;
/// How long to wait for each of them but the first. A server may allow fewer.
const LANE_PATIENCE: Duration = Duration::from_secs(1);
/// Bytes in a row that have the same lane, a multiple of what a server takes at least.
const STRIPE: u64 = 1 << 20; // 1 MiB

const FLAG_READ_ONLY: u16 = 1 << 1;
const FLAG_FLUSH: u16 = 1 << 2;
const FLAG_WRITE_ZEROES: u16 = 1 << 6;
/// Several connections are one disk: what was written on one of them, all others read and flush.
const FLAG_MULTI_CONN: u16 = 1 << 8;
/// Of a request to write zeros: the space stays taken.
const NO_HOLE: u16 = 1 << 1;

const _: () = assert!(
    FLAG_READ_ONLY ^ FLAG_FLUSH ^ FLAG_WRITE_ZEROES ^ FLAG_MULTI_CONN
        == FLAG_READ_ONLY | FLAG_FLUSH | FLAG_WRITE_ZEROES | FLAG_MULTI_CONN,
    "each flag is a bit of its own"
);

const EPERM: u32 = 1;
const ENOMEM: u32 = 12;
const ENOSPC: u32 = 28;

/// An export of an NBD server. Clones are the same disk.
///
/// ```no_run
/// use ramfold_disk::{Disk, NbdDisk};
/// let disk = NbdDisk::open("nbd+unix:///zram0?socket=/run/far.sock")?;
/// disk.write(0, &[7; 4096])?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct NbdDisk {
    shared: Arc<Shared>,
}

struct Shared {
    address: Address,
    patience: Duration,
    /// As the server told it first.
    export: Export,
    /// Their number never changes, so a place has the same one always.
    lanes: Box<[Lane]>,
    unsettled: RankedMutex<Unsettled>,
    reconnects: AtomicU64,
    repeated: AtomicU64,
    late: AtomicU64,
    refused: AtomicU64,
}

/// What became of the requests of an [`NbdDisk`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NbdReport {
    /// Whether there is a connection now.
    pub connected: bool,
    /// Connections that were made after others were lost.
    pub reconnects: u64,
    /// Requests that were sent again because a connection was lost.
    pub repeated: u64,
    /// Requests that failed because their time was up.
    pub late: u64,
    /// Requests that the server answered with an error.
    pub refused: u64,
}

impl NbdDisk {
    /// Whether a text means to be the address of an export, and not the path of a file: it begins
    /// with `nbd:` or `nbd+unix:`.
    pub fn is_address(text: &str) -> bool {
        address::is_address(text)
    }

    /// Connects to an export: `nbd://HOST[:PORT]/NAME` or `nbd+unix:///NAME?socket=PATH`. A request
    /// may take 30 s, or as many seconds as the address says: `?timeout=5` or `&timeout=5`. In that
    /// time a lost connection is made again, and the request is repeated.
    ///
    /// # Errors
    ///
    /// - `InvalidInput` if the address is not of this form
    /// - `InvalidData` if the server does not have the export, or does not speak NBD
    /// - the errors of connecting
    pub fn open(address: &str) -> io::Result<NbdDisk> {
        let invalid = |why| io::Error::new(io::ErrorKind::InvalidInput, why);
        let address = Address::parse(address).map_err(invalid)?;
        let patience = address.patience.unwrap_or(PATIENCE);
        let connection = Connection::open(&address, Instant::now() + patience, patience)?;
        let export = connection.export;
        let others = if export.flags & FLAG_MULTI_CONN != 0 { LANES - 1 } else { 0 };
        // Where one is refused, those that there are do.
        let other = |_| {
            let until = Instant::now() + LANE_PATIENCE.min(patience);
            let connection = Connection::open(&address, until, patience).ok()?;
            if connection.export == export {
                return Some(connection);
            }
            connection.close(until);
            None
        };
        let connections: Vec<_> =
            std::iter::once(connection).chain((0..others).map_while(other)).collect();
        let shared = Shared {
            address,
            patience,
            export,
            lanes: connections.into_iter().map(Lane::new).collect(),
            unsettled: RankedMutex::new(Rank::Leaf, Unsettled::default()),
            reconnects: AtomicU64::new(0),
            repeated: AtomicU64::new(0),
            late: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        };
        Ok(NbdDisk { shared: Arc::new(shared) })
    }

    /// What became of the requests so far.
    pub fn report(&self) -> NbdReport {
        let shared = &self.shared;
        let connected = shared.lanes.iter().any(Lane::is_up);
        // relaxed: figures that stand alone.
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        NbdReport {
            connected,
            reconnects: load(&shared.reconnects),
            repeated: load(&shared.repeated),
            late: load(&shared.late),
            refused: load(&shared.refused),
        }
    }

    fn check_change(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        if self.read_only() {
            return Err(DiskError::ReadOnly);
        }
        check_range(self.size_bytes(), offset, len)
    }

    /// The longest read or write, a multiple of the server's blocks.
    fn piece(&self) -> usize {
        let export = &self.shared.export;
        (export.payload_max / export.block_min * export.block_min) as usize
    }

    /// Bytes from `at` on, at most `most`, that one request of at most `piece` bytes may have.
    fn part(&self, at: u64, most: u64, piece: u64) -> u64 {
        let lane = if self.shared.lanes.len() > 1 { STRIPE - at % STRIPE } else { u64::MAX };
        most.min(piece).min(lane)
    }

    fn check_blocks(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        let block = u64::from(self.shared.export.block_min);
        if offset.is_multiple_of(block) && len.is_multiple_of(block) {
            return Ok(());
        }
        let why = format!("the NBD server takes whole blocks of {block} bytes only");
        Err(DiskError::Backing(io::Error::new(io::ErrorKind::InvalidInput, why)))
    }
}

impl Disk for NbdDisk {
    fn size_bytes(&self) -> u64 {
        self.shared.export.size
    }

    fn block_size(&self) -> u32 {
        self.shared.export.block
    }

    fn read_only(&self) -> bool {
        self.shared.export.flags & FLAG_READ_ONLY != 0
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DiskError> {
        check_range(self.size_bytes(), offset, buf.len() as u64)?;
        self.check_blocks(offset, buf.len() as u64)?;
        let (mut at, mut rest, most) = (offset, buf, self.piece() as u64);
        while !rest.is_empty() {
            let len = self.part(at, rest.len() as u64, most);
            let (piece, others) = rest.split_at_mut(len as usize);
            piece.copy_from_slice(&self.shared.perform(request(Command::Read, at, len))?);
            (at, rest) = (at + len, others);
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DiskError> {
        self.check_change(offset, data.len() as u64)?;
        self.check_blocks(offset, data.len() as u64)?;
        let (mut at, mut rest, most) = (offset, data, self.piece() as u64);
        while !rest.is_empty() {
            let len = self.part(at, rest.len() as u64, most);
            let (data, others) = rest.split_at(len as usize);
            self.shared.perform(Request { data, ..request(Command::Write, at, len) })?;
            (at, rest) = (at + len, others);
        }
        Ok(())
    }

    fn write_zeroes(&self, offset: u64, len: u64, keep: Allocation) -> Result<(), DiskError> {
        self.check_change(offset, len)?;
        self.check_blocks(offset, len)?;
        if self.shared.export.flags & FLAG_WRITE_ZEROES == 0 {
            return self.write_zeros(offset, len);
        }
        let flags = if keep == Allocation::MayUnmap { 0 } else { NO_HOLE };
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let piece = self.part(at, end - at, ZEROES_MAX);
            let request = request(Command::WriteZeroes, at, piece);
            self.shared.perform(Request { flags, ..request })?;
            at += piece;
        }
        Ok(())
    }

    fn would_wait(&self, offset: u64, len: u64) -> bool {
        check_range(self.size_bytes(), offset, len).is_ok()
    }

    fn may_still_change(&self, offset: u64, len: u64) -> bool {
        self.shared.unsettled.lock().overlaps(&(offset..offset.saturating_add(len)))
    }

    fn flush(&self) -> Result<(), DiskError> {
        if self.shared.export.flags & FLAG_FLUSH == 0 {
            return Ok(());
        }
        self.shared.perform(request(Command::Flush, 0, 0)).map(drop)
    }
}

impl NbdDisk {
    /// For a server that has no request for it.
    fn write_zeros(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        let piece = self.piece().min(1 << 20);
        let zeros = vec![0; piece];
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let len = (end - at).min(piece as u64) as usize;
            self.write(at, &zeros[..len])?;
            at += len as u64;
        }
        Ok(())
    }
}

/// A request without flags and data. It is at most 1 GiB long.
fn request(command: Command, offset: u64, len: u64) -> Request<'static> {
    Request { command, flags: 0, offset, len: len as u32, data: &[] }
}

impl Shared {
    /// The lane of a place.
    fn lane_of(&self, offset: u64) -> &Lane {
        &self.lanes[(offset / STRIPE) as usize % self.lanes.len()]
    }

    /// Has a request done, on as many connections as it takes.
    fn perform(&self, request: Request<'_>) -> Result<Vec<u8>, DiskError> {
        let lane = self.lane_of(request.offset);
        let patience = self.patience_now(lane)?;
        let until = Instant::now() + patience;
        let mut pause = PAUSE_MIN;
        loop {
            let error = match self.connection(lane, until, patience)?.call(request, until) {
                Ok(data) => {
                    lane.trust();
                    return Ok(data);
                }
                Err(Failed::Refused(number)) => {
                    lane.trust();
                    // relaxed: a figure.
                    self.refused.fetch_add(1, Ordering::Relaxed);
                    return Err(refusal(number));
                }
                Err(Failed::Late) => {
                    self.unsettle(request);
                    return Err(self.too_late(lane, patience, "it did not answer"));
                }
                Err(Failed::Lost(error)) => {
                    self.unsettle(request);
                    error
                }
                Err(Failed::Undone(error)) => error,
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.too_late(lane, patience, &error.to_string()));
            }
            // relaxed: a figure.
            self.repeated.fetch_add(1, Ordering::Relaxed);
            // A server that closes the connection at this request gets some rest.
            std::thread::sleep(pause.min(left));
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Notes the range of a request that was sent and has no reply, if it changes one.
    fn unsettle(&self, request: Request<'_>) {
        if matches!(request.command, Command::Write | Command::WriteZeroes) {
            let end = request.offset + u64::from(request.len);
            self.unsettled.lock().add(request.offset..end);
        }
    }

    /// How long a request may take now; an error if it is not tried.
    fn patience_now(&self, lane: &Lane) -> Result<Duration, DiskError> {
        match lane.trial(PROBE) {
            Trial::None => return Ok(self.patience),
            Trial::Now => return Ok(PROBE.min(self.patience / 2)),
            Trial::Later => {}
        }
        // relaxed: a figure.
        self.late.fetch_add(1, Ordering::Relaxed);
        let why = "the NBD server did not answer before, and is tried once a second";
        Err(DiskError::Backing(io::Error::new(io::ErrorKind::TimedOut, why)))
    }

    fn too_late(&self, lane: &Lane, patience: Duration, why: &str) -> DiskError {
        // The next request is tried at once, unless this one was such a trial already.
        lane.doubt(if patience < self.patience { PROBE } else { Duration::ZERO });
        // relaxed: a figure.
        self.late.fetch_add(1, Ordering::Relaxed);
        let why = format!("the NBD server was tried for {} s: {why}", patience.as_secs());
        DiskError::Backing(io::Error::new(io::ErrorKind::TimedOut, why))
    }

    /// A connection of a lane, which is made if there is none.
    fn connection(
        &self,
        lane: &Lane,
        until: Instant,
        patience: Duration,
    ) -> Result<Arc<Connection>, DiskError> {
        let make = |last: Option<&Connection>| self.try_to_make(last, until);
        let remade = || {
            // relaxed: a figure.
            self.reconnects.fetch_add(1, Ordering::Relaxed);
        };
        lane.connection(until, make, remade).map_err(|why| self.too_late(lane, patience, &why))
    }

    fn try_to_make(
        &self,
        last: Option<&Connection>,
        until: Instant,
    ) -> io::Result<Arc<Connection>> {
        if last.is_some_and(|last| !last.is_over(until)) {
            let why = "it has not closed the last connection, and may be at work on it";
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        }
        let connection = Connection::open(&self.address, until, self.patience)?;
        if connection.export == self.export {
            return Ok(connection);
        }
        connection.close(until);
        let why = "the NBD server has another disk of that name now: its size or what it can do \
                   has changed";
        Err(io::Error::new(io::ErrorKind::InvalidData, why))
    }
}

/// An error of the server. That it has no room or no memory is told as such.
fn refusal(number: u32) -> DiskError {
    match number {
        EPERM => DiskError::ReadOnly,
        ENOSPC => DiskError::NoSpace,
        ENOMEM => DiskError::NoMemory,
        number => DiskError::Backing(io::Error::from_raw_os_error(
            i32::try_from(number).unwrap_or(i32::MAX),
        )),
    }
}

impl fmt::Debug for NbdDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("NbdDisk");
        shown.field("address", &self.shared.address).field("size_bytes", &self.size_bytes());
        shown.field("report", &self.report()).finish()
    }
}
