//! A vhost-user server of a disk, at a socket in a directory of its own.

use crate::guest::{Guest, PATIENCE};
use disk::Disk;
use ramfold_serve::{Event, Observer, VhostUser, VhostUserConfig};
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};
use zram::{Memory, MemoryConfig, Zram, ZramConfig};

/// Bytes on the usual disk.
pub(crate) const SIZE: u64 = 8 << 20;

/// A running server and what it said. It is gone at the end.
pub(crate) struct Rig {
    pub(crate) server: VhostUser,
    pub(crate) path: PathBuf,
    events: Arc<Mutex<Vec<Event>>>,
    directory: PathBuf,
}

impl Rig {
    /// Over a compressed disk.
    pub(crate) fn compressed() -> (Rig, Arc<Zram>) {
        let memory = Memory::new(MemoryConfig::for_disk(SIZE)).unwrap();
        let disk = Arc::new(Zram::new(memory, ZramConfig::new("zram0", SIZE)).unwrap());
        (Rig::of(disk.clone()), disk)
    }

    pub(crate) fn of(disk: Arc<dyn Disk>) -> Rig {
        Rig::start(|config| VhostUser::start(disk, config).unwrap())
    }

    pub(crate) fn start(start: impl FnOnce(VhostUserConfig) -> VhostUser) -> Rig {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("vhost-user-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir(&directory).unwrap();
        let path = directory.join("disk.sock");
        let mut config = VhostUserConfig::new("zram0", &path);
        let events = Arc::new(Mutex::new(Vec::new()));
        let list = Arc::clone(&events);
        config.observer = Observer::new(move |event| list.lock().unwrap().push(event));
        Rig { server: start(config), path, events, directory }
    }

    pub(crate) fn guest(&self, queues: u16) -> Guest {
        Guest::connect(&self.path, queues).expect("a good guest is served")
    }

    /// Waits until something of this kind was said.
    pub(crate) fn wait_for(&self, what: &str, is_it: impl Fn(&Event) -> bool) {
        wait_until(what, || self.events.lock().unwrap().iter().any(&is_it));
    }

    /// Checks that a good guest is served, and that nothing is left of those before.
    pub(crate) fn assert_well(&self) {
        let mut guest = self.guest(1);
        assert_eq!(guest.read(0, 0, 4096).status, crate::guest::OK);
        drop(guest);
        wait_until("the frontend is gone", || self.server.frontend().is_none());
        assert_eq!((self.server.queues(), self.server.buffer_bytes()), (0, 0));
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.server.stop();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Waits for something that must come true; how long it takes is not the point.
pub(crate) fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        sleep(Duration::from_millis(2));
    }
}

/// Bytes that repeat only after a prime number of them.
pub(crate) fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| ((i + seed) % 251) as u8).collect()
}

/// A small generator of random numbers, Steele and others' SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}
