//! Compressing pages again, and idle marks.
//!
//! Claims
//! - A recompressed page reads as before and takes less, and lower priorities leave it alone.
//! - Every kind takes the pages it names, the largest first. Thresholds and maxima are kept.
//! - A page that gets no smaller stays unchanged, and is incompressible after the last algorithm.
//! - An access makes a page used, and a written page has the first algorithm again.
//! - A page that cannot be read ends the run, and a full memory loses nothing.

use std::time::Duration;

use crate::devices::{PAGE, backed, config, data_of, device, everything, read, write};
use disk::Disk;
use ramfold_zram::{
    BlockState, Idle, PostError, Recompress, RecompressKind, RecompressReport, Selection, Zram,
    ZramConfig,
};

/// lz4, then zstd at two levels.
fn several() -> ZramConfig {
    let codec = |name: &str| Some(name.parse().expect("a codec"));
    ZramConfig { recompression: [codec("zstd:1"), codec("zstd:19"), None], ..config(None) }
}

/// Pages 10..14: 13 is the smallest, 11 is huge and random, and 12 and 10 are between.
fn with_sizes() -> Zram {
    let zram = device(several());
    for (page, ratio) in [(10, 9), (11, 1), (12, 2), (13, 40)] {
        write(&zram, page, &data_of(page, 1, ratio));
    }
    zram
}

#[track_caller]
fn expect_pages(zram: &Zram) {
    for (page, ratio) in [(10, 9), (11, 1), (12, 2), (13, 40)] {
        assert!(read(zram, page) == data_of(page, 1, ratio), "page {page}");
    }
    zram.check().expect("no defect");
}

fn pages_where(zram: &Zram, is_so: impl Fn(&BlockState) -> bool) -> Vec<u64> {
    zram.block_states(0..zram.pages()).filter(|it| is_so(it)).map(|it| it.page).collect()
}

fn recompressed(zram: &Zram) -> Vec<u64> {
    pages_where(zram, |state| state.recompressed)
}

#[track_caller]
fn run(zram: &Zram, what: Recompress) -> RecompressReport {
    zram.recompress(&what).expect("room")
}

#[test]
fn a_recompressed_page_reads_as_it_was_and_takes_less() {
    let zram = with_sizes();
    let before = zram.compr_data_size();
    let report = run(&zram, Recompress::with(1));
    assert_eq!((report.pages, report.no_smaller, report.used), (3, 1, 0));
    assert_eq!(zram.compr_data_size(), before - report.bytes_saved);
    assert!(report.bytes_saved > 400, "a quarter of three pages: {}", report.bytes_saved);
    assert_eq!(recompressed(&zram), [10, 12, 13]);
    assert_eq!(
        pages_where(&zram, |state| state.incompressible),
        [0_u64; 0],
        "there is another algorithm"
    );
    expect_pages(&zram);
    let again = run(&zram, Recompress::with(1));
    assert_eq!((again.pages, again.no_smaller), (0, 1), "only the random one is tried again");
    let last = run(&zram, Recompress::with(2));
    assert_eq!(last.pages + last.no_smaller, 4);
    assert_eq!(pages_where(&zram, |state| state.incompressible), {
        let mut kept = vec![11];
        kept.extend([10, 12, 13].into_iter().filter(|_| last.pages == 0));
        kept.sort_unstable();
        kept
    });
    assert_eq!(run(&zram, Recompress::with(2)), RecompressReport::default(), "nothing is left");
    expect_pages(&zram);
}

#[test]
fn a_written_page_is_the_first_algorithms_again() {
    let zram = with_sizes();
    run(&zram, Recompress::with(2));
    write(&zram, 10, &data_of(10, 2, 9));
    write(&zram, 11, &data_of(11, 1, 1));
    zram.write(12 * PAGE as u64, &data_of(12, 1, 2)[..100]).expect("room");
    assert_eq!(recompressed(&zram), [13]);
    assert_eq!(pages_where(&zram, |state| state.incompressible), [0_u64; 0]);
    zram.discard_pages(13..14).expect("in range");
    write(&zram, 13, &data_of(13, 1, 40));
    assert_eq!(recompressed(&zram), [0_u64; 0]);
    assert!(read(&zram, 10) == data_of(10, 2, 9));
    write(&zram, 10, &data_of(10, 1, 9));
    expect_pages(&zram);
}

#[test]
fn each_kind_takes_what_it_names() {
    let kinds = [
        (RecompressKind::HugeIdle, vec![]),
        (RecompressKind::Huge, vec![]),
        (RecompressKind::Idle, vec![10, 13]),
        (RecompressKind::All, vec![10, 12, 13]),
    ];
    for (kind, expected) in kinds {
        let zram = with_sizes();
        zram.mark_idle(Idle::All).expect("nothing to go wrong");
        read(&zram, 12);
        let what = Recompress { kind, ..Recompress::with(1) };
        let report = run(&zram, what);
        assert_eq!(recompressed(&zram), expected, "{kind:?}");
        let huge = !matches!(kind, RecompressKind::Idle);
        let tried = expected.len() + usize::from(huge || kind == RecompressKind::Idle);
        assert_eq!(
            (report.pages + report.no_smaller) as usize,
            tried,
            "{kind:?}: and the huge one"
        );
        let idle = pages_where(&zram, |state| state.idle);
        assert!(!idle.contains(&11), "{kind:?}: what was tried is not idle any more");
    }
}

#[test]
fn the_largest_come_first_and_a_maximum_is_kept() {
    let zram = with_sizes();
    let what = Recompress { max_pages: Some(2), ..Recompress::with(1) };
    let report = run(&zram, what);
    assert_eq!((report.pages, report.no_smaller), (1, 1), "the random one counts");
    assert_eq!(recompressed(&zram), [12]);
}

#[test]
fn a_threshold_is_kept_by_what_was_and_by_what_comes() {
    let zram = with_sizes();
    run(&zram, Recompress { threshold: 2000, ..Recompress::with(1) });
    assert_eq!(recompressed(&zram), [12], "from 2048 and more to about 1500");
    let zram = with_sizes();
    run(&zram, Recompress { threshold: 1000, ..Recompress::with(1) });
    assert_eq!(recompressed(&zram), [0_u64; 0], "about 1500 are no gain");
    expect_pages(&zram);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let zram = with_sizes();
    let refused = |what: Recompress| zram.recompress(&what).map_err(|error| error.errno());
    for priority in [0, 3, 4, 255] {
        assert_eq!(refused(Recompress::with(priority)), Err(22), "{priority}");
    }
    assert_eq!(refused(Recompress { threshold: 4096, ..Recompress::with(1) }), Err(22));
    assert_eq!(zram.mark_idle(Idle::OlderThan(Duration::ZERO)).map_err(|it| it.errno()), Err(22));
    expect_pages(&zram);
}

#[test]
fn a_full_memory_loses_nothing() {
    let zram = device(ZramConfig { mem_limit: 1 << 20, ..several() });
    let mut stored = 0;
    while zram.write_page(stored, &data_of(stored, 1, 2)).is_ok() {
        stored += 1;
    }
    let outcome = zram.recompress(&Recompress::with(1));
    assert!(matches!(outcome, Ok(_) | Err(PostError::NoMemory)), "{outcome:?}");
    assert!((0..stored).all(|page| read(&zram, page) == data_of(page, 1, 2)));
    zram.check().expect("no defect");
}

#[test]
fn pages_are_idle_until_they_are_used() {
    let zram = with_sizes();
    write(&zram, 14, &[5; PAGE]);
    assert_eq!(zram.mark_idle(Idle::All).expect("nothing to go wrong"), 4, "not the same-filled");
    read(&zram, 10);
    write(&zram, 11, &data_of(11, 1, 1));
    zram.write(12 * PAGE as u64 + 5, &data_of(12, 1, 2)[5..7]).expect("room");
    assert_eq!(pages_where(&zram, |state| state.idle), [13]);
    zram.discard_pages(13..14).expect("in range");
    write(&zram, 13, &data_of(13, 1, 40));
    assert_eq!(pages_where(&zram, |state| state.idle), [0_u64; 0]);
    assert_eq!(zram.mark_idle(Idle::All).expect("nothing to go wrong"), 4);
    assert_eq!(zram.mark_idle(Idle::All).expect("nothing to go wrong"), 0, "they are");
    expect_pages(&zram);
}

#[test]
fn a_moved_page_stays_what_it_was() {
    let zram = device(several());
    (0..200).for_each(|page| write(&zram, page, &data_of(page, 1, 2)));
    run(&zram, Recompress::with(1));
    zram.mark_idle(Idle::All).expect("nothing to go wrong");
    (0..200).filter(|page| page % 10 > 0).for_each(|page| {
        zram.discard_pages(page..page + 1).expect("in range");
    });
    assert!(zram.compact() > 0, "there is something to move");
    let kept: Vec<u64> = (0..200).step_by(10).collect();
    assert_eq!(pages_where(&zram, |state| state.idle && state.recompressed), kept);
    assert!(kept.iter().all(|&page| read(&zram, page) == data_of(page, 1, 2)));
}

#[test]
fn recompressed_pages_are_written_back_as_they_are() {
    for compressed_writeback in [false, true] {
        let (_, backing) = backed(false);
        let several = several();
        let backing: std::sync::Arc<dyn Disk> = backing;
        let zram = device(ZramConfig { compressed_writeback, backing: Some(backing), ..several });
        for (page, ratio) in [(10, 9), (11, 1), (12, 2), (13, 40)] {
            write(&zram, page, &data_of(page, 1, ratio));
        }
        run(&zram, Recompress::with(2));
        zram.write_back(&Selection::Incompressible.into()).expect("room");
        assert_eq!(pages_where(&zram, |state| state.written_back), [11]);
        zram.write_back(&everything(&zram)).expect("room");
        assert_eq!(recompressed(&zram), [10, 12, 13], "it is known of them still");
        expect_pages(&zram);
        assert_eq!(run(&zram, Recompress::with(2)), RecompressReport::default());
    }
}
