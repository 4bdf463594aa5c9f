//! Reading blobs back: alone, or together with the rest of their window.
//!
//! ```text
//!   load of window 7, then of 7 or 8  -> the whole window is read: what left together comes
//!                                        back together
//!   load of window 7, then of 3       -> the blob alone
//!   kept: the 16 windows read last; one is good while the window's version is unchanged
//! ```
//!
//! Invariant: a window is kept with a version, and its bytes were read after that version was.
//! Invariant I2 of `blobs` is built on this.
//!
//! Lock: one, a leaf. It is held while bytes are copied from and to the kept windows, and never
//! while the disk is called.

use disk::DiskError;
use host::sync::atomic::{AtomicU32, Ordering};
use host::{Rank, RankedMutex, Table};

use super::place::{OnDisk, SECTOR, Source, WINDOW, WINDOW_SECTORS};

/// Windows kept.
const KEPT: usize = if cfg!(loom) { 1 } else { 16 }; // 512 KiB
/// A number that no window has.
const NONE: u32 = u32::MAX;

/// The windows of a disk.
pub(super) struct Windows {
    versions: Table<AtomicU32>,
    kept: RankedMutex<Vec<Kept>>,
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
        let kept = RankedMutex::new(Rank::Leaf, Vec::new());
        Windows { versions, kept, last: AtomicU32::new(NONE) }
    }

    /// Sectors of the window were taken, or written.
    pub(super) fn changed(&self, window: u32) {
        let index = window as usize;
        self.versions.touch(index..index + 1);
        // Release pairs with the Acquire in `version`, so that bytes kept under this version were
        // read after the change. An entry that names the sectors is published later, by its cell's
        // lock.
        self.versions[index].fetch_add(1, Ordering::Release);
    }

    pub(super) fn version(&self, window: u32) -> u32 {
        // Acquire pairs with the Release in `changed`, so that bytes read after this are those of
        // the version, or later ones.
        self.versions[window as usize].load(Ordering::Acquire)
    }

    /// Allocates the buffers, as far as there is memory for them.
    pub(super) fn prepare(&self) {
        let mut kept = self.kept.lock();
        while kept.len() < KEPT && kept.try_reserve(1).is_ok() {
            let mut bytes = Vec::new();
            if bytes.try_reserve_exact(WINDOW).is_err() {
                return;
            }
            bytes.resize(WINDOW, 0);
            kept.push(Kept { window: NONE, version: 0, bytes: bytes.into_boxed_slice() });
        }
    }

    /// Reads a blob. `read` fills a buffer from an offset of the disk.
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
        // There is room, because the buffer was one of those kept.
        self.kept.lock().push(Kept { window, version, bytes: buffer });
        read
    }

    /// Copies a blob out of its window, if that is kept and has not changed since.
    fn copy_kept(&self, window: u32, version: u32, at: OnDisk, blob: &mut [u8]) -> bool {
        let kept = self.kept.lock();
        let found = kept.iter().find(|it| it.window == window && it.version == version);
        found.inspect(|it| blob.copy_from_slice(part(&it.bytes, at))).is_some()
    }

    /// The buffer whose window is the oldest.
    fn take_oldest(&self) -> Option<Box<[u8]>> {
        let mut kept = self.kept.lock();
        if kept.is_empty() { None } else { Some(kept.remove(0).bytes) }
    }

    pub(super) fn held_bytes(&self) -> u64 {
        let kept = self.kept.lock().len() * (WINDOW + size_of::<Kept>());
        self.versions.held_bytes() + self.versions.heap_bytes() + kept as u64
    }
}

/// A blob's part of its window.
fn part(window: &[u8], at: OnDisk) -> &[u8] {
    let start = (at.sector % WINDOW_SECTORS) as usize * SECTOR;
    &window[start..start + usize::from(at.len)]
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Otherwise a blob that was written over would read as before.
    #[test]
    fn a_kept_window_is_good_for_its_version_alone() {
        let windows = Windows::new(Table::reserve(4).expect("address space"));
        windows.prepare();
        let at = OnDisk { sector: WINDOW_SECTORS, len: 512 };
        let read = |version, byte| {
            let mut blob = [0; 512];
            let fill = |_, buffer: &mut [u8]| {
                buffer.fill(byte);
                Ok(())
            };
            let source = windows.read(fill, at, version, &mut blob).expect("it is filled");
            (source, blob[0])
        };
        assert_eq!(read(0, 1), (Source::Disk, 1), "the blob alone");
        assert_eq!(read(0, 2), (Source::Disk, 2), "the whole window");
        assert_eq!(read(0, 3), (Source::ReadAhead, 2), "as it was kept");
        assert_eq!(read(1, 4), (Source::Disk, 4), "it has changed");
    }
}
