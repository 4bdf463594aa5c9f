//! Units of two pages are made, and end, while their pages are used.
//!
//! Claims
//! - A page that is used while its unit is made is in the unit or not, and reads as it was written
//!   either way.
//! - The last two pages of a unit leave at once, and one of the two threads frees it.
//! - A unit that is made anew has all pages that live, and none that left meanwhile.
//! - A page of a leaf that is yet to be drained is in a unit that its successor cannot join.

use std::sync::Arc;
use std::time::Duration;

use loom::thread;
use ramfold_zram::{Density, TiersConfig, Zram, ZramConfig};
use zsmalloc::{LEAF_CELLS, Memory, MemoryConfig};

use crate::{LEAF, blob, byte_at, model_within};

/// Each step that makes or reads a unit compresses in earnest, so that two preemptions take half an
/// hour.
const PREEMPTIONS: Option<usize> = Some(1);
const LEAF_PAGES: u64 = LEAF_CELLS as u64;

fn device(worker: bool) -> Arc<Zram> {
    let config =
        MemoryConfig { arena_frames: 512, entries_max: 6, expected_bytes: 1 << 30, worker };
    let memory = Memory::new(config).expect("small tables");
    let mut config = ZramConfig { track_ages: true, ..ZramConfig::new("zram0", LEAF) };
    config.recompression[2] = Some("zstd:1".parse().expect("a codec"));
    let zram = Zram::new(memory, config).expect("a device");
    [1, 2].iter().zip(0..).for_each(|(&byte, page)| write(&zram, page, byte));
    Arc::new(zram)
}

fn write(zram: &Zram, page: u64, byte: u8) {
    zram.write_page(page, &blob(byte)).expect("room");
}

fn tend(zram: &Zram) {
    let age = Duration::ZERO;
    zram.tend(&TiersConfig { age, ..TiersConfig::new(Density::Dense) }).expect("memory");
}

fn pages_in_units(zram: &Zram) -> u64 {
    zram.stat().units.expect("it may have some").pages
}

/// `disturb` comes at any moment while the unit of both pages is made, or made anew.
fn while_made(anew: bool, disturb: fn(&Zram), expected: [u8; 2]) {
    model_within(PREEMPTIONS, move || {
        let zram = device(false);
        if anew {
            tend(&zram);
            assert_eq!(pages_in_units(&zram), 2);
            write(&zram, 1, 2);
        }
        let other = Arc::clone(&zram);
        let thread = thread::spawn(move || disturb(&other));
        tend(&zram);
        thread.join().expect("the other");
        zram.check().expect("no defect");
        assert_eq!([0, 1].map(|page| byte_at(&zram, page)), expected);
        zram.check().expect("no defect after the pages were taken out");
    });
}

#[test]
fn read_while_a_unit_is_made() {
    while_made(false, |zram| assert_eq!(byte_at(zram, 0), 1), [1, 2]);
}

#[test]
fn overwrite_while_a_unit_is_made() {
    while_made(false, |zram| write(zram, 0, 3), [3, 2]);
}

#[test]
fn discard_of_the_page_that_lives_while_a_unit_is_made_anew() {
    while_made(true, |zram| zram.discard_pages(0..1).expect("in range"), [0, 2]);
}

#[test]
fn read_of_the_page_that_lives_while_a_unit_is_made_anew() {
    while_made(true, |zram| assert_eq!(byte_at(zram, 0), 1), [1, 2]);
}

#[test]
fn the_last_two_pages_leave_at_once() {
    model_within(PREEMPTIONS, || {
        let zram = device(false);
        tend(&zram);
        assert_eq!(pages_in_units(&zram), 2);
        let other = Arc::clone(&zram);
        let thread = thread::spawn(move || other.discard_pages(1..2).expect("in range"));
        assert_eq!(byte_at(&zram, 0), 1);
        thread.join().expect("the other");
        assert_eq!((pages_in_units(&zram), byte_at(&zram, 1)), (0, 0));
        zram.check().expect("no defect");
    });
}

/// The leaf is drained by the other thread, at any moment.
#[test]
fn pages_are_written_and_packed_while_their_old_leaf_is_drained() {
    model_within(PREEMPTIONS, || {
        let zram = device(true);
        tend(&zram);
        zram.discard_pages(0..LEAF_PAGES).expect("in range");
        let other = Arc::clone(&zram);
        let thread = thread::spawn(move || other.memory().flush_deferred());
        [3, 4].iter().zip(0..).for_each(|(&byte, page)| write(&zram, page, byte));
        tend(&zram);
        thread.join().expect("the other");
        zram.check().expect("no defect");
        assert_eq!([0, 1].map(|page| byte_at(&zram, page)), [3, 4]);
        zram.check().expect("no defect after the pages were taken out");
    });
}
