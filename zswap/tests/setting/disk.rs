//! A disk that misbehaves by a schedule, and counts what it did.
//!
//! ```text
//!   requests   0 .. 399    400 .. 799   800 .. 1199   1200 .. 1599   1600 .. 1999   2000 ..
//!              well        writes fail  reads fail    full           slow           well ...
//! ```
//!
//! In a phase that fails, every third request fails. A full disk fails every write.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use disk::{Allocation, Disk, DiskError, Extent, RamDisk};

const PHASE: u64 = 400;
/// A stall, one request in sixteen.
const STALL: Duration = Duration::from_micros(300);

#[derive(Clone, Copy, PartialEq)]
enum Phase {
    Well,
    WritesFail,
    ReadsFail,
    Full,
    Slow,
}

pub(crate) struct MoodyDisk {
    inner: RamDisk,
    requests: AtomicU64,
    well: AtomicBool,
    pub(crate) failed_reads: AtomicU64,
    pub(crate) failed_writes: AtomicU64,
}

impl MoodyDisk {
    pub(crate) fn new(bytes: u64) -> MoodyDisk {
        MoodyDisk {
            inner: RamDisk::new(bytes).expect("memory"),
            requests: AtomicU64::new(0),
            well: AtomicBool::new(true),
            failed_reads: AtomicU64::new(0),
            failed_writes: AtomicU64::new(0),
        }
    }

    /// Says whether the disk works well for good, or follows its schedule.
    pub(crate) fn set_well(&self, well: bool) {
        self.well.store(well, Ordering::SeqCst);
    }

    /// The phase of the next request, and its number.
    fn next(&self) -> (Phase, u64) {
        let request = self.requests.fetch_add(1, Ordering::SeqCst);
        if self.well.load(Ordering::SeqCst) {
            return (Phase::Well, request);
        }
        let phases = [Phase::Well, Phase::WritesFail, Phase::ReadsFail, Phase::Full, Phase::Slow];
        let phase = phases[(request / PHASE % 5) as usize];
        if phase == Phase::Slow && request.is_multiple_of(16) {
            std::thread::sleep(STALL);
        }
        (phase, request)
    }
}

impl Disk for MoodyDisk {
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DiskError> {
        let (phase, request) = self.next();
        if phase == Phase::ReadsFail && request.is_multiple_of(3) {
            self.failed_reads.fetch_add(1, Ordering::SeqCst);
            buf.fill(0x5A);
            return Err(DiskError::Backing(std::io::Error::other("scheduled")));
        }
        self.inner.read(offset, buf)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DiskError> {
        let (phase, request) = self.next();
        let error = match phase {
            Phase::WritesFail if request.is_multiple_of(3) => {
                // Some of it was written.
                self.inner.write(offset, &data[..data.len() / 2])?;
                DiskError::Backing(std::io::Error::other("scheduled"))
            }
            Phase::Full => DiskError::NoSpace,
            _ => return self.inner.write(offset, data),
        };
        self.failed_writes.fetch_add(1, Ordering::SeqCst);
        Err(error)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.inner.discard(offset, len)
    }

    fn write_zeroes(&self, offset: u64, len: u64, keep: Allocation) -> Result<(), DiskError> {
        self.inner.write_zeroes(offset, len, keep)
    }

    fn flush(&self) -> Result<(), DiskError> {
        self.inner.flush()
    }

    fn next_extent(&self, offset: u64, len: u64) -> Result<Extent, DiskError> {
        self.inner.next_extent(offset, len)
    }
}
