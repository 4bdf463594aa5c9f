//! Devices for tests of attributes.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use disk::Disk;
use ramfold_zram::{Attribute, Device, DeviceDefaults, Devices, Errno, Memory, MemoryConfig};

pub(crate) const PAGE: usize = 4096;
pub(crate) const MIB: u64 = 1 << 20;

/// The devices of a server that has just started: none.
pub(crate) fn devices() -> Devices {
    devices_with(DeviceDefaults::default())
}

pub(crate) fn devices_with(defaults: DeviceDefaults) -> Devices {
    devices_on(memory(false), defaults)
}

/// Devices whose memory has a worker, as a server's has.
pub(crate) fn devices_at_work() -> Devices {
    devices_on(memory(true), DeviceDefaults::default())
}

fn devices_on(memory: MemoryConfig, defaults: DeviceDefaults) -> Devices {
    Devices::new(Memory::new(memory).expect("address space"), defaults)
}

fn memory(worker: bool) -> MemoryConfig {
    MemoryConfig { arena_frames: 1 << 17, entries_max: 1 << 26, expected_bytes: 64 * MIB, worker }
}

/// One more device.
pub(crate) fn added(devices: &Devices) -> Arc<Device> {
    let id = devices.hot_add().expect("there are few");
    devices.get(id).expect("it was just added")
}

/// A device that was just added, alone.
pub(crate) fn fresh() -> Arc<Device> {
    added(&devices())
}

/// A device of 16 MiB.
pub(crate) fn initialised() -> Arc<Device> {
    let device = fresh();
    device.write("disksize", "16M");
    device
}

/// The operations on devices that every test uses.
pub(crate) trait Use {
    /// Reads an attribute.
    fn read(&self, name: &str) -> String;
    /// Writes an attribute that takes it.
    fn write(&self, name: &str, value: &str);
    /// Writes an attribute that refuses, with this error number and a line. Returns the line.
    fn refuses(&self, name: &str, value: &str, errno: Errno) -> String;
    /// Stores a page.
    fn put(&self, page: u64, content: &[u8]);
    /// A column of a line of numbers.
    fn column(&self, name: &str, column: usize) -> u64;
}

pub(crate) fn attribute(name: &str) -> Attribute {
    Attribute::from_name(name).unwrap_or_else(|| panic!("there is no attribute {name}"))
}

impl Use for Device {
    #[track_caller]
    fn read(&self, name: &str) -> String {
        self.show(attribute(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    #[track_caller]
    fn write(&self, name: &str, value: &str) {
        let done = self.store(attribute(name), value.as_bytes());
        done.unwrap_or_else(|error| panic!("{name} {value:?}: {error}"));
    }

    #[track_caller]
    fn refuses(&self, name: &str, value: &str, errno: Errno) -> String {
        let Err(error) = self.store(attribute(name), value.as_bytes()) else {
            panic!("{name} took {value:?}");
        };
        assert_eq!(error.kind(), errno, "{name} {value:?}: {error}");
        let line = error.to_string();
        assert!(line.starts_with(name) && line.lines().count() == 1, "{line:?}");
        line
    }

    #[track_caller]
    fn put(&self, page: u64, content: &[u8]) {
        let disk = self.disk().expect("the device is initialised");
        disk.write(page * PAGE as u64, content).expect("there is room");
    }

    #[track_caller]
    fn column(&self, name: &str, column: usize) -> u64 {
        let text = self.read(name);
        let columns: Vec<u64> =
            text.split_whitespace().map(|c| c.parse().expect("a number")).collect();
        columns[column]
    }
}

/// A page that compresses to roughly `1 / ratio`, different for each seed.
pub(crate) fn page(seed: u64, ratio: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..PAGE).map(|at| if at % ratio == 0 { next() } else { (at / 64) as u8 }).collect()
}

/// Says "stop" when it is dropped, also by a panic, so that no thread works on for a failed test.
pub(crate) struct Stop<'a>(pub(crate) &'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed); // relaxed: a flag of its own.
    }
}

/// A file that belongs to one test and is removed at its end.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    /// A file with this content.
    pub(crate) fn file(name: &str, content: &[u8]) -> Scratch {
        let path = Scratch::path(name);
        std::fs::write(&path, content).expect("the temporary directory can be written");
        Scratch(path)
    }

    /// A file of zeros.
    pub(crate) fn sized(name: &str, bytes: u64) -> Scratch {
        let path = Scratch::path(name);
        let file = std::fs::File::create(&path).expect("the temporary directory can be written");
        file.set_len(bytes).expect("a file can be sparse");
        Scratch(path)
    }

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("ramfold-attributes-{}-{name}", std::process::id()))
    }

    pub(crate) fn text(&self) -> &str {
        self.0.to_str().expect("scratch paths are text")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // It is in the temporary directory. If it is left over, that is a nuisance and no failure.
        let _ = std::fs::remove_file(&self.0);
    }
}
