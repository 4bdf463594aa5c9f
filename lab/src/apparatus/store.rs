//! Stores of pages as the studies compare them: our zram and the kernel's, driven and counted
//! alike.
//!
//! Invariant: a counter has one meaning, whichever store keeps it. All frames of the kernel's
//! zspages are resident. What the kernel does not count is left out, never guessed.

use super::ours::{self, NAME};
use crate::ground::LabError;
use crate::kernel::{Aligned, KernelZram};
use crate::pages::PAGE_SIZE;
use crate::rows::Row;
use disk::Disk;
use std::time::{Duration, Instant};
use zram::Zram;

/// How long a pool may take to come to rest, and how often it is asked.
const SETTLE_MAX: Duration = Duration::from_secs(60);
const SETTLE_LOOK: Duration = Duration::from_millis(20);

/// Something that holds pages and can be counted.
pub(crate) trait Store {
    fn write(&mut self, slot: usize, page: &[u8]) -> Result<(), LabError>;
    fn read(&mut self, slot: usize) -> Result<&[u8], LabError>;
    /// Forgets `pages` pages from page `first` on.
    fn discard(&mut self, first: usize, pages: usize) -> Result<(), LabError>;
    /// Waits until the store has done what it does by itself when it is left alone.
    fn settle(&mut self) -> Result<(), LabError>;
    fn compact(&mut self) -> Result<(), LabError>;
    /// Whether the system has all the memory back that compaction freed.
    fn is_returned(&self) -> bool {
        true
    }
    /// The counters, by the names of our `stat`; what the store cannot tell is left out.
    fn count(&self) -> Result<Row, LabError>;
}

/// A zram of ours.
pub(crate) struct Ours {
    pub(crate) disk: Zram,
    page: Vec<u8>,
}

impl Ours {
    pub(crate) fn new(disk: Zram) -> Ours {
        Ours { disk, page: vec![0; PAGE_SIZE] }
    }
}

impl Store for Ours {
    fn write(&mut self, slot: usize, page: &[u8]) -> Result<(), LabError> {
        ours::write(&self.disk, slot, page)
    }

    fn read(&mut self, slot: usize) -> Result<&[u8], LabError> {
        ours::read(&self.disk, slot, &mut self.page)?;
        Ok(&self.page)
    }

    fn discard(&mut self, first: usize, pages: usize) -> Result<(), LabError> {
        let (offset, length) = ((first * PAGE_SIZE) as u64, (pages * PAGE_SIZE) as u64);
        self.disk
            .discard(offset, length)
            .map_err(|error| LabError::store(format!("{NAME}: discard"))(error))
    }

    fn settle(&mut self) -> Result<(), LabError> {
        let deadline = Instant::now() + SETTLE_MAX;
        while !self.disk.is_settled() {
            if Instant::now() > deadline {
                return Err(LabError::Wrong("the pool never came to rest".into()));
            }
            std::thread::sleep(SETTLE_LOOK);
        }
        Ok(())
    }

    fn compact(&mut self) -> Result<(), LabError> {
        self.disk.compact();
        Ok(())
    }

    /// Without what threads that write meanwhile have freed since.
    fn is_returned(&self) -> bool {
        const KEPT: u64 = 1 << 20;
        self.disk.stat().free_bytes_held <= KEPT
    }

    fn count(&self) -> Result<Row, LabError> {
        let stat = self.disk.stat();
        let mut row = Row::default();
        row.set("orig_data_size", stat.orig_data_size)
            .set("compr_data_size", stat.compr_data_size)
            .set("mem_used_total", stat.mem_used_total)
            .set("mem_used_max", stat.mem_used_max)
            .set("pages_compacted", stat.pages_compacted)
            .set("compaction_yields", stat.compaction_yields)
            .set("object_bytes_resident", stat.object_bytes_resident)
            .set("same_pages", stat.same_pages)
            .set("huge_pages", stat.huge_pages)
            .set("metadata_bytes", stat.metadata_bytes())
            .set("free_bytes_held", stat.free_bytes_held)
            .set("accounted_bytes", stat.accounted_bytes())
            .set("resident_bytes", stat.resident_bytes);
        Ok(row)
    }
}

/// The kernel's, set up already.
pub(crate) struct Kernel<'a> {
    peer: &'a KernelZram,
    slots: usize,
    page: Aligned,
}

impl<'a> Kernel<'a> {
    /// A device set up with so many slots.
    pub(crate) fn new(peer: &'a KernelZram, slots: usize) -> Kernel<'a> {
        Kernel { peer, slots, page: Aligned::new(PAGE_SIZE) }
    }
}

impl Store for Kernel<'_> {
    fn write(&mut self, slot: usize, page: &[u8]) -> Result<(), LabError> {
        self.page.bytes().copy_from_slice(page);
        self.peer.write(slot, &mut self.page)
    }

    fn read(&mut self, slot: usize) -> Result<&[u8], LabError> {
        self.peer.read(slot, &mut self.page)?;
        Ok(self.page.bytes())
    }

    fn discard(&mut self, first: usize, pages: usize) -> Result<(), LabError> {
        self.peer.discard(first, pages)
    }

    /// The kernel compacts under memory pressure only.
    fn settle(&mut self) -> Result<(), LabError> {
        Ok(())
    }

    fn compact(&mut self) -> Result<(), LabError> {
        self.peer.compact()
    }

    /// Every frame of the kernel's zspages is resident, and it holds nothing else back.
    fn count(&self) -> Result<Row, LabError> {
        let stat = self.peer.mm_stat()?;
        let metadata = self.peer.metadata_bytes(self.slots);
        let mut row = Row::default();
        row.set("orig_data_size", stat.orig_data_size)
            .set("compr_data_size", stat.compr_data_size)
            .set("mem_used_total", stat.mem_used_total)
            .set("mem_used_max", stat.mem_used_max)
            .set("pages_compacted", stat.pages_compacted)
            .set("object_bytes_resident", stat.mem_used_total)
            .set("same_pages", stat.same_pages)
            .set("huge_pages", stat.huge_pages)
            .set("metadata_bytes", metadata)
            .set("accounted_bytes", metadata.map(|bytes| bytes + stat.mem_used_total));
        Ok(row)
    }
}
