//! Reading blobs back: alone, or with all of their window.
//!
//! ```text
//!   load of window 7, then of 7 or 8  -> the whole window is read: what left together comes
//!                                        back together
//!   load of window 7, then of 3       -> the blob alone
//!   kept: 16 windows, the oldest goes; good while the window's version is what it was
//! ```
//!
//! Invariant: what is kept of a window was read after the version it is kept by was; see I2 of the
//! backing disk.
//!
//! Lock: one, around copying from and to what is kept, and never while the disk is called.

use std::sync::PoisonError;

use disk::DiskError;
use host::Table;
use host::sync::atomic::{AtomicU32, Ordering};
use host::sync::{Mutex, MutexGuard};

use super::place::{OnDisk, SECTOR, Source, WINDOW, WINDOW_SECTORS};

/// Windows kept.
const KEPT: usize = if cfg!(loom) { 1 } else { 16 }; // 512 KiB
/// No window's number.
const NONE: u32 = u32::MAX;

/// The windows of a disk.
pub(super) struct Windows {
    versions: Table<AtomicU32>,
    kept: Mutex<Vec<Kept>>,
    /// The window of the last load.
    last: AtomicU32,
}

/// The bytes of a window.
struct Kept {
    window: u32,
    version: u32,
    bytes: Box<[u8]>,
}

impl Windows {
    pub(super) fn new(versions: Table<AtomicU32>) -> Windows {
        Windows { versions, kept: Mutex::new(Vec::new()), last: AtomicU32::new(NONE) }
    }

    /// Sectors of the window were taken, or written.
    pub(super) fn changed(&self, window: u32) {
        let index = window as usize;
        self.versions.touch(index..index + 1);
        // Release pairs with the Acquire in `version`; an entry that names the sectors is
        // published later, by its cell's lock.
        self.versions[index].fetch_add(1, Ordering::Release);
    }

    pub(super) fn version(&self, window: u32) -> u32 {
        // Acquire pairs with the Release in `changed`.
        self.versions[window as usize].load(Ordering::Acquire)
    }

    /// Has buffers, as far as there is memory for them.
    pub(super) fn prepare(&self) {
        let mut kept = self.lock();
        while kept.len() < KEPT && kept.try_reserve(1).is_ok() {
            let mut bytes = Vec::new();
            if bytes.try_reserve_exact(WINDOW).is_err() {
                return;
            }
            bytes.resize(WINDOW, 0);
            kept.push(Kept { window: NONE, version: 0, bytes: bytes.into_boxed_slice() });
        }
    }

    /// Reads a blob of a disk that `read` fills buffers from, at an offset.
    pub(super) fn read(
        &self,
        read: impl Fn(u64, &mut [u8]) -> Result<(), DiskError>,
        at: OnDisk,
        version: u32,
        blob: &mut [u8],
    ) -> Result<Source, DiskError> {
        let window = at.window();
        if self.copy_kept(window, version, at, blob) {
            return Ok(Source::ReadAhead);
        }
        // relaxed: a hint.
        let last = self.last.swap(window, Ordering::Relaxed);
        let ahead = last != NONE && window.wrapping_sub(last) <= 1;
        let buffer = if ahead { self.take_oldest() } else { None };
        match buffer {
            Some(buffer) => self.read_window(read, at, version, buffer, blob),
            None => read(u64::from(at.sector) * SECTOR as u64, blob),
        }?;
        Ok(Source::Disk)
    }

    fn read_window(
        &self,
        read: impl Fn(u64, &mut [u8]) -> Result<(), DiskError>,
        at: OnDisk,
        version: u32,
        mut buffer: Box<[u8]>,
        blob: &mut [u8],
    ) -> Result<(), DiskError> {
        let window = at.window();
        let read = read(u64::from(window) * WINDOW as u64, &mut buffer);
        if read.is_ok() {
            blob.copy_from_slice(part(&buffer, at));
        }
        let window = if read.is_ok() { window } else { NONE };
        // There is room: the buffer was one of those kept.
        self.lock().push(Kept { window, version, bytes: buffer });
        read
    }

    /// Copies a blob out of its window, if that is kept and nothing changed in it.
    fn copy_kept(&self, window: u32, version: u32, at: OnDisk, blob: &mut [u8]) -> bool {
        let kept = self.lock();
        let found = kept.iter().find(|it| it.window == window && it.version == version);
        found.inspect(|it| blob.copy_from_slice(part(&it.bytes, at))).is_some()
    }

    /// The buffer whose window is the oldest.
    fn take_oldest(&self) -> Option<Box<[u8]>> {
        let mut kept = self.lock();
        if kept.is_empty() { None } else { Some(kept.remove(0).bytes) }
    }

    pub(super) fn held_bytes(&self) -> u64 {
        let kept = self.lock().len() * (WINDOW + size_of::<Kept>());
        self.versions.held_bytes() + self.versions.heap_bytes() + kept as u64
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Kept>> {
        // Nothing that runs under the lock can panic half-way.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A blob's part of its window.
fn part(window: &[u8], at: OnDisk) -> &[u8] {
    let start = (at.sector % WINDOW_SECTORS) as usize * SECTOR;
    &window[start..start + usize::from(at.len)]
}
