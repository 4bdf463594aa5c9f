//! The figures of a device.
//!
//! ```text
//!   object_bytes_resident + free_bytes_held + metadata + pending + staging = accounted
//!   accounted / compr_data_size - 1                                        = overhead_all_in
//! ```
//!
//! Invariant: every byte that the device and its memory hold is in exactly one term of the first
//! line. If several devices share a memory, each reports the memory's free frames and tables as if
//! it were alone.
//!
//! Lock: none. Each number is exact. Together they are no snapshot while requests run.

use std::fmt;
use std::ops::Range;

use host::PAGE_SIZE;
use zsmalloc::LEAF_CELLS;

use crate::backing::BdStat;
use crate::cells::stored::pages;
use crate::cells::{Ages, SharedStat, Sharing, TroubleStat, UnitStat, Units, kind, read};
use crate::device::Zram;

/// The parts of `metadata_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Metadata {
    /// Cells, the root that names their leaves, words of same-filled pages, times of the last
    /// access, counters, the bits and checksums of blocks of the backing disk, what finds and
    /// counts equal pages, and what is known of units.
    pub slot_table: u64,
    /// Cells of single handles.
    pub handle_table: u64,
    /// Zspage descriptors and size classes.
    pub descriptors: u64,
    /// The tables of frames: zone lists, frame to descriptor, claimed and resident bits.
    pub frame_table: u64,
    /// Buffers of connections.
    pub buffers: u64,
    /// Codec contexts, the dictionary, and tables that were trained.
    pub codec_contexts: u64,
}

impl Metadata {
    /// The sum.
    pub fn total(&self) -> u64 {
        self.slot_table
            + self.handle_table
            + self.descriptors
            + self.frame_table
            + self.buffers
            + self.codec_contexts
    }
}

/// Everything that `stat --json` prints, in bytes unless the name says otherwise.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct ZramStat {
    /// The device's name.
    pub name: String,
    /// The algorithm, with its level if that is not the default.
    pub algorithm: String,
    /// Whether the algorithm shuffles the pages that gain by it.
    pub shuffle: bool,
    /// Chain order.
    pub chain_order: u32,
    /// Size of the disk.
    pub disksize: u64,
    /// 1 if the device can be used.
    pub initstate: u32,
    /// Pages stored, times 4096.
    pub orig_data_size: u64,
    /// Bytes of compressed and raw objects.
    pub compr_data_size: u64,
    /// All frames of zspages.
    pub mem_used_total: u64,
    /// The limit on object bytes; 0 means none.
    pub mem_limit: u64,
    /// The most `mem_used_total` ever was.
    pub mem_used_max: u64,
    /// Same-filled pages.
    pub same_pages: u64,
    /// Pages that are stored once for several, and what that saved. `None` unless the device shares
    /// equal pages.
    pub shared: Option<SharedStat>,
    /// Pages that are stored together with their neighbours. `None` unless the device may have
    /// such.
    pub units: Option<UnitStat>,
    /// Frames freed by compaction.
    pub pages_compacted: u64,
    /// Times that compaction gave the lock of a size class up early, because a thread waited for
    /// it.
    pub compaction_yields: u64,
    /// Pages stored uncompressed.
    pub huge_pages: u64,
    /// Pages ever stored uncompressed.
    pub huge_pages_since: u64,
    /// Touched frames of zspages, less what is pending in them.
    pub object_bytes_resident: u64,
    /// Touched frames that are free.
    pub free_bytes_held: u64,
    /// The parts of the metadata.
    pub metadata: Metadata,
    /// Objects of discarded pages that the memory's worker has yet to free.
    pub pending_bytes: u64,
    /// The system's figure: Rss of the mappings plus counted heap. `None` if it cannot be read.
    pub resident_bytes: Option<u64>,
    /// Page tables of the whole process. `None` if they cannot be read.
    pub page_table_bytes: Option<u64>,
}

impl ZramStat {
    /// Bytes of metadata.
    pub fn metadata_bytes(&self) -> u64 {
        self.metadata.total()
    }

    /// Every byte held.
    pub fn accounted_bytes(&self) -> u64 {
        self.object_bytes_resident
            + self.free_bytes_held
            + self.metadata_bytes()
            + self.pending_bytes
    }

    /// `accounted_bytes / compr_data_size - 1`. `None` if no page takes memory: nothing is stored,
    /// or all of it is same-filled or written back.
    pub fn overhead_all_in(&self) -> Option<f64> {
        let stored = self.compr_data_size;
        (stored > 0).then(|| self.accounted_bytes() as f64 / stored as f64 - 1.0)
    }

    /// Adds what a server of this device holds on the heap: the buffers of its connections, and the
    /// codec state of their threads. Both are resident.
    #[must_use]
    pub fn with_server(mut self, buffers: u64, codec_contexts: u64) -> ZramStat {
        self.metadata.buffers += buffers;
        self.metadata.codec_contexts += codec_contexts;
        let heap = buffers + codec_contexts;
        self.resident_bytes = self.resident_bytes.map(|resident| resident + heap);
        self
    }
}

/// The nine columns of `mm_stat`. `Display` writes the kernel's line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MmStat(
    /// `orig_data_size compr_data_size mem_used_total mem_limit mem_used_max same_pages
    /// pages_compacted huge_pages huge_pages_since`.
    pub [u64; 9],
);

impl fmt::Display for MmStat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns: Vec<String> = self.0.iter().map(|value| format!("{value:>8}")).collect();
        writeln!(f, "{}", columns.join(" "))
    }
}

/// The four columns of `io_stat`. `Display` writes the kernel's line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoStat {
    /// Reads that failed.
    pub failed_reads: u64,
    /// Writes that failed.
    pub failed_writes: u64,
    /// Pages discarded, whether or not they held anything.
    pub notify_free: u64,
}

impl fmt::Display for IoStat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let IoStat { failed_reads, failed_writes, notify_free } = self;
        writeln!(f, "{failed_reads:>8} {failed_writes:>8} 0 {notify_free:>8}")
    }
}

impl Zram {
    /// Everything that `stat --json` prints, except the buffers of a server.
    pub fn stat(&self) -> ZramStat {
        let (pool, memory) = (&self.slots.pool, self.slots.pool.memory());
        let (tally, stats) = (self.counters.tally(), pool.stats());
        let pending_bytes =
            self.counters.pending().bytes + self.aside.bytes() + stats.pending_bytes;
        let metadata = self.metadata(&stats);
        let (root_mapped, _) = self.slots.root_bytes();
        let mapped = memory.mapped_bytes() + root_mapped + self.beside_bytes().0;
        let mut stat = ZramStat {
            name: self.config.name.clone(),
            algorithm: self.config.algorithm.to_string(),
            shuffle: self.config.algorithm.samples_shuffle(),
            chain_order: self.config.chain_order,
            disksize: self.config.disksize,
            initstate: 1,
            orig_data_size: pages(tally) * PAGE_SIZE as u64,
            compr_data_size: self.compr_data_size(),
            mem_used_total: stats.mem_used_total,
            mem_limit: self.settings.hold.limit(),
            mem_used_max: stats.mem_used_max,
            same_pages: tally.counts[kind::SAME],
            shared: self.values.sharing.as_ref().map(Sharing::stat),
            units: self.values.units.as_ref().map(Units::stat),
            pages_compacted: stats.pages_compacted,
            compaction_yields: stats.compaction_yields,
            huge_pages: tally.counts[kind::HUGE],
            huge_pages_since: self.counters.huge_since(),
            // Frames of pending objects are still touched.
            object_bytes_resident: stats.object_bytes_resident.saturating_sub(pending_bytes),
            free_bytes_held: memory.free_bytes_held(),
            metadata,
            pending_bytes,
            resident_bytes: None,
            page_table_bytes: host::smaps::page_table_bytes().ok(),
        };
        let heap = stat.accounted_bytes().saturating_sub(mapped);
        let rss = memory.resident_bytes(&self.table_ranges()).ok();
        if memory.was_locked() {
            // The system may have filled pages of the mappings that are not used. They are held,
            // and free.
            stat.free_bytes_held += rss.unwrap_or(0).saturating_sub(mapped);
        }
        stat.resident_bytes = rss.map(|rss| rss + heap);
        stat
    }

    fn metadata(&self, stats: &zsmalloc::PoolStats) -> Metadata {
        let memory = self.slots.pool.memory();
        let handle_table = stats.handle_leaves * (LEAF_CELLS * size_of::<u64>()) as u64;
        let (root_mapped, root_heap) = self.slots.root_bytes();
        let slots = memory.cell_table_bytes() - handle_table + root_mapped + root_heap;
        let (mapped, heap) = self.beside_bytes();
        let counts = self.counters.heap_bytes() + self.aside.heap_bytes();
        let beside = mapped + heap + self.values.words.heap_bytes() + counts;
        Metadata {
            slot_table: slots + beside,
            handle_table,
            descriptors: memory.descriptor_bytes() + stats.class_bytes,
            frame_table: memory.frame_table_bytes(),
            buffers: 0,
            codec_contexts: self.codec_bytes(),
        }
    }

    /// Bytes of contexts, dictionaries and tables. The thread of tiers compresses, so it has what
    /// the LZ4 library keeps for each such thread.
    fn codec_bytes(&self) -> u64 {
        let has_thread = usize::from(self.settings.tiering.has_owner());
        let thread = has_thread * self.config.algorithm.thread_bytes();
        let here = self.streams.heap_bytes() + self.dictionary_bytes() + thread;
        here as u64 + self.generations.bytes() + read(&self.settings.tiering.packing_bytes)
    }

    /// Bytes of the dictionaries of all algorithms. A dictionary that two algorithms share counts
    /// twice.
    fn dictionary_bytes(&self) -> usize {
        self.codecs().map(|codec| codec.dictionary_bytes()).sum()
    }

    /// Bytes of the tables besides the cells: ages, blocks of the backing disk, tables for equal
    /// pages, and those of units. The result has the bytes that are mapped, and those on the heap.
    fn beside_bytes(&self) -> (u64, u64) {
        let ages = self.ages().map_or((0, 0), Ages::bytes);
        let blocks = self.values.backing.as_ref().map_or((0, 0), |it| it.blocks.bytes());
        let sharing = self.values.sharing.as_ref().map_or((0, 0), Sharing::table_bytes);
        let units = self.values.units.as_ref().map_or((0, 0), Units::table_bytes);
        let parts = [ages, blocks, sharing, units];
        parts.iter().fold((0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1))
    }

    /// The addresses of all tables that belong to the device alone.
    fn table_ranges(&self) -> Vec<Range<usize>> {
        let blocks = self.values.backing.iter().flat_map(|backing| backing.blocks.ranges());
        let ages = self.ages().into_iter().map(Ages::range);
        let sharing = self.values.sharing.iter().flat_map(Sharing::table_ranges);
        let units = self.values.units.iter().flat_map(Units::table_ranges);
        let root = std::iter::once(self.slots.root_range());
        root.chain(ages).chain(blocks).chain(sharing).chain(units).collect()
    }

    /// The line of the kernel's `mm_stat`.
    pub fn mm_stat(&self) -> MmStat {
        let (tally, stats) = (self.counters.tally(), self.slots.pool.stats());
        MmStat([
            pages(tally) * PAGE_SIZE as u64,
            self.compr_data_size(),
            stats.mem_used_total,
            self.settings.hold.limit(),
            stats.mem_used_max,
            tally.counts[kind::SAME],
            stats.pages_compacted,
            tally.counts[kind::HUGE],
            self.counters.huge_since(),
        ])
    }

    /// Bytes of compressed and raw objects. [`ZramStat`] and [`MmStat`] have them too, but this
    /// costs only a few loads.
    pub fn compr_data_size(&self) -> u64 {
        let shared = self.values.sharing.as_ref().map_or(0, |sharing| sharing.stat().bytes);
        let units = self.values.units.as_ref().map_or(0, |units| units.stat().bytes);
        self.counters.tally().bytes + shared + units
    }

    /// Touched frames of zspages, in bytes. Unlike [`Zram::stat`], this does not ask the system.
    pub fn object_bytes_resident(&self) -> u64 {
        self.slots.pool.object_bytes_resident()
    }

    /// The line of the kernel's `io_stat`.
    pub fn io_stat(&self) -> IoStat {
        IoStat {
            failed_reads: read(&self.counters.failed_reads),
            failed_writes: read(&self.counters.failed_writes),
            notify_free: self.counters.discarded(),
        }
    }

    /// The line of the kernel's `bd_stat`. It is zeros if there is no backing disk.
    pub fn bd_stat(&self) -> BdStat {
        let pages = self.counters.tally().counts[kind::DISK];
        self.values.backing.as_ref().map(|backing| backing.stat(pages)).unwrap_or_default()
    }

    /// The number of failures by cause.
    pub fn trouble_stat(&self) -> TroubleStat {
        self.counters.troubles.stat()
    }
}
