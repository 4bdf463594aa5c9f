//! Filling and discarding, over and over: memory does not grow.
//!
//! ```text
//!   cycle    fill: every page, other content each time     -> resident, the cycle's peak
//!            discard a random 90 %, rewrite a tenth         -> resident
//!   first cycle's peak + 3 %  >=  every later cycle's peak
//! ```
//!
//! The distribution: pages of 200 to 4000 bytes of noise, the rest zeros, uniform; discards of
//! single pages, in random order. The worker compacts and returns memory at any time. The writer
//! moves to a random CPU about once in a cycle, as a system moves a thread. So a cycle meets any
//! state of either, and free frames of any shard.
//!
//! The test takes `RAMFOLD_SOAK_SECONDS`: 5 by default, 60 in CI, 600 for the long form.
#![cfg(not(loom))]

use std::time::{Duration, Instant};

use disk::Disk;
use ramfold_zram::{Zram, ZramConfig};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use zsmalloc::{Memory, MemoryConfig};

use random::Random;

#[path = "support/random.rs"]
mod random;

const PAGE: u64 = 4096;
const PAGES: u64 = 1024 << 8; // 1 GiB
/// The allowed growth over the first cycle's peak.
const GROWTH_MAX_PERCENT: u64 = 3;

fn device() -> Zram {
    let config = MemoryConfig {
        arena_frames: 1 << 19,
        entries_max: 1 << 21,
        expected_bytes: 1 << 30,
        worker: true,
    };
    let memory = Memory::new(config).expect("address space");
    Zram::new(memory, ZramConfig::new("zram0", PAGES * PAGE)).expect("a device")
}

/// The content of page `page` in version `version`.
fn content(page: u64, version: u64) -> Vec<u8> {
    let mut random = Random((page << 20 | version) | 1 << 60);
    let noise = 200 + random.below(3800) as usize;
    let mut bytes = vec![0; PAGE as usize];
    for word in bytes[..noise & !7].chunks_exact_mut(8) {
        word.copy_from_slice(&random.next().to_le_bytes());
    }
    bytes
}

/// The resident bytes, and their parts. Values are compared by the resident bytes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Seen {
    resident: u64,
    objects: u64,
    free: u64,
    metadata: u64,
}

/// The versions that the pages have; 0 = discarded.
struct Cycle<'a> {
    zram: &'a Zram,
    versions: Vec<u64>,
    random: Random,
    /// The CPUs that this process may use.
    cpus: Vec<usize>,
}

impl Cycle<'_> {
    fn write(&mut self, page: u64, version: u64) {
        if self.random.below(PAGES) == 0 && !self.cpus.is_empty() {
            let which = self.random.below(self.cpus.len() as u64);
            self.move_to(which as usize);
        }
        self.zram.write(page * PAGE, &content(page, version)).expect("room");
        self.versions[page as usize] = version;
    }

    /// If the system refuses, or there is only one CPU, the writer stays where it is.
    fn move_to(&self, which: usize) {
        let mut only = CpuSet::new();
        self.cpus.get(which).into_iter().for_each(|&cpu| only.set(cpu));
        let _ = sched_setaffinity(None, &only);
    }

    /// Runs one cycle. Returns the highest number of resident bytes.
    fn run(&mut self, version: u64) -> Seen {
        (0..PAGES).for_each(|page| self.write(page, version));
        let full = self.resident();
        for page in 0..PAGES {
            if self.random.below(10) > 0 {
                self.zram.discard(page * PAGE, PAGE).expect("within the disk");
                self.versions[page as usize] = 0;
            }
        }
        for _ in 0..PAGES / 10 {
            let page = self.random.below(PAGES);
            self.write(page, version);
        }
        full.max(self.resident())
    }

    fn resident(&self) -> Seen {
        let stat = self.zram.stat();
        Seen {
            resident: stat.resident_bytes.expect("/proc/self/smaps"),
            objects: stat.object_bytes_resident,
            free: stat.free_bytes_held,
            metadata: stat.metadata_bytes(),
        }
    }

    fn verify(&self) {
        let mut read = vec![0; PAGE as usize];
        for (page, &version) in (0..).zip(&self.versions) {
            self.zram.read(page * PAGE, &mut read).expect("within the disk");
            let expected =
                if version == 0 { vec![0; PAGE as usize] } else { content(page, version) };
            assert!(read == expected, "page {page} is not what version {version} wrote");
        }
        self.zram.check().expect("no defect");
    }
}

#[test]
fn filling_and_discarding_does_not_grow() {
    let seconds = std::env::var("RAMFOLD_SOAK_SECONDS").ok();
    let seconds = seconds.map_or(5, |seconds| seconds.parse().expect("a number of seconds"));
    let end = Instant::now() + Duration::from_secs(seconds);
    let zram = device();
    // This comes first, because a thread stays on the CPUs of its parent, and the worker needs them
    // all.
    zram.write(0, &content(0, 1)).expect("room");
    zram.discard(0, PAGE).expect("within the disk");
    let allowed = sched_getaffinity(None).unwrap_or_default();
    let mut cycle = Cycle {
        zram: &zram,
        versions: vec![0; PAGES as usize],
        random: Random(0x736F_616B),
        cpus: (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect(),
    };
    let first = cycle.run(1);
    let most = first.resident + first.resident * GROWTH_MAX_PERCENT / 100;
    let (mut peak, mut highest, mut last, mut version) = (first, 1, first, 1);
    while version < 4 || Instant::now() < end {
        version += 1;
        last = cycle.run(version);
        highest = if last > peak { version } else { highest };
        peak = peak.max(last);
        assert!(peak.resident <= most, "cycle {version}: {peak:?}, the first: {first:?}");
        if version.is_multiple_of(8) {
            cycle.verify();
        }
    }
    cycle.verify();
    println!("{version} cycles: first {first:?}, highest ({highest}.) {peak:?}, last {last:?}");
}
