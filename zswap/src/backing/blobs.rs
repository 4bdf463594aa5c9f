//! The backing disk: places for blobs, their checksums, and the calls to the disk.
//!
//! ```text
//!   | window 0 | window 1            | window 2 ...      32 KiB each: a blob lies within one
//!     header     blob blob .. blob                       sectors of 512 bytes; the rest of a
//!                                                        blob's last sector is unused
//! ```
//!
//! A page is compressed once. Its blob goes to the disk as it is, in about a third of the page's
//! bytes, and is decompressed when it comes back. Blobs are packed in the order in which they
//! leave, so that a batch is one request or a few. Only memory says where they are. The content of
//! a file therefore means nothing to the next process, and its header says so.
//!
//! Invariants
//! - I1 a sector that is in use belongs to one entry on the disk, or to a page that is being
//!   written.
//! - I2 a window's version changes when some of its sectors are taken. It changes again after they
//!   were written and before an entry names them. A thread reads the entry and the version under
//!   the cell's lock, and then the disk. If it afterwards finds both unchanged, it has read the
//!   bytes of the entry, and no bytes of the sectors' next use.
//! - I3 no sector is used again that a write may still change, although nobody waits for it
//!   ([`Disk::may_still_change`]). Such a write would bring the bytes of an earlier blob.
//! - I4 a blob that comes back is compared with a checksum that is kept in memory. The checksum is
//!   keyed and bound to the sector, so a process that can write to the disk can only guess it. The
//!   key is nowhere on the disk, unlike the epoch.
//!
//! Locks: none is held while the disk is called.

use std::hash::{BuildHasher, Hasher};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use disk::{Disk, DiskError, FileDisk, Seal};
use host::Table;
use host::sync::atomic::{AtomicU32, Ordering};
use zsmalloc::Pool;

use super::header::{self, Found};
use super::place::{OnDisk, SECTOR, SECTOR_BITS, SECTORS_MAX, Source, WINDOW, WINDOW_SECTORS};
use super::sectors::{Next, Sectors};
use super::windows::Windows;
use crate::terms::ZswapError;

/// Windows of the smallest disk: the header's, and one for blobs.
const WINDOWS_MIN: u64 = 2;
/// The most windows of a disk that are used. What lies behind them is not.
const WINDOWS_MAX: u64 = (1 << SECTOR_BITS) / WINDOW_SECTORS as u64; // 256 GiB

/// See the module documentation.
pub(crate) struct Backing {
    disk: Arc<dyn Disk>,
    /// The file that the disk is read from, if it is a file. A signal handler may read a file.
    file: Option<FileDisk>,
    epoch: u64,
    seal: Seal,
    found: Found,
    sectors: Sectors,
    /// The checksum of the blob that begins at a sector.
    sums: Table<AtomicU32>,
    windows: Windows,
}

/// Sectors that belong to no blob and lie between two blobs that are written together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bridge {
    sector: u32,
    pub(crate) sectors: u32,
}

impl Backing {
    /// Takes a disk in use. Its content is overwritten if it is a cache's, or if it is blank.
    pub(crate) fn open(disk: Arc<dyn Disk>, pool: &Pool) -> Result<Backing, ZswapError> {
        if disk.read_only() {
            return Err(ZswapError::BackingReadOnly);
        }
        let bytes = disk.size_bytes();
        let windows = (bytes / WINDOW as u64).min(WINDOWS_MAX);
        if windows < WINDOWS_MIN {
            return Err(ZswapError::BackingTooSmall { bytes });
        }
        let epoch = random();
        let found = header::take(&*disk, epoch)?;
        let count = windows as usize;
        Ok(Backing {
            sectors: Sectors::new(pool.table(count)?, pool.table(count)?),
            sums: pool.table(count * WINDOW_SECTORS as usize)?,
            windows: Windows::new(pool.table(count)?),
            file: disk.file(),
            disk,
            epoch,
            seal: Seal::random(),
            found,
        })
    }

    /// What the disk held when it was taken in use.
    pub(crate) fn found(&self) -> Found {
        self.found
    }

    /// Claims sectors for a blob: the next ones that are free. Only one thread at a time calls
    /// this.
    pub(crate) fn claim(&self, next: &mut Next, len: usize) -> Option<OnDisk> {
        let sector = self.sectors.claim(next, len.div_ceil(SECTOR) as u32)?;
        self.windows.changed(sector / WINDOW_SECTORS);
        Some(OnDisk { sector, len: len as u16 })
    }

    /// Claims the sectors between a blob that ends at `end` and one at `next`. It does so only if
    /// they are few, are the rest of a window, and are free. Writing over them makes one run of
    /// two. Only the thread that claims sectors calls this, and it gives them back.
    pub(crate) fn bridge(&self, end: u32, next: u32) -> Option<Bridge> {
        let sectors = next.wrapping_sub(end);
        let bridged = sectors == 0
            || sectors < SECTORS_MAX
                && next.is_multiple_of(WINDOW_SECTORS)
                && self.sectors.claim_these(end, sectors);
        bridged.then_some(Bridge { sector: end, sectors })
    }

    /// Gives a bridge's sectors back.
    pub(crate) fn free_bridge(&self, bridge: Bridge) {
        if bridge.sectors > 0 {
            self.sectors.free(bridge.sector, bridge.sectors);
        }
    }

    /// Notes the checksum of a blob whose sectors were claimed.
    pub(crate) fn note(&self, at: OnDisk, blob: &[u8]) {
        let index = at.sector as usize;
        self.sums.touch(index..index + 1);
        // relaxed: published by the lock of the cell that will name the sectors.
        self.sums[index].store(self.checksum(at, blob), Ordering::Relaxed);
    }

    /// Writes claimed sectors, from `sector` on.
    pub(crate) fn write(&self, sector: u32, bytes: &[u8]) -> Result<(), DiskError> {
        let written = survived(|| self.disk.write(offset_of(sector), bytes));
        self.written(sector, bytes.len());
        written
    }

    /// Notes that a caller that used the disk directly has written claimed sectors, or has failed
    /// to.
    pub(crate) fn written(&self, sector: u32, len: usize) {
        let changes = || self.disk.may_still_change(offset_of(sector), len as u64);
        // A disk that panics here has not said that nothing changes.
        if catch_unwind(AssertUnwindSafe(changes)).unwrap_or(true) {
            self.sectors.taint(sector, (len / SECTOR) as u32);
        }
        let last = sector + (len / SECTOR) as u32 - 1;
        for window in sector / WINDOW_SECTORS..=last / WINDOW_SECTORS {
            self.windows.changed(window);
        }
    }

    /// The disk, for writes that are under way at the same time.
    pub(crate) fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// Gives the sectors of a blob back.
    pub(crate) fn free(&self, at: OnDisk) {
        self.sectors.free(at.sector, at.sectors());
    }

    /// Sectors that are not used again (I3).
    pub(crate) fn quarantined(&self) -> u64 {
        self.sectors.quarantined()
    }

    /// The same in bytes.
    pub(crate) fn quarantined_bytes(&self) -> u64 {
        self.quarantined() * SECTOR as u64
    }

    /// The version of the window that a blob lies in. The caller has locked the cell that names the
    /// blob.
    pub(crate) fn version(&self, at: OnDisk) -> u32 {
        self.windows.version(at.window())
    }

    /// Reads a blob, from a window that was read ahead or from the disk. The bytes are right if the
    /// entry and the version are unchanged afterwards (I2).
    pub(crate) fn read(
        &self,
        at: OnDisk,
        version: u32,
        blob: &mut [u8],
    ) -> Result<Source, DiskError> {
        self.windows.read(|offset, bytes| self.read_at(offset, bytes), at, version, blob)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<(), DiskError> {
        match &self.file {
            Some(file) => file.read(offset, bytes),
            None => survived(|| self.disk.read(offset, bytes)),
        }
    }

    /// Whether reading runs only code of this repository and one system call.
    pub(crate) fn reads_a_file(&self) -> bool {
        self.file.is_some()
    }

    /// Whether a blob has the checksum that was noted. Its cell is locked.
    pub(crate) fn is_noted(&self, at: OnDisk, blob: &[u8]) -> bool {
        // relaxed: as in `note`.
        let noted = self.sums[at.sector as usize].load(Ordering::Relaxed);
        noted == self.checksum(at, blob)
    }

    /// Allocates what reading needs, so that reading allocates nothing.
    pub(crate) fn prepare(&self) {
        self.windows.prepare();
    }

    /// True while the blob's sectors are in use.
    pub(crate) fn is_claimed(&self, at: OnDisk) -> bool {
        self.sectors.is_claimed(at.sector, at.sectors())
    }

    /// Sectors in use without those that are quarantined, and all sectors. Neither counts the
    /// header's.
    pub(crate) fn sectors(&self) -> (u64, u64) {
        self.sectors.used()
    }

    /// Sectors that cannot be taken, counted from the bitmap for a check.
    pub(crate) fn recount(&self) -> u64 {
        self.sectors.recount()
    }

    /// Quarantines sectors that are in use, for a test of a recount.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn quarantine(&self, count: u32) {
        self.sectors.quarantine(count);
    }

    /// Counts a sector too many, for a test of a recount.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn miscount(&self) {
        self.sectors.miscount();
    }

    /// Bytes held.
    pub(crate) fn held_bytes(&self) -> u64 {
        let sums = self.sums.held_bytes() + self.sums.heap_bytes();
        self.sectors.held_bytes() + sums + self.windows.held_bytes()
    }

    fn checksum(&self, at: OnDisk, blob: &[u8]) -> u32 {
        self.seal.sum([at.sector.into(), at.len.into()], blob)
    }
}

impl Drop for Backing {
    /// Says in the header that the disk is no longer in use.
    fn drop(&mut self) {
        // If this fails, the disk is found as after a crash, which loses nothing.
        let _ = header::leave(&*self.disk, self.epoch);
    }
}

/// Where a sector starts.
fn offset_of(sector: u32) -> u64 {
    u64::from(sector) * SECTOR as u64
}

/// Treats a disk that panics as one that failed. A thread that writes has pages in hand, and must
/// tell the order what became of them. If a thread that reads ended here, others might wait for its
/// page.
fn survived(request: impl FnOnce() -> Result<(), DiskError>) -> Result<(), DiskError> {
    let panicked = |_| Err(DiskError::Backing(io::Error::other("the disk panicked")));
    catch_unwind(AssertUnwindSafe(request)).unwrap_or_else(panicked)
}

/// A random number, so that the next process has another one.
fn random() -> u64 {
    std::collections::hash_map::RandomState::new().build_hasher().finish() | 1
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use disk::RamDisk;
    use zsmalloc::{Memory, MemoryConfig, PoolConfig};

    fn backing() -> (Backing, Arc<RamDisk>) {
        let config = MemoryConfig {
            arena_frames: 512,
            entries_max: 512,
            expected_bytes: 1 << 20,
            worker: false,
        };
        let memory = Memory::new(config).expect("address space");
        let pool = Pool::new(memory, PoolConfig::default()).expect("a pool");
        let disk = Arc::new(RamDisk::new(4 * WINDOW as u64).expect("memory"));
        let backing = Backing::open(Arc::clone(&disk) as Arc<dyn Disk>, &pool);
        (backing.expect("it is blank"), disk)
    }

    fn blob() -> Vec<u8> {
        (0..1237u32).map(|at| (at * 7 / 4) as u8).collect()
    }

    /// The sum was once a hash by a number that is in the disk's header. A process that could write
    /// to the disk could then forge a blob with the right sum. It chose any first word, and a
    /// second one that led to the state that the true words led to.
    #[test]
    fn a_blob_that_is_forged_with_what_the_disk_says_is_not_the_one_that_was_noted() {
        let (backing, disk) = backing();
        let (at, blob) = (OnDisk { sector: 70, len: 1237 }, blob());
        backing.note(at, &blob);
        assert!(backing.is_noted(at, &blob), "the blob itself");
        let mut epoch = [0; 8];
        disk.read(16, &mut epoch).expect("in range");
        let mix = |state: u64, word: u64| {
            (state ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
        };
        let seed = u64::from_le_bytes(epoch) ^ u64::from(at.sector);
        let word = |bytes: &[u8], at: usize| {
            u64::from_le_bytes(std::array::from_fn(|byte| bytes[at * 8 + byte]))
        };
        let mut forged = blob.clone();
        forged[..8].copy_from_slice(b"elsewise");
        let differ = mix(seed, word(&blob, 0)) ^ mix(seed, word(&forged, 0));
        let second = word(&blob, 1) ^ differ;
        forged[8..16].copy_from_slice(&second.to_le_bytes());
        assert!(!backing.is_noted(at, &forged), "a blob that was never written");
    }

    #[test]
    fn a_blob_of_another_sector_is_not_the_one_that_was_noted() {
        let (backing, _disk) = backing();
        let [here, there] = [70, 80].map(|sector| OnDisk { sector, len: 1237 });
        backing.note(here, &blob());
        backing.sums.touch(there.sector as usize..there.sector as usize + 1);
        // relaxed: one thread.
        let sum = backing.sums[here.sector as usize].load(Ordering::Relaxed);
        // relaxed: as above.
        backing.sums[there.sector as usize].store(sum, Ordering::Relaxed);
        assert!(!backing.is_noted(there, &blob()), "the sum is bound to its sector");
    }
}
