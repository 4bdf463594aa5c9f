//! The writer: what the one strand has that writes pages to the disk.
//!
//! ```text
//!   begin   pages are picked and copied              uses the heap
//!   write   sums, one write, a wait for the disk     does not: without userfaultfd, a process may
//!                                                    fork meanwhile
//!   end     slots name blocks, and memory is freed   uses the heap
//! ```
//!
//! A write counts when the disk has the bytes. So what fails is known while the page is in memory,
//! and stays there. No more than a batch waits in the cache of files.
//!
//! Invariant: the file is in the strand's own table of descriptors, so the program cannot close it,
//! and no forked child has it. Lock: none.

use super::windows::offset;
use super::written::BATCH;
use crate::floor::call::call;
use crate::kernel::nameless;
use crate::places::PAGE;
use disk::Seal;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How soon a disk is tried again that has refused something.
const PATIENCE: Duration = Duration::from_secs(1);

/// The pages of a batch, and their sums.
#[derive(Debug)]
pub(super) struct Pages {
    pub(super) bytes: Box<[u8]>,
    /// Of those that could be read.
    pub(super) sums: [Option<u32>; BATCH],
    pub(super) slots: [u32; BATCH],
    pub(super) count: usize,
}

impl Pages {
    pub(super) fn new() -> Pages {
        let bytes = vec![0; BATCH * PAGE].into_boxed_slice();
        Pages { bytes, sums: [None; BATCH], slots: [0; BATCH], count: 0 }
    }

    /// The bytes of a page.
    pub(super) fn page(&mut self, at: usize) -> &mut [u8] {
        &mut self.bytes[at * PAGE..][..PAGE]
    }
}

/// What writes.
#[derive(Debug)]
pub(crate) struct Writer {
    directory: PathBuf,
    pub(super) file: Option<File>,
    /// The batch that is written.
    pub(super) pages: Option<Pages>,
    /// The first block of the batch.
    pub(super) first: u32,
    pub(super) done: io::Result<()>,
    /// That of the store.
    pub(super) seal: Option<Arc<Seal>>,
    refused: Option<Instant>,
    /// The last error, and the pages that were refused since it was asked for.
    error: i32,
    failed: u64,
}

impl Writer {
    /// A writer of files in a directory.
    pub(crate) fn new(directory: PathBuf) -> Writer {
        Writer {
            directory,
            file: None,
            pages: None,
            first: 0,
            done: Ok(()),
            seal: None,
            refused: None,
            error: 0,
            failed: 0,
        }
    }

    /// Whether the disk has refused something a moment ago.
    pub(crate) fn waits(&self) -> bool {
        self.refused.is_some_and(|at| at.elapsed() < PATIENCE)
    }

    /// Pages that were refused since this was asked, and the system's number for the last reason.
    pub(crate) fn failed(&mut self) -> (u64, i32) {
        (std::mem::take(&mut self.failed), self.error)
    }

    /// A file for a window.
    pub(super) fn open(&mut self) -> Option<&File> {
        match nameless::create(&self.directory) {
            Ok(file) => Some(self.file.insert(file)),
            Err(error) => {
                self.refuse(0, &error);
                None
            }
        }
    }

    pub(super) fn refuse(&mut self, pages: u64, error: &io::Error) {
        self.refused = Some(Instant::now());
        self.error = error.raw_os_error().unwrap_or(libc::EIO);
        // Without a file it is not known how many pages there would be.
        self.failed += pages.max(1);
    }

    /// Writes the batch, and waits until the disk has it. Uses no heap.
    pub(crate) fn write(&mut self) {
        let (Some(file), Some(seal)) = (&self.file, &self.seal) else { return };
        let Some(pages) = &mut self.pages else { return };
        for at in 0..pages.count {
            let place = [u64::from(self.first) + at as u64, pages.slots[at].into()];
            let sum = seal.sum(place, pages.page(at));
            pages.sums[at] = pages.sums[at].map(|_| sum);
        }
        let bytes = &pages.bytes[..pages.count * PAGE];
        let at = offset(self.first) as u64;
        let written = file.write_all_at(bytes, at);
        self.done = written.and_then(|()| settle(file, at, bytes.len()));
    }
}

/// Waits until the disk has a range of a file.
fn settle(file: &File, at: u64, len: usize) -> io::Result<()> {
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    let arguments = [file.as_raw_fd() as usize, at as usize, len, flags as usize, 0, 0];
    // SAFETY: it changes no byte of memory.
    match unsafe { call(libc::SYS_sync_file_range, arguments) } {
        0.. => Ok(()),
        answer => match -answer as i32 {
            // The file system has no such call.
            libc::ENOSYS | libc::EINVAL | libc::EOPNOTSUPP | libc::ESPIPE => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        },
    }
}
