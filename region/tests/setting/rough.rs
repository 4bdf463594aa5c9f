//! A disk that fails and stalls as it is told.

use disk::{Allocation, Disk, DiskError, Extent, FileDisk, RamDisk};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The troubles of a disk, until they are changed.
#[derive(Default)]
pub(crate) struct Trouble {
    /// One in this many requests fails; 0 = none.
    pub(crate) fails_every: AtomicU64,
    /// All writes fail.
    pub(crate) refuses: AtomicBool,
    /// All reads fail.
    pub(crate) unreadable: AtomicBool,
    /// No request returns.
    pub(crate) stalls: AtomicBool,
    pub(crate) reads: AtomicU64,
    pub(crate) writes: AtomicU64,
    /// An action that each read runs as well.
    pub(crate) on_read: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// The file that the disk says it is.
    pub(crate) file: OnceLock<FileDisk>,
    requests: AtomicU64,
}

/// See the module documentation.
pub(crate) struct RoughDisk {
    inner: RamDisk,
    trouble: Arc<Trouble>,
}

impl RoughDisk {
    pub(crate) fn new(bytes: u64) -> (Arc<RoughDisk>, Arc<Trouble>) {
        let trouble = Arc::new(Trouble::default());
        let inner = RamDisk::new(bytes).expect("a disk");
        (Arc::new(RoughDisk { inner, trouble: Arc::clone(&trouble) }), trouble)
    }

    fn pass(&self, always: &AtomicBool) -> Result<(), DiskError> {
        let trouble = &self.trouble;
        while trouble.stalls.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let number = trouble.requests.fetch_add(1, Ordering::SeqCst);
        let every = trouble.fails_every.load(Ordering::SeqCst);
        let turn = every != 0 && number.is_multiple_of(every);
        if turn || always.load(Ordering::SeqCst) {
            // The error has no message, because that would be allocated.
            return Err(DiskError::Backing(std::io::ErrorKind::Other.into()));
        }
        Ok(())
    }

    fn pass_write(&self) -> Result<(), DiskError> {
        self.trouble.writes.fetch_add(1, Ordering::SeqCst);
        self.pass(&self.trouble.refuses)
    }
}

impl Disk for RoughDisk {
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn read_only(&self) -> bool {
        false
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DiskError> {
        self.trouble.reads.fetch_add(1, Ordering::SeqCst);
        if let Some(on_read) = self.trouble.on_read.get() {
            on_read();
        }
        self.pass(&self.trouble.unreadable)?;
        self.inner.read(offset, buf)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DiskError> {
        self.pass_write()?;
        match self.trouble.file.get() {
            Some(file) => file.write(offset, data),
            None => self.inner.write(offset, data),
        }
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.pass_write()?;
        self.inner.discard(offset, len)
    }

    fn write_zeroes(&self, offset: u64, len: u64, keep: Allocation) -> Result<(), DiskError> {
        self.pass_write()?;
        self.inner.write_zeroes(offset, len, keep)
    }

    fn file(&self) -> Option<FileDisk> {
        self.trouble.file.get().cloned()
    }

    fn flush(&self) -> Result<(), DiskError> {
        Ok(())
    }

    fn next_extent(&self, offset: u64, len: u64) -> Result<Extent, DiskError> {
        self.inner.next_extent(offset, len)
    }
}
