//! Devices with a backing disk, and pages to store on them.

use std::sync::Arc;

use disk::{Disk, FaultyDisk, RamDisk};
use ramfold_zram::{Selection, WriteBack, Zram, ZramConfig};

pub(crate) use crate::memory::memory;

pub(crate) const PAGE: usize = 4096;
/// The number of pages, for tests to which it does not matter.
pub(crate) const PAGES: u64 = 1100;

pub(crate) fn device(config: ZramConfig) -> Zram {
    Zram::new(memory(false), config).expect("a device")
}

pub(crate) fn config(backing: Option<Arc<dyn Disk>>) -> ZramConfig {
    ZramConfig { backing, ..ZramConfig::new("zram0", PAGES * PAGE as u64) }
}

/// A backing disk of so many blocks.
pub(crate) fn blocks(count: u64) -> Arc<FaultyDisk<RamDisk>> {
    Arc::new(FaultyDisk::new(RamDisk::new(count * PAGE as u64).expect("a size")))
}

/// A device with room for everything on its backing disk.
pub(crate) fn backed(compressed_writeback: bool) -> (Zram, Arc<FaultyDisk<RamDisk>>) {
    let backing = blocks(PAGES);
    let disk: Arc<dyn Disk> = Arc::clone(&backing) as Arc<dyn Disk>;
    (device(ZramConfig { compressed_writeback, ..config(Some(disk)) }), backing)
}

/// A page that lz4 compresses to about `1 / ratio`, and zstd to a quarter less. Nothing compresses
/// it if `ratio` is 1. It differs for each page and version.
pub(crate) fn data_of(page: u64, version: u64, ratio: usize) -> Vec<u8> {
    let mut state = (page << 32 | version) | 1;
    let mut next = move || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(page | 1);
        (state >> 56) as u8
    };
    let mask = if ratio == 1 { 0xff } else { 0x3f };
    (0..PAGE).map(|at| if at < PAGE / ratio { next() & mask } else { version as u8 }).collect()
}

/// Of every five versions one is same-filled, one is huge, and three compress.
pub(crate) fn data(page: u64, version: u64) -> Vec<u8> {
    match version % 5 {
        0 => vec![version as u8 | 1; PAGE],
        1 => data_of(page, version, 1),
        step => data_of(page, version, 2 * step as usize),
    }
}

pub(crate) fn read(zram: &Zram, page: u64) -> Vec<u8> {
    let mut data = vec![1; PAGE];
    zram.read_page(page, &mut data).expect("in range");
    data
}

pub(crate) fn write(zram: &Zram, page: u64, data: &[u8]) {
    zram.write_page(page, data).expect("room");
}

/// All pages in memory, of any kind.
pub(crate) fn everything(zram: &Zram) -> WriteBack {
    Selection::Pages(vec![0..=zram.pages() - 1]).into()
}
