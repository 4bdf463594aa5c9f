//! A wrapper that refuses to change what it wraps.

use crate::contract::{Allocation, Disk, DiskError, Extent, FileDisk};

/// `D` as a read-only disk. A program that holds `D` by other means can still change it.
#[derive(Debug)]
pub struct ReadOnly<D> {
    inner: D,
}

impl<D: Disk> ReadOnly<D> {
    /// Wraps `inner`.
    pub fn new(inner: D) -> Self {
        Self { inner }
    }
}

impl<D: Disk> Disk for ReadOnly<D> {
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn block_size(&self) -> u32 {
        self.inner.block_size()
    }

    fn read_only(&self) -> bool {
        true
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DiskError> {
        self.inner.read(offset, buf)
    }

    fn write(&self, _offset: u64, _data: &[u8]) -> Result<(), DiskError> {
        Err(DiskError::ReadOnly)
    }

    fn discard(&self, _offset: u64, _len: u64) -> Result<(), DiskError> {
        Err(DiskError::ReadOnly)
    }

    fn write_zeroes(&self, _offset: u64, _len: u64, _keep: Allocation) -> Result<(), DiskError> {
        Err(DiskError::ReadOnly)
    }

    fn prefetch(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.inner.prefetch(offset, len)
    }

    fn would_wait(&self, offset: u64, len: u64) -> bool {
        self.inner.would_wait(offset, len)
    }

    fn may_still_change(&self, offset: u64, len: u64) -> bool {
        self.inner.may_still_change(offset, len)
    }

    fn file(&self) -> Option<FileDisk> {
        self.inner.file()
    }

    fn flush(&self) -> Result<(), DiskError> {
        self.inner.flush()
    }

    fn next_extent(&self, offset: u64, len: u64) -> Result<Extent, DiskError> {
        self.inner.next_extent(offset, len)
    }
}
