//! Whole pages by number.
//!
//! Claims
//! - They are the same pages as those of the disk, and are counted in the same way.
//! - These are refused and change nothing: a page outside the disk, a buffer of another length, a
//!   range that ends before it starts, and a change of a read-only disk.

use disk::{Disk, DiskError};
use ramfold_zram::{Zram, ZramConfig};
use zsmalloc::{LEAF_CELLS, Memory, MemoryConfig};

const PAGE: usize = 4096;
const PAGES: u64 = 2 * LEAF_CELLS as u64 + 7;

fn device(read_only: bool) -> Zram {
    let config = MemoryConfig {
        arena_frames: 1 << 14,
        entries_max: 1 << 14,
        expected_bytes: 1 << 24,
        worker: false,
    };
    let memory = Memory::new(config).expect("address space");
    let disksize = PAGES * PAGE as u64;
    Zram::new(memory, ZramConfig { read_only, ..ZramConfig::new("zram0", disksize) })
        .expect("a device")
}

/// Content of a page: an interned word, a repeated byte or something to compress, by number.
fn content(page: u64) -> Vec<u8> {
    match page % 3 {
        0 => (page + (1 << 40)).to_le_bytes().repeat(PAGE / 8),
        1 => vec![page as u8; PAGE],
        _ => (0..PAGE as u64).map(|at| ((at * page) >> 5) as u8).collect(),
    }
}

#[test]
fn pages_are_those_of_the_disk() {
    let zram = device(false);
    assert_eq!(zram.pages(), PAGES);
    for page in 0..PAGES {
        zram.write_page(page, &content(page)).expect("room");
    }
    let gone = 100..LEAF_CELLS as u64 * 2 + 2;
    zram.discard_pages(gone.clone()).expect("in range");
    zram.discard_pages(PAGES..PAGES).expect("no page, at the end");
    for page in 0..PAGES {
        let expected = if gone.contains(&page) { vec![0; PAGE] } else { content(page) };
        let (mut by_number, mut by_offset) = (vec![1; PAGE], vec![2; PAGE]);
        zram.read_page(page, &mut by_number).expect("in range");
        zram.read(page * PAGE as u64, &mut by_offset).expect("in range");
        assert!(by_number == expected && by_offset == expected, "page {page}");
    }
    assert_eq!(zram.stat().orig_data_size, (PAGES - (gone.end - gone.start)) * PAGE as u64);
    assert_eq!(zram.io_stat().notify_free, gone.end - gone.start);
    zram.check().expect("no defect");
}

#[track_caller]
fn expect_out_of_range(result: Result<(), DiskError>) {
    assert!(matches!(result, Err(DiskError::OutOfRange { .. })), "{result:?}");
}

#[test]
fn what_is_none_of_the_disks_is_refused() {
    let zram = device(false);
    zram.write_page(PAGES - 1, &content(2)).expect("room");
    let mut data = [0; PAGE + 1];
    for page in [PAGES, PAGES + 1, u64::MAX / PAGE as u64 + 1, u64::MAX] {
        expect_out_of_range(zram.read_page(page, &mut data[..PAGE]));
        expect_out_of_range(zram.write_page(page, &data[..PAGE]));
        expect_out_of_range(zram.discard_pages(0..page.max(PAGES + 1)));
    }
    for len in [0, PAGE - 1, PAGE + 1] {
        expect_out_of_range(zram.read_page(0, &mut data[..len]));
        expect_out_of_range(zram.write_page(0, &data[..len]));
    }
    #[expect(clippy::reversed_empty_ranges, reason = "what is refused")]
    expect_out_of_range(zram.discard_pages(PAGES..0));
    assert_eq!(zram.stat().orig_data_size, PAGE as u64, "nothing was changed");
    assert_eq!(zram.io_stat().notify_free, 0, "nothing was discarded");
}

#[test]
fn a_read_only_disk_is_only_read() {
    let zram = device(true);
    let mut data = [1; PAGE];
    assert!(matches!(zram.write_page(0, &data), Err(DiskError::ReadOnly)));
    assert!(matches!(zram.discard_pages(0..1), Err(DiskError::ReadOnly)));
    zram.read_page(0, &mut data).expect("in range");
    assert_eq!(data, [0; PAGE]);
}
