//! Writing pages back.
//!
//! Claims
//! - A page that was written back reads unchanged, whole and in parts. Its block is free again when
//!   the page is overwritten or discarded, in every way that pages are discarded.
//! - Every mode takes the pages it names, the largest first, and no other. The limit, a full disk
//!   and bad requests give different errors.
//! - A failing disk costs only the request, and a block that changed on the disk is detected.

use std::sync::Arc;

use crate::devices::{
    PAGE, PAGES, backed, blocks, config, data_of, device, everything, memory, read, write,
};
use crate::ways;
use disk::{Disk, DiskError, Fault, FaultPlan, FaultSpan, FileDisk, Verbs};
use ramfold_zram::{Idle, PostError, Selection, WriteBack, WriteBackReport, Zram, ZramConfig};

pub(crate) fn back(zram: &Zram) -> WriteBackReport {
    zram.write_back(&everything(zram)).expect("room on the backing disk")
}

/// The columns original, compressed, same and huge of `mm_stat`.
fn counts(zram: &Zram) -> [u64; 4] {
    let stat = zram.mm_stat().0;
    [stat[0], stat[1], stat[5], stat[7]]
}

#[track_caller]
pub(crate) fn expect_blocks(zram: &Zram, count: u64) {
    assert_eq!(zram.bd_stat().count, count);
    zram.check().expect("no defect");
}

#[test]
fn what_was_written_back_reads_as_it_was() {
    for compressed in [false, true] {
        let (zram, _) = backed(compressed);
        let pages: Vec<Vec<u8>> = (0..20).map(|page| data_of(page, 1, 1 + page as usize)).collect();
        pages.iter().enumerate().for_each(|(page, data)| write(&zram, page as u64, data));
        write(&zram, 20, &[7; PAGE]);
        let before = counts(&zram);
        let report = back(&zram);
        assert_eq!((report.pages, report.used), (20, 0), "the same-filled one stays");
        assert_eq!(report.bytes, before[1], "all objects are gone");
        assert_eq!(counts(&zram), [before[0], 0, 1, 0], "stored still, in no memory");
        assert_eq!(zram.stat().mem_used_total, 0);
        for (page, data) in pages.iter().enumerate() {
            assert!(read(&zram, page as u64) == *data, "page {page}, compressed {compressed}");
        }
        let stat = zram.bd_stat();
        assert_eq!((stat.count, stat.reads, stat.writes), (20, 20, 20));
        assert_eq!(stat.to_string(), "      20       20       20\n");
        expect_blocks(&zram, 20);
        assert_eq!(back(&zram).pages, 0, "what is there stays there");
    }
}

#[test]
fn a_block_is_free_again_when_its_page_is_overwritten() {
    let (zram, _) = backed(false);
    write(&zram, 3, &data_of(3, 1, 2));
    back(&zram);
    let new = data_of(3, 2, 2);
    write(&zram, 3, &new);
    expect_blocks(&zram, 0);
    assert!(read(&zram, 3) == new);
    zram.write(3 * PAGE as u64, &[0; PAGE]).expect("room");
    expect_blocks(&zram, 0);
}

#[test]
fn a_part_of_a_written_back_page_is_written() {
    for compressed in [false, true] {
        let (zram, _) = backed(compressed);
        let mut expected = data_of(3, 1, 3);
        write(&zram, 3, &expected);
        back(&zram);
        zram.write(3 * PAGE as u64 + 100, &[9; 50]).expect("room");
        expected[100..150].fill(9);
        assert!(read(&zram, 3) == expected);
        expect_blocks(&zram, 0);
        back(&zram);
        zram.discard(3 * PAGE as u64, 10).expect("in range");
        expected[..10].fill(0);
        assert!(read(&zram, 3) == expected);
        expect_blocks(&zram, 0);
    }
}

#[test]
fn blocks_are_free_again_when_pages_are_discarded_in_every_way() {
    for way in ways::all() {
        for worker in [false, true] {
            let disk = blocks(PAGES);
            let config = way.of(config(Some(disk)));
            let zram = Zram::new(memory(worker), config).expect("a device");
            (0..PAGES).for_each(|page| write(&zram, page, &data_of(page, 1, 2)));
            assert_eq!(back(&zram).pages, PAGES);
            zram.discard_pages(5..6).expect("in range");
            zram.discard_pages(300..1100).expect("in range");
            zram.make_room();
            zram.memory().flush_deferred();
            expect_blocks(&zram, 299);
            assert_eq!(read(&zram, 700), vec![0; PAGE]);
            assert!(read(&zram, 299) == data_of(299, 1, 2));
            write(&zram, 700, &data_of(700, 2, 2));
            assert_eq!(back(&zram).pages, 1);
            assert!(read(&zram, 700) == data_of(700, 2, 2));
        }
    }
}

/// Writes pages of the sizes that lz4 makes of ratios, the longest first: huge, then less and less.
fn write_sizes(zram: &Zram) {
    for (page, ratio) in [(10, 9), (11, 1), (12, 3), (13, 40)] {
        write(zram, page, &data_of(page, 1, ratio));
    }
}

fn where_written_back(zram: &Zram) -> Vec<u64> {
    let states = zram.block_states(0..zram.pages());
    states.filter(|state| state.written_back).map(|state| state.page).collect()
}

#[test]
fn the_largest_go_first_and_the_limit_ends_it() {
    let (zram, _) = backed(false);
    write_sizes(&zram);
    zram.set_writeback_limit(2);
    zram.enable_writeback_limit(true);
    let ended = zram.write_back(&everything(&zram));
    assert!(matches!(ended, Err(PostError::LimitReached)), "{ended:?}");
    assert_eq!(where_written_back(&zram), [11, 12]);
    assert_eq!(zram.writeback_limit(), 0);
    zram.enable_writeback_limit(false);
    assert_eq!(back(&zram).pages, 2);
    assert_eq!(zram.writeback_limit(), 0, "not counted while it is off");
    expect_blocks(&zram, 4);
}

#[test]
fn a_maximum_of_pages_is_kept() {
    let (zram, _) = backed(false);
    write_sizes(&zram);
    let some = WriteBack { max_pages: Some(3), ..everything(&zram) };
    assert_eq!(zram.write_back(&some).expect("room").pages, 3);
    assert_eq!(where_written_back(&zram), [10, 11, 12]);
}

#[test]
fn every_block_is_used_and_a_full_disk_ends_it() {
    let zram = device(config(Some(blocks(2))));
    write_sizes(&zram);
    let ended = zram.write_back(&everything(&zram));
    assert!(matches!(ended, Err(PostError::NoSpace)), "{ended:?}");
    assert_eq!(where_written_back(&zram), [11, 12]);
    expect_blocks(&zram, 2);
    zram.discard_pages(11..12).expect("in range");
    assert!(zram.write_back(&everything(&zram)).is_err(), "one more had room");
    assert_eq!(where_written_back(&zram), [10, 12]);
}

#[test]
fn each_mode_takes_what_it_names() {
    let (zram, _) = backed(false);
    (0..4).for_each(|page| write(&zram, page, &data_of(page, 1, 1 + page as usize % 2)));
    zram.mark_idle(Idle::All).expect("nothing to go wrong");
    read(&zram, 0);
    read(&zram, 1); // idle are 2, huge, and 3
    let take = |pages: Selection| {
        zram.write_back(&pages.into()).expect("room");
        where_written_back(&zram)
    };
    assert_eq!(take(Selection::Incompressible), [0_u64; 0]);
    assert_eq!(take(Selection::HugeIdle), [2]);
    assert_eq!(take(Selection::Huge), [0, 2]);
    assert_eq!(take(Selection::Idle), [0, 2, 3]);
    assert_eq!(take(Selection::Pages(vec![0..=0])), [0, 2, 3]);
    assert_eq!(take(Selection::Pages(vec![0..=0, 1..=2, 0..=9])), [0, 1, 2, 3]);
    expect_blocks(&zram, 4);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let zram = device(config(None));
    assert!(matches!(zram.write_back(&everything(&zram)), Err(PostError::NoBacking)));
    assert_eq!(zram.bd_stat().to_string(), "       0        0        0\n");
    let (zram, _) = backed(false);
    let pages = |range| zram.write_back(&Selection::Pages(vec![range]).into());
    assert!(matches!(pages(5..=PAGES), Err(PostError::OutOfRange { page: PAGES, .. })));
    #[expect(clippy::reversed_empty_ranges, reason = "that is what is refused")]
    let reversed = pages(9..=5);
    assert!(matches!(reversed, Err(PostError::Invalid(_))));
    assert!(matches!(zram.set_writeback_batch_size(0), Err(PostError::Invalid(_))));
    assert_eq!(zram.writeback_batch_size(), 32);
}

#[test]
fn neighbouring_blocks_are_written_together() {
    let (zram, disk) = backed(false);
    (0..64).for_each(|page| write(&zram, page, &data_of(page, 1, 2)));
    let requests = disk.requests();
    back(&zram);
    assert_eq!(disk.requests() - requests, 8, "eight pages in each");
    zram.discard_pages(0..64).expect("in range");
    zram.set_writeback_batch_size(1).expect("not 0");
    (0..9).for_each(|page| write(&zram, page, &data_of(page, 2, 2)));
    let requests = disk.requests();
    back(&zram);
    assert_eq!(disk.requests() - requests, 9, "one page in flight");
    (0..9).for_each(|page| assert!(read(&zram, page) == data_of(page, 2, 2)));
}

#[test]
fn a_batch_without_a_bound_is_written_4_mib_at_a_time() {
    let pages = 2 * 1024 + 1;
    let backing = blocks(pages);
    let disk: Arc<dyn Disk> = Arc::clone(&backing) as Arc<dyn Disk>;
    let zram = device(ZramConfig { disksize: pages * PAGE as u64, ..config(Some(disk)) });
    zram.set_writeback_batch_size(u32::MAX).expect("not 0");
    (0..pages).for_each(|page| write(&zram, page, &data_of(page, 1, 4)));
    let requests = backing.requests();
    zram.write_back(&WriteBack::from(Selection::Pages(vec![0..=pages - 1]))).expect("room");
    assert_eq!(backing.requests() - requests, 3, "1024 blocks in a request");
    assert_eq!(zram.check_backing().expect("all of it is right"), pages);
}

fn plan(after: u64, verbs: Verbs, span: FaultSpan, fault: Fault) -> FaultPlan {
    FaultPlan { after, verbs, span, fault }
}

#[test]
fn a_disk_that_refuses_writes_costs_nothing_but_the_request() {
    for fault in [Fault::Backing, Fault::NoSpace, Fault::NoMemory, Fault::Corrupt] {
        let (zram, disk) = backed(false);
        (0..100).for_each(|page| write(&zram, page, &data_of(page, 1, 2)));
        zram.set_writeback_limit(200);
        zram.enable_writeback_limit(true);
        disk.arm(plan(1, Verbs::Writes, FaultSpan::Once, fault));
        let ended = zram.write_back(&everything(&zram));
        assert!(matches!(ended, Err(PostError::Backing(_))), "{ended:?}");
        let written = zram.bd_stat().writes;
        assert_eq!(written, 92, "a request of eight pages failed, the rest went on");
        assert_eq!(zram.writeback_limit(), 200 - written, "what failed is not counted");
        expect_blocks(&zram, written);
        disk.arm(plan(0, Verbs::Writes, FaultSpan::Forever, fault));
        assert!(zram.write_back(&everything(&zram)).is_err());
        assert_eq!(zram.writeback_limit(), 200 - written);
        expect_blocks(&zram, written);
        disk.disarm();
        assert_eq!(back(&zram).pages, 8);
        (0..100).for_each(|page| assert!(read(&zram, page) == data_of(page, 1, 2)));
    }
}

#[test]
fn a_disk_that_refuses_reads_loses_nothing() {
    let (zram, disk) = backed(true);
    write(&zram, 3, &data_of(3, 1, 2));
    back(&zram);
    disk.arm(plan(0, Verbs::Reads, FaultSpan::Forever, Fault::NoSpace));
    let mut data = vec![0; PAGE];
    let failed = zram.read_page(3, &mut data).expect_err("the disk is gone");
    assert!(matches!(failed, DiskError::Backing(_)), "{failed}");
    let failed = zram.write(3 * PAGE as u64, &[1; 10]).expect_err("the rest is not to be had");
    assert!(matches!(failed, DiskError::Backing(_)), "{failed}");
    assert_eq!((zram.io_stat().failed_reads, zram.io_stat().failed_writes), (1, 1));
    disk.disarm();
    assert!(read(&zram, 3) == data_of(3, 1, 2));
    write(&zram, 3, &data_of(3, 2, 2)); // needs nothing of what is there
    expect_blocks(&zram, 0);
}

/// Things that happen to files: another process cuts one short, a file system is full, and both are
/// put right again.
#[test]
fn a_file_that_is_cut_short_loses_nothing_that_is_in_memory() {
    let path = std::env::temp_dir().join(format!("ramfold-zram-{}", std::process::id()));
    let file = std::fs::File::create(&path).expect("a file");
    file.set_len(PAGES * PAGE as u64).expect("room");
    let disk = FileDisk::open(&path, false).expect("a file");
    std::fs::remove_file(&path).expect("it is there"); // it stays while it is open
    let zram = device(config(Some(Arc::new(disk))));
    (0..40).for_each(|page| write(&zram, page, &data_of(page, 1, 2)));
    let some = WriteBack { max_pages: Some(20), ..everything(&zram) };
    assert_eq!(zram.write_back(&some).expect("room").pages, 20);
    let lost = where_written_back(&zram);
    file.set_len(0).expect("shorter");
    for page in 0..40 {
        let mut data = vec![0; PAGE];
        match zram.read_page(page, &mut data) {
            Ok(()) => assert!(!lost.contains(&page) && data == data_of(page, 1, 2)),
            Err(error) => assert!(lost.contains(&page), "{error}: page {page}"),
        }
    }
    assert_eq!(zram.io_stat().failed_reads, 20);
    lost.iter().for_each(|&page| write(&zram, page, &data_of(page, 2, 2)));
    expect_blocks(&zram, 0);
    assert_eq!(back(&zram).pages, 40, "a file grows again");
    assert!(lost.iter().all(|&page| read(&zram, page) == data_of(page, 2, 2)));
}

#[test]
fn a_block_that_changed_on_the_disk_is_found() {
    for compressed in [false, true] {
        let (zram, disk) = backed(compressed);
        write(&zram, 3, &data_of(3, 1, 2));
        back(&zram);
        let mut byte = [0];
        disk.read(17, &mut byte).expect("in range");
        disk.write(17, &[byte[0] ^ 4]).expect("in range");
        let mut data = vec![0; PAGE];
        let failed = zram.read_page(3, &mut data).expect_err("it is damaged");
        let offset = 3 * PAGE as u64;
        assert!(matches!(failed, DiskError::Corrupt { offset: at } if at == offset), "{failed}");
        assert!(zram.write(offset, &[1; 10]).is_err(), "no part of it is to be had");
        assert_eq!(zram.io_stat().failed_reads, 1);
        disk.write(17, &byte).expect("in range");
        assert!(read(&zram, 3) == data_of(3, 1, 2), "put right again");
    }
}

/// The generator of CRC-32, x^32 first: added to a message anywhere, it changes no CRC-32.
const CRC_GENERATOR: u64 = 0x1_04c1_1db7;

/// The checksum was once a CRC-32. A process that could write to the backing file could then make
/// pages with the checksum of those whose place they took. A read gave their bytes.
#[test]
fn a_block_that_is_forged_is_no_page() {
    let (zram, disk) = backed(false);
    write(&zram, 3, &data_of(3, 1, 2));
    back(&zram);
    let mut block = vec![0; PAGE];
    disk.read(0, &mut block).expect("in range");
    assert!(block == data_of(3, 1, 2), "the page is there as it is");
    for bit in (0..33).filter(|bit| CRC_GENERATOR >> (32 - bit) & 1 == 1) {
        block[800 + bit / 8] ^= 1 << (bit % 8);
    }
    disk.write(0, &block).expect("in range");
    let mut data = vec![0; PAGE];
    let read = zram.read_page(3, &mut data);
    assert!(read.is_err(), "bytes that were never written: {:?}", &data[800..805]);
}

/// A block of another page, or of this one from another time, was right once.
#[test]
fn a_block_from_elsewhere_is_no_page() {
    let (zram, disk) = backed(false);
    (0..2).for_each(|page| write(&zram, page, &data_of(page, 1, 2)));
    back(&zram);
    let at = |page| {
        (0..2).map(|block| block * PAGE as u64).find(|&at| {
            let mut block = vec![0; PAGE];
            disk.read(at, &mut block).expect("in range");
            block == data_of(page, 1, 2)
        })
    };
    let (first, second) = (at(0).expect("it is there"), at(1).expect("it is there"));
    disk.write(first, &data_of(1, 1, 2)).expect("in range");
    assert!(zram.read_page(0, &mut vec![0; PAGE]).is_err(), "it is page 1's");
    disk.write(first, &data_of(0, 1, 2)).expect("in range");
    assert!(read(&zram, 0) == data_of(0, 1, 2), "put right again");
    disk.write(second, &data_of(0, 1, 2)).expect("in range");
    assert!(zram.read_page(1, &mut vec![0; PAGE]).is_err(), "it is page 0's");
}

#[test]
fn what_a_page_was_is_known_of_it() {
    let (zram, _) = backed(true);
    write(&zram, 7, &data_of(7, 1, 1));
    write(&zram, 8, &[5; PAGE]);
    write(&zram, 9, &data_of(9, 1, 2));
    zram.mark_idle(Idle::All).expect("nothing to go wrong");
    let lines = |zram: &Zram| -> Vec<String> {
        zram.block_states(0..zram.pages()).map(|state| state.to_string()).collect()
    };
    let line = |page: u64, flags: &str| format!("{page:>12} {:>12}.000000 {flags}\n", 0);
    assert_eq!(lines(&zram), [line(7, "..hi.."), line(8, "s....."), line(9, "...i..")]);
    zram.write_back(&Selection::Huge.into()).expect("room");
    assert_eq!(lines(&zram), [line(7, ".wh..."), line(8, "s....."), line(9, "...i..")]);
    assert_eq!(zram.block_states(8..9).count(), 1);
}

/// `bd_stat` once showed the blocks of discarded pages for as long as the worker had other work.
#[test]
fn blocks_of_discarded_pages_are_nobodys_at_once_and_pending_until_they_are_given_back() {
    const PAGES: u64 = 512;
    let memory = memory(true);
    let backing: Arc<dyn Disk> = blocks(PAGES + 1);
    let config = ZramConfig { backing: Some(backing), ..ZramConfig::new("zram0", PAGES * 4096) };
    let zram = Zram::new(Arc::clone(&memory), config).expect("a device");
    (0..PAGES).for_each(|page| write(&zram, page, &data_of(page, 1, 3)));
    let all = WriteBack::from(Selection::Pages(vec![0..=PAGES - 1]));
    assert_eq!(zram.write_back(&all).expect("room").pages, PAGES);
    assert_eq!((zram.bd_stat().count, zram.bd_stat().pending), (PAGES, 0));
    let (unblock, blocked) = std::sync::mpsc::channel::<()>();
    memory.defer(0, move || {
        // Nothing is sent. This ends when the sender is gone.
        let _ = blocked.recv();
    });
    zram.discard(0, PAGES * 4096).expect("in range");
    let stat = zram.bd_stat();
    assert_eq!(
        (stat.count, stat.pending),
        (0, PAGES),
        "no page is there, and no block is free yet"
    );
    assert!(stat.to_string().starts_with("       0 "), "so says the kernel's line: {stat}");
    drop(unblock);
    memory.flush_deferred();
    assert_eq!((zram.bd_stat().count, zram.bd_stat().pending), (0, 0));
    zram.check().expect("no defect");
}
