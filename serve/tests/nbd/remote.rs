//! The client [`NbdDisk`] at this server: it is as good a disk as the one that is served.

use crate::fixture::{Fixture, pattern};
use disk::{Allocation, Disk, DiskError, Extent, NbdDisk, RamDisk, ReadOnly, conformance};
use std::sync::Arc;
use zram::{Memory, MemoryConfig, Zram, ZramConfig};
use zswap::{GroupId, Limit, Loaded, Zswap, ZswapConfig};

/// A remote disk, and the server that has it.
struct Far {
    disk: NbdDisk,
    fixture: Fixture,
}

impl Far {
    fn of(disk: Arc<dyn Disk>) -> Far {
        let fixture = Fixture::of(disk);
        let address = format!("nbd+unix:///ram?socket={}", fixture.path().display());
        Far { disk: NbdDisk::open(&address).expect("it is served"), fixture }
    }
}

impl Disk for Far {
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }

    fn block_size(&self) -> u32 {
        self.disk.block_size()
    }

    fn read_only(&self) -> bool {
        self.disk.read_only()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DiskError> {
        self.disk.read(offset, buf)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DiskError> {
        self.disk.write(offset, data)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.disk.discard(offset, len)
    }

    fn write_zeroes(&self, offset: u64, len: u64, keep: Allocation) -> Result<(), DiskError> {
        self.disk.write_zeroes(offset, len, keep)
    }

    fn would_wait(&self, offset: u64, len: u64) -> bool {
        self.disk.would_wait(offset, len)
    }

    fn flush(&self) -> Result<(), DiskError> {
        self.disk.flush()
    }

    fn next_extent(&self, offset: u64, len: u64) -> Result<Extent, DiskError> {
        self.disk.next_extent(offset, len)
    }
}

#[test]
fn a_remote_disk_keeps_the_contract() {
    let make = |size| -> Arc<dyn Disk> { Arc::new(Far::of(Arc::new(RamDisk::new(size).unwrap()))) };
    conformance::run("NbdDisk", &make);
}

#[test]
fn a_remote_disk_that_is_read_only_refuses_changes() {
    let inner = RamDisk::new(3 * 4096).unwrap();
    inner.write(4000, b"kept").unwrap();
    conformance::run_read_only("NbdDisk", &Far::of(Arc::new(ReadOnly::new(inner))));
}

#[test]
fn a_remote_disk_says_good_bye() {
    let far = Far::of(Arc::new(RamDisk::new(4096).unwrap()));
    far.disk.write(7, b"kept").unwrap();
    let Far { disk, fixture } = far;
    drop(disk);
    fixture.assert_well();
}

#[test]
fn an_export_that_is_not_there_is_told() {
    let fixture = Fixture::ram();
    let address = format!("nbd+unix:///other?socket={}", fixture.path().display());
    let error = NbdDisk::open(&address).unwrap_err().to_string();
    assert!(error.contains("no export of that name"), "{error}");
}

/// The cache of one machine in front of the memory of another: a compressed disk that is served.
/// Then the other machine is gone.
#[test]
fn a_cache_has_its_disk_on_another_server() {
    const PAGES: u64 = 512;
    let memory = || Memory::new(MemoryConfig::for_disk(16 << 20)).expect("address space");
    let content = |at: u64| {
        let mut page = pattern(4096, at as usize);
        page[1500..].fill(at as u8);
        page
    };
    let served = Zram::new(memory(), ZramConfig::new("far", 8 << 20)).expect("a disk");
    let fixture = Fixture::of(Arc::new(served));
    let address = format!("nbd+unix:///ram?socket={}&timeout=1", fixture.path().display());
    let disk = NbdDisk::open(&address).expect("it is served");
    let near = ZswapConfig {
        limit: Limit::Bytes(64 << 20),
        backing: Some(Arc::new(disk)),
        worker: false,
        ..ZswapConfig::new("near")
    };
    let near = Zswap::new(memory(), near).expect("a cache");
    let area = near.add_area(PAGES).expect("room");
    let store = |at| area.store(at, &content(at), GroupId::ROOT).expect("room");
    (0..PAGES).for_each(store);
    assert_eq!(near.write_back(PAGES).pages, PAGES);
    let mut page = vec![0; 4096];
    for at in 0..PAGES / 2 {
        let loaded = area.load(at, &mut page).expect("the server is there");
        assert!(loaded == Loaded::Disk && page == content(at), "page {at}: {loaded:?}");
        store(at);
    }
    drop(fixture);
    area.load(PAGES - 1, &mut page).expect_err("nobody has it now");
    for at in 0..PAGES / 2 {
        assert_eq!(area.load(at, &mut page).expect("it is here"), Loaded::Memory, "page {at}");
        assert!(page == content(at), "page {at}");
    }
    near.check().expect("no defect");
}
