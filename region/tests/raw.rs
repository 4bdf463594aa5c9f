//! A region that is reached by its address: pins that outlive the call, discards by any thread.
//!
//! The tests reach the bytes as a system call does, through `/proc/self/mem`, which needs the pages
//! in memory.

#![forbid(unsafe_code)]

mod setting;

use ramfold_region::{Field, PagerConfig, Plot, RawRegion, RegionConfig, RegionError, Teardown};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

const PAGE: usize = 4096;
const LEN: usize = 4 << 20;

/// The memory of this process, as the system sees it.
struct Bytes(File);

impl Bytes {
    fn open() -> Bytes {
        let file = OpenOptions::new().read(true).write(true).open("/proc/self/mem");
        Bytes(file.expect("a process may open its own memory"))
    }

    fn write(&self, region: &RawRegion, at: usize, bytes: &[u8]) {
        let address = (region.as_ptr().addr() + at) as u64;
        self.0.write_all_at(bytes, address).expect("pinned pages are there");
    }

    fn read(&self, region: &RawRegion, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let address = (region.as_ptr().addr() + at) as u64;
        self.0.read_exact_at(&mut bytes, address).expect("pinned pages are there");
        bytes
    }
}

fn region() -> Option<RawRegion> {
    let pager = setting::pager(&PagerConfig::default())?;
    let region = RawRegion::map(&pager, LEN - 5, &RegionConfig::default()).expect("a region");
    assert_eq!(region.len(), LEN, "rounded up to a page");
    Some(region)
}

#[test]
fn bytes_come_back_after_they_were_out() {
    let (Some(region), bytes) = (region(), Bytes::open()) else { return };
    let content: Vec<u8> = (0..LEN).map(|at| (at / 9) as u8).collect();
    region.pin(0..LEN).expect("pinned");
    bytes.write(&region, 0, &content);
    region.unpin(0..LEN).expect("it was pinned");
    let out = region.control().page_out(0..LEN).expect("out");
    assert_eq!(out.stored, (LEN / PAGE) as u64);
    region.pin(1..LEN - 1).expect("pinned");
    assert_eq!(bytes.read(&region, 0, LEN), content);
    region.unpin(1..LEN - 1).expect("it was pinned");
    region.teardown(Teardown::Sync);
}

#[test]
fn a_pin_holds_until_the_last_unpin_of_its_range() {
    let Some(region) = region() else { return };
    let out = || region.control().page_out(0..64 * PAGE).expect("tried").stored;
    for _ in 0..2 {
        region.pin(0..64 * PAGE).expect("pinned");
    }
    let not_pinned = |range| matches!(region.unpin(range), Err(RegionError::NotPinned { .. }));
    assert!(not_pinned(0..PAGE), "another range");
    assert_eq!(out(), 0);
    region.unpin(0..64 * PAGE).expect("it was pinned");
    assert_eq!(out(), 0, "pinned once more");
    region.unpin(0..64 * PAGE).expect("it was pinned twice");
    assert_eq!(out(), 64);
    assert!(not_pinned(0..64 * PAGE), "it has no pin any more");
    assert!(matches!(region.pin(0..LEN + 1), Err(RegionError::OutOfRange { .. })));
    assert_eq!(region.control().check().expect("there"), [""; 0]);
}

#[test]
fn what_is_pinned_is_not_discarded() {
    let (Some(region), bytes) = (region(), Bytes::open()) else { return };
    region.pin(3 * PAGE + 1..5 * PAGE).expect("pinned");
    bytes.write(&region, 3 * PAGE, &[7; 2 * PAGE]);
    for range in [3 * PAGE..4 * PAGE, 0..LEN, 4 * PAGE..5 * PAGE] {
        assert!(matches!(region.discard(range), Err(RegionError::Pinned { .. })));
    }
    region.discard(5 * PAGE..LEN).expect("beside it");
    region.discard(0..3 * PAGE).expect("before it");
    assert_eq!(bytes.read(&region, 3 * PAGE, 2 * PAGE), [7; 2 * PAGE]);
    region.unpin(3 * PAGE + 1..5 * PAGE).expect("it was pinned");
    region.discard(0..LEN).expect("nothing is pinned");
    region.pin(0..LEN).expect("pinned");
    assert!(bytes.read(&region, 0, LEN).iter().all(|&byte| byte == 0));
}

#[test]
fn threads_use_and_discard_parts_of_one_region_at_once() {
    let (Some(region), bytes) = (region(), Bytes::open()) else { return };
    let part = LEN / 4;
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (region, bytes) = (&region, &bytes);
            scope.spawn(move || {
                let own = number * part..(number + 1) * part;
                for round in 1..40 {
                    let content = vec![(number * 40 + round) as u8; part];
                    region.pin(own.clone()).expect("pinned");
                    bytes.write(region, own.start, &content);
                    region.unpin(own.clone()).expect("it was pinned");
                    region.control().page_out(own.clone()).expect("out");
                    region.pin(own.clone()).expect("pinned");
                    assert_eq!(bytes.read(region, own.start, part), content);
                    region.unpin(own.clone()).expect("it was pinned");
                    region.discard(own.clone()).expect("nobody else uses it");
                }
            });
        }
    });
    assert_eq!(region.control().check().expect("there"), [""; 0]);
}

#[test]
fn a_limit_is_set_and_taken_away() {
    let Some(region) = region() else { return };
    assert!(matches!(
        region.set_resident_limit(Some(PAGE)),
        Err(RegionError::LimitTooSmall { .. })
    ));
    region.set_resident_limit(Some(2 << 20)).expect("a limit");
    assert_eq!(region.stats().limit_pages, Some((2 << 20) / PAGE as u64));
    region.set_resident_limit(None).expect("none");
    assert_eq!(region.stats().limit_pages, None);
}

#[test]
fn thousands_of_plots_share_a_field_and_come_back() {
    let (Some(pager), bytes) = (setting::pager(&PagerConfig::default()), Bytes::open()) else {
        return;
    };
    let config = RegionConfig { resident_limit: Some(8 << 20), ..RegionConfig::default() };
    let field = Field::map(&pager, 1 << 30, &config).expect("a field");
    let all = field.free_bytes();
    let plot = |number: usize| {
        let plot = field.plot(2 * PAGE - 1).expect("room");
        assert_eq!(plot.len(), 2 * PAGE);
        plot.pin(0..plot.len()).expect("pinned");
        let address = plot.as_ptr().addr() as u64;
        bytes.0.write_all_at(&[number as u8 | 1; 2 * PAGE], address).expect("it is there");
        plot.unpin(0..plot.len()).expect("it was pinned");
        plot
    };
    let mut plots: Vec<(usize, Plot)> = (0..4000).map(|number| (number, plot(number))).collect();
    assert!(matches!(field.plot(1 << 30), Err(RegionError::FieldFull { .. })));
    plots[7].1.page_out(0..PAGE).expect("out, unless the limit was first");
    let places = plots[7].1.stats();
    assert_eq!((places.pages, places.stored_pages >= 1), (2, true));
    plots.retain(|(number, _)| number % 3 > 0);
    let pinned = &plots[5].1;
    pinned.pin(PAGE..2 * PAGE).expect("pinned");
    assert!(matches!(pinned.pin(0..3 * PAGE), Err(RegionError::OutOfRange { .. })));
    for (number, plot) in &plots {
        plot.pin(0..2 * PAGE).expect("pinned");
        let mut content = [0; 2 * PAGE];
        bytes.0.read_exact_at(&mut content, plot.as_ptr().addr() as u64).expect("it is there");
        assert_eq!(content, [*number as u8 | 1; 2 * PAGE]);
    }
    drop(plots);
    assert_eq!(field.free_bytes(), all);
    let whole = field.plot(1 << 30).expect("all of it is free");
    assert_eq!(whole.page_out(0..1 << 30).expect("out").busy, 0, "no pin is left");
    let stats = field.stats();
    assert_eq!((stats.stored_pages, stats.resident_pages), (0, 0));
}

#[test]
fn a_field_with_much_room_looks_at_its_plots_alone() {
    let (Some(pager), bytes) = (setting::pager(&PagerConfig::default()), Bytes::open()) else {
        return;
    };
    let field = Field::map(&pager, 64 << 30, &RegionConfig::default()).expect("a field");
    let mut plots: Vec<Plot> = (0..100).map(|_| field.plot(16 << 20).expect("room")).collect();
    for plot in &plots {
        bytes.0.write_all_at(&[7; PAGE], plot.as_ptr().addr() as u64).expect("it is there");
    }
    // Every second one is given back.
    let mut number = 0;
    plots.retain(|_| (number += 1, number % 2 == 0).1);
    let out = field.page_out().expect("out");
    assert_eq!((out.stored, out.busy, out.refused), (50, 0, 0));
    let stats = field.stats();
    let looked_at = stats.pages - stats.unregistered_pages;
    assert!(looked_at < 2 * 100 * (16 << 20) / PAGE as u64, "{looked_at} pages");
}
