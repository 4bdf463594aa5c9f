//! Threads that use pages while others write them back and recompress them.
//!
//! Claims
//! - A page never reads as something it was not, whichever thread post-processes it meanwhile, also
//!   on a disk that fails now and then.
//! - Afterwards nothing has leaked: the blocks in use are the pages on the disk, and `check()`
//!   agrees.
//!
//! The distribution: 3 threads with pages of their own, interleaved. They do 45 % writes, 10 %
//! writes of parts of pages, 35 % reads and 10 % discards, uniform. Beside them, one thread marks
//! everything idle, writes back and recompresses without pause. Not a benchmark.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::devices::{PAGE, PAGES, backed, blocks, data, data_of, memory, write};
use crate::ways::{self, Way};
use disk::{Disk, DiskError, Fault, FaultPlan, FaultSpan, Verbs};
use ramfold_zram::{Idle, Recompress, Selection, WriteBack, Zram, ZramConfig};

const THREADS: u64 = 3;
const PAGES_EACH: u64 = 250;
const OPERATIONS: u64 = 6_000;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1234_5679);
        (self.0 >> 33) % bound
    }
}

fn device(way: Way, compressed_writeback: bool, backing: Arc<dyn Disk>) -> Zram {
    let codec = |name: &str| Some(name.parse().expect("a codec"));
    let config = ZramConfig {
        compressed_writeback,
        backing: Some(backing),
        recompression: [codec("zstd:1"), codec("zstd:3"), None],
        ..ZramConfig::new("zram0", THREADS * PAGES_EACH * PAGE as u64)
    };
    Zram::new(memory(true), way.of(config)).expect("a device")
}

/// The knowledge that a thread has of its pages.
struct Owner<'z> {
    zram: &'z Zram,
    thread: u64,
    pages: Vec<Vec<u8>>,
    failed: u64,
}

impl Owner<'_> {
    fn step(&mut self, random: &mut Random, version: u64) {
        let own = random.below(PAGES_EACH);
        let page = own * THREADS + self.thread;
        match random.below(100) {
            0..45 => {
                let data = data(page, version);
                self.zram.write_page(page, &data).expect("room");
                self.pages[own as usize] = data;
            }
            45..55 => self.write_part(own, page, random.below(PAGE as u64 - 9) as usize),
            55..90 => self.read(own, page),
            _ => {
                self.zram.discard_pages(page..page + 1).expect("in range");
                self.pages[own as usize] = vec![0; PAGE];
            }
        }
    }

    fn write_part(&mut self, own: u64, page: u64, at: usize) {
        match self.zram.write(page * PAGE as u64 + at as u64, &[at as u8; 9]) {
            Ok(()) => self.pages[own as usize][at..at + 9].fill(at as u8),
            Err(error) => self.fail(&error),
        }
    }

    fn read(&mut self, own: u64, page: u64) {
        let mut data = vec![1; PAGE];
        match self.zram.read_page(page, &mut data) {
            Ok(()) => assert!(data == self.pages[own as usize], "page {page}"),
            Err(error) => self.fail(&error),
        }
    }

    fn fail(&mut self, error: &DiskError) {
        assert!(matches!(error, DiskError::Backing(_)), "{error}");
        self.failed += 1;
    }
}

/// Runs owners of pages beside `disturb`. Returns how often the disk failed them.
fn race(zram: &Zram, disturb: impl Fn(u64) + Sync) -> u64 {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut round = 0;
            while !done.load(Ordering::Relaxed) {
                disturb(round);
                round += 1;
            }
            round
        });
        let own = |thread| {
            let pages = vec![vec![0; PAGE]; PAGES_EACH as usize];
            let mut owner = Owner { zram, thread, pages, failed: 0 };
            let mut random = Random(thread * 77 + 1);
            (1..OPERATIONS).for_each(|version| owner.step(&mut random, version));
            owner
        };
        let owners: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || own(thread))).collect();
        let owners: Vec<_> = owners.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        done.store(true, Ordering::Relaxed);
        assert!(other.join().expect("the other") > 1);
        let mut failed = 0;
        for owner in owners {
            let mut owner = owner.expect("nobody read what was not written");
            failed += owner.failed;
            (0..PAGES_EACH).for_each(|own| owner.read(own, own * THREADS + owner.thread));
        }
        failed
    })
}

#[track_caller]
fn expect_nothing_lost(zram: &Zram) {
    zram.make_room();
    zram.memory().flush_deferred();
    let back = zram.block_states(0..zram.pages()).filter(|state| state.written_back).count();
    assert_eq!(zram.bd_stat().count, back as u64);
    assert!(!zram.check().expect("no defect").moved);
}

fn post_process(zram: &Zram, round: u64) {
    zram.mark_idle(Idle::All).expect("nothing to go wrong");
    let _ = zram.recompress(&Recompress { max_pages: Some(50), ..Recompress::with(1) });
    let modes = [Selection::Idle, Selection::Pages(vec![0..=zram.pages() - 1]), Selection::Huge];
    let _ = zram.write_back(&modes[round as usize % 3].clone().into());
    if round.is_multiple_of(8) {
        zram.compact();
    }
}

#[test]
fn nobody_reads_what_was_not_written() {
    let entries = ways::all().into_iter().filter(|way| way.counts_pending());
    let range = [(Way::default(), false), (Way::default(), true)];
    for (way, compressed) in range.into_iter().chain(entries.map(|way| (way, true))) {
        let disk = blocks(THREADS * PAGES_EACH + 40);
        let zram = device(way, compressed, disk);
        assert_eq!(race(&zram, |round| post_process(&zram, round)), 0);
        let stat = zram.bd_stat();
        assert!(stat.reads > 100 && stat.writes > 100, "{stat}");
        expect_nothing_lost(&zram);
    }
}

#[test]
fn a_disk_that_fails_now_and_then_loses_nothing() {
    let disk = blocks(THREADS * PAGES_EACH + 40);
    let zram = device(Way::default(), false, Arc::clone(&disk) as Arc<dyn Disk>);
    let failed = race(&zram, |round| {
        let (verbs, fault) = (Verbs::All, Fault::Backing);
        disk.arm(FaultPlan { after: round % 40, verbs, span: FaultSpan::Once, fault });
        post_process(&zram, round);
        disk.disarm();
    });
    assert_eq!(failed, zram.io_stat().failed_reads + zram.io_stat().failed_writes);
    expect_nothing_lost(&zram);
}

/// The leaves under the pages that are written back are discarded meanwhile.
#[test]
fn a_discard_of_everything_meets_a_write_back_of_everything() {
    let disk = blocks(2 * 512 + 40);
    let config =
        ZramConfig { backing: Some(disk), ..ZramConfig::new("zram0", 2 * 512 * PAGE as u64) };
    let zram = Zram::new(memory(true), config).expect("a device");
    for round in 0..60 {
        (0..1024).step_by(3).for_each(|page| {
            zram.write_page(page, &data_of(page, round, 2)).expect("room");
        });
        std::thread::scope(|scope| {
            scope.spawn(|| post_process(&zram, 1));
            scope.spawn(|| zram.discard_pages(0..1024).expect("in range"));
        });
        assert_eq!(zram.mm_stat().0[..2], [0, 0]);
        expect_nothing_lost(&zram);
        assert_eq!(zram.bd_stat().count, 0);
    }
}

#[test]
fn a_recount_while_pages_are_chosen_finds_no_defect() {
    let (zram, _) = backed(false);
    (0..PAGES).for_each(|page| write(&zram, page, &data(page, 1)));
    // They are chosen again and again, which takes longer than a recount. They are marked all the
    // while.
    let pages = Selection::Pages(vec![0..=PAGES - 1; 3000]);
    let chosen = WriteBack { max_pages: Some(0), pages };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            zram.write_back(&chosen).expect("nothing is written");
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) {
            zram.check().expect("a device at work is no defect");
        }
    });
    zram.check().expect("at rest");
}
