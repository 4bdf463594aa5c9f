//! Units: neighbouring pages that were cold together, stored as one frame.
//!
//! Claims
//! - Every page reads as it was last written, whatever was in a unit meanwhile, in any order of
//!   writes, reads, discards, tending, write-back and compaction. `check()` finds nothing.
//! - A read takes out one page, and its neighbours stay. A discarded page of a unit reads as zeros.
//! - After a pass, at most an eighth of the pages of units are dead. What is accounted is resident.
//! - The densities `fast` and `balanced` make no units. Shared pages are in none.
//! - A read does not fail because there is no room to take a page out.
//!
//! Covered elsewhere: threads at every step (`loom/units`), which pages are for units (`rule`), and
//! the backing disk that fails (`post/twin`).
//!
//! The twin takes `RAMFOLD_UNIT_OPS`: 20000 by default, 10^7 in its long form.
#![cfg(not(loom))]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use disk::{Disk, RamDisk};
use ramfold_zram::{
    Density, Idle, Recompress, Selection, TiersConfig, UnitStat, WriteBack, Zram, ZramConfig,
};

use memory::memory;
use random::Random;

#[path = "support/memory.rs"]
mod memory;
#[path = "support/random.rs"]
mod random;

const PAGE: usize = 4096;
const PAGES: u64 = 1100;
/// Pages of a run.
const RUN: u64 = 16;

fn config() -> ZramConfig {
    let mut config = ZramConfig::new("zram0", PAGES * PAGE as u64);
    config.track_ages = true;
    config.recompression[2] = Some("zstd".parse().expect("a codec"));
    config
}

fn device(config: ZramConfig) -> Zram {
    Zram::new(memory(false), config).expect("a device")
}

/// Every page is as old as can be.
fn tend(zram: &Zram, density: Density) {
    let age = Duration::ZERO;
    zram.tend(&TiersConfig { age, ..TiersConfig::new(density) }).expect("memory");
}

fn units(zram: &Zram) -> UnitStat {
    zram.check().expect("no defect");
    zram.stat().units.expect("it may have some")
}

/// A page that has some bytes of its own, and many that its neighbours have too.
fn alike(page: u64, version: u64) -> Vec<u8> {
    let (mut own, mut common) =
        (Random(page << 32 | version << 1 | 1), Random(page / 64 + 0x9e37_79b9));
    let table: Vec<u64> = (0..64).map(|_| common.next()).collect();
    let word = |at: usize| if at.is_multiple_of(4) { own.next() } else { table[at % 64] };
    (0..PAGE / 8).map(word).flat_map(u64::to_le_bytes).collect()
}

/// Of every eight versions one is same-filled, one does not compress, and six are like those of
/// their neighbours.
fn data(page: u64, version: u64) -> Vec<u8> {
    match version % 8 {
        0 => vec![version as u8 | 1; PAGE],
        1 => {
            let mut random = Random(page << 32 | version << 1 | 1);
            (0..PAGE / 8).flat_map(|_| random.next().to_le_bytes()).collect()
        }
        _ => alike(page, version),
    }
}

fn write(zram: &Zram, page: u64, version: u64) {
    zram.write_page(page, &alike(page, version)).expect("room");
}

fn read(zram: &Zram, page: u64) -> Vec<u8> {
    let mut data = vec![1; PAGE];
    zram.read_page(page, &mut data).expect("it decodes");
    data
}

/// A device with so many pages, all of them in units.
fn packed(config: ZramConfig, pages: u64) -> Zram {
    let zram = device(config);
    (0..pages).for_each(|page| write(&zram, page, 2));
    tend(&zram, Density::Dense);
    zram
}

#[test]
fn neighbours_become_units_that_are_smaller_and_all_they_take_is_resident() {
    let zram = device(config());
    (0..1000).for_each(|page| write(&zram, page, 2));
    let single = zram.compr_data_size();
    tend(&zram, Density::Balanced);
    assert_eq!(units(&zram), UnitStat::default(), "not if balanced");
    let balanced = zram.compr_data_size();
    tend(&zram, Density::Dense);
    let stat = units(&zram);
    assert_eq!((stat.units, stat.pages, stat.dead_pages), (63, 1000, 0));
    assert_eq!(zram.compr_data_size(), stat.bytes, "all pages are in units");
    assert!(stat.bytes < balanced * 15 / 16 && balanced <= single, "{single} {balanced} {stat:?}");
    zram.compact();
    let stat = zram.stat();
    assert_eq!(stat.resident_bytes, Some(stat.accounted_bytes()));
    assert_eq!(stat.orig_data_size, 1000 * PAGE as u64);
    let tiers = zram.tier_stat();
    assert!(tiers.is_none(), "no thread of tiers ever worked");
    tend(&zram, Density::Dense);
    assert_eq!(units(&zram).bytes, stat.compr_data_size, "a second pass finds nothing to do");
    assert!((0..1000).all(|page| read(&zram, page) == alike(page, 2)));
    assert_eq!(units(&zram).units, 0, "all pages were taken out");
}

#[test]
fn a_read_takes_out_one_page_and_its_neighbours_stay() {
    let zram = packed(config(), RUN);
    let before = units(&zram);
    assert_eq!((before.units, before.pages), (1, RUN));
    assert!(read(&zram, 5) == alike(5, 2));
    let after = units(&zram);
    assert_eq!((after.pages, after.dead_pages, after.bytes), (RUN - 1, 1, before.bytes));
    assert!(zram.compr_data_size() > before.bytes, "it has an object of its own");
    assert!(read(&zram, 5) == alike(5, 2), "and reads so again");
    assert_eq!(units(&zram), after);
    zram.prefetch_page(6);
    let state = zram.block_states(6..7).next().expect("it is stored");
    assert!(state.recompressed && !state.huge, "{state:?}");
}

#[test]
fn discarded_and_overwritten_pages_leave_and_the_last_one_ends_the_unit() {
    let zram = packed(config(), RUN);
    zram.discard_pages(3..4).expect("in range");
    assert!(read(&zram, 3) == [0; PAGE], "zeros");
    write(&zram, 4, 3);
    zram.write(5 * PAGE as u64 + 9, &[7; 100]).expect("room");
    let mut part = alike(5, 2);
    part[9..109].fill(7);
    assert!(read(&zram, 4) == alike(4, 3) && read(&zram, 5) == part);
    let stat = units(&zram);
    assert_eq!((stat.units, stat.pages, stat.dead_pages), (1, RUN - 3, 3));
    for page in (0..RUN).filter(|page| !(3..6).contains(page)) {
        assert_eq!(units(&zram).units, 1, "before page {page}");
        zram.discard_pages(page..page + 1).expect("in range");
    }
    assert_eq!(units(&zram), UnitStat::default());
    zram.discard_pages(0..PAGES).expect("in range");
    assert_eq!((zram.compr_data_size(), zram.stat().object_bytes_resident), (0, 0));
}

#[test]
fn a_pass_leaves_at_most_an_eighth_of_the_pages_dead() {
    let zram = packed(config(), 640);
    let mut random = Random(7);
    for round in 0..20 {
        let leave = 1 + random.below(200);
        for _ in 0..leave {
            let page = random.below(640);
            zram.discard_pages(page..page + 1).expect("in range");
        }
        (0..random.below(300)).for_each(|_| write(&zram, random.below(640), 3 + round));
        tend(&zram, Density::Dense);
        let stat = units(&zram);
        assert!(stat.dead_pages * 8 <= stat.pages + stat.dead_pages, "round {round}: {stat:?}");
        assert!(stat.pages > 0, "round {round}");
    }
}

/// Each run has fewer pages left than a new unit has.
#[test]
fn what_is_left_of_a_unit_gets_objects_of_its_own() {
    let zram = packed(config(), 4 * RUN);
    (0..4 * RUN).filter(|page| page % RUN > 2).for_each(|page| {
        zram.discard_pages(page..page + 1).expect("in range");
    });
    assert_eq!(units(&zram).pages, 12);
    tend(&zram, Density::Dense);
    assert_eq!(units(&zram), UnitStat::default());
    let left = (0..4 * RUN).filter(|page| page % RUN <= 2);
    left.for_each(|page| assert!(read(&zram, page) == alike(page, 2), "page {page}"));
}

#[test]
fn a_read_without_room_leaves_its_page_in_the_unit() {
    let zram = packed(config(), RUN);
    zram.compact();
    zram.set_mem_limit(1);
    let before = units(&zram);
    (0..RUN).for_each(|page| assert!(read(&zram, page) == alike(page, 2), "page {page}"));
    assert_eq!(units(&zram), before);
    zram.set_mem_limit(0);
    assert!(read(&zram, 0) == alike(0, 2));
    assert_eq!(units(&zram).pages, RUN - 1);
}

#[test]
fn pages_of_units_are_idle_and_are_taken_out_to_be_written_back() {
    for compressed_writeback in [false, true] {
        let backing: Arc<dyn Disk> = Arc::new(RamDisk::new(1 << 23).expect("a size"));
        let backing = Some(backing);
        let zram = packed(ZramConfig { backing, compressed_writeback, ..config() }, 64);
        assert_eq!(zram.mark_idle(Idle::All).expect("nothing to go wrong"), 64);
        read(&zram, 9);
        let report = zram.write_back(&WriteBack::from(Selection::Idle)).expect("room");
        assert_eq!((report.pages, report.used), (63, 0), "page 9 was used");
        assert_eq!(units(&zram), UnitStat::default());
        assert!((0..64).all(|page| read(&zram, page) == alike(page, 2)));
        assert_eq!(zram.check_backing(), Ok(63));
    }
}

#[test]
fn recompression_passes_units_over_and_shared_pages_join_none() {
    let zram = packed(ZramConfig { share_equal_pages: true, ..config() }, 32);
    let before = units(&zram);
    let report = zram.recompress(&Recompress::with(3)).expect("it runs");
    assert_eq!((report.pages, report.no_smaller, units(&zram)), (0, 0, before));
    (32..64).for_each(|page| zram.write_page(page, &alike(1, 5)).expect("room"));
    tend(&zram, Density::Dense);
    assert_eq!(units(&zram).pages, 32, "equal pages are shared");
    zram.write_page(64, &alike(7, 2)).expect("room");
    assert!(read(&zram, 64) == read(&zram, 7), "its twin is in a unit, and is not shared");
}

/// The expected content of a page, as its version.
struct Twin {
    zram: Zram,
    pages: Vec<Option<Vec<u8>>>,
    random: Random,
}

impl Twin {
    fn expect(&mut self, page: u64) {
        let found = read(&self.zram, page);
        match &self.pages[page as usize] {
            Some(data) => assert!(found == *data, "page {page}"),
            None => assert!(found == [0; PAGE], "page {page} is empty"),
        }
    }

    fn write(&mut self, page: u64, version: u64) {
        let data = data(page, version);
        self.zram.write_page(page, &data).expect("room");
        self.pages[page as usize] = Some(data);
    }

    fn write_part(&mut self, page: u64, byte: u8) {
        let at = self.random.below(PAGE as u64 - 64);
        self.zram.write(page * PAGE as u64 + at, &[byte; 64]).expect("room");
        let was = self.pages[page as usize].get_or_insert_with(|| vec![0; PAGE]);
        was[at as usize..at as usize + 64].fill(byte);
    }

    fn discard(&mut self, first: u64, last: u64) {
        self.zram.discard_pages(first..last).expect("in range");
        self.pages[first as usize..last as usize].fill(None);
    }

    /// One operation. Most of them are on one page.
    fn step(&mut self, number: u64) {
        let page = self.random.below(PAGES);
        match self.random.below(4000) {
            0..1500 => self.write(page, number),
            1500..1800 => self.write_part(page, number as u8),
            1800..3700 => self.expect(page),
            3700..3980 => self.discard(page, page + 1),
            3980..3984 => self.discard(page / 512 * 512, (page / 512 * 512 + 512).min(PAGES)),
            3984..3986 => drop(self.zram.compact()),
            3986..3988 => {
                let low = page.saturating_sub(40);
                let some = Selection::Pages(vec![low..=page]);
                self.zram.write_back(&WriteBack::from(some)).expect("room");
            }
            _ => tend(&self.zram, Density::Dense),
        }
    }
}

#[test]
fn any_order_of_operations_is_as_a_twin_has_it() {
    let count = std::env::var("RAMFOLD_UNIT_OPS");
    let count: u64 = count.map_or(20_000, |count| count.parse().expect("a number"));
    for (seed, worker) in [(1, false), (2, true)] {
        let backing: Arc<dyn Disk> = Arc::new(RamDisk::new(1 << 23).expect("a size"));
        let config = ZramConfig { backing: Some(backing), ..config() };
        let zram = Zram::new(memory(worker), config).expect("a device");
        let pages = vec![None; PAGES as usize];
        let mut twin = Twin { zram, pages, random: Random(seed) };
        let mut most = UnitStat::default();
        for number in 0..count / 2 {
            twin.step(number);
            if number.is_multiple_of((count / 64).max(1)) {
                most.pages = most.pages.max(units(&twin.zram).pages);
            }
        }
        assert!(most.pages > 0, "there were units");
        (0..PAGES).for_each(|page| twin.expect(page));
        twin.zram.memory().flush_deferred();
        twin.zram.check().expect("no defect");
        let stat = twin.zram.stat();
        // The worker may return frames between the two figures.
        assert!(worker || stat.resident_bytes == Some(stat.accounted_bytes()), "{stat:?}");
    }
}

/// Two threads with pages of their own, whose neighbours in each unit are the other's, while a
/// third makes units without pause. Not a benchmark.
#[test]
fn threads_that_use_pages_while_units_are_made_find_what_they_wrote() {
    let zram = packed(config(), 512);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (zram, over) = (&zram, &over);
        let worker = |mine: u64| {
            move || {
                let mut random = Random(mine + 9);
                let mut versions = [2; 512];
                for version in 3..4000 {
                    let page = random.below(256) * 2 + mine;
                    let was = versions[page as usize];
                    // A page that was discarded has version 0.
                    versions[page as usize] = match random.below(4) {
                        0 => {
                            write(zram, page, version);
                            version
                        }
                        1 => {
                            zram.discard_pages(page..page + 1).expect("in range");
                            0
                        }
                        _ => {
                            let expected = if was == 0 { vec![0; PAGE] } else { alike(page, was) };
                            assert!(read(zram, page) == expected, "page {page}");
                            was
                        }
                    };
                }
            }
        };
        let workers = [scope.spawn(worker(0)), scope.spawn(worker(1))];
        scope.spawn(|| {
            // relaxed: a flag of its own.
            while !over.load(Ordering::Relaxed) {
                tend(zram, Density::Dense);
            }
        });
        let ended = workers.map(|it| it.join());
        // relaxed: as above.
        over.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok), "a page was not what it was");
    });
    tend(&zram, Density::Dense);
    assert!(units(&zram).pages > 0, "there are units in the end");
}
