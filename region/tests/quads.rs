//! Quads and stretches: what a fault brings in beside its page, and when.
//!
//! Pages are touched in an order that no window of a walk follows, because the next page is in
//! memory already.

#[path = "setting/rng.rs"]
mod rng;
mod setting;

use ramfold_region::{FaultCosts, PagerConfig, Quads, Region, RegionConfig, RegionStats};
use rng::Rng;
use std::hint::black_box;
use std::time::Duration;

const PAGE: usize = 4096;
/// 128 groups, of which about one in 16 is watched.
const PAGES: usize = 8192;
/// Pages that the window of another CPU, left by an earlier cycle, may bring in by accident.
const STRAY: u64 = 16;

/// All pages: the last of each group, then the last but one.
fn order() -> impl Iterator<Item = usize> {
    (0..64).rev().flat_map(|page| (0..PAGES / 64).map(move |group| group * 64 + page))
}

/// The costs measured on one machine. Neighbours pay from 27 per cent on, and with a limit from 56.
const COSTS: FaultCosts = FaultCosts {
    overhead: Duration::from_nanos(6900),
    page: Duration::from_nanos(2500),
    page_out: Duration::from_nanos(6000),
};

/// A region of written pages. `None` if the system has no userfaultfd for us.
fn region(config: &RegionConfig) -> Option<Region> {
    let config_of_pager = PagerConfig { fault_costs: Some(COSTS), ..PagerConfig::default() };
    let pager = setting::pager(&config_of_pager)?;
    let mut region = Region::map(&pager, PAGES * PAGE, config).expect("a region");
    for (number, page) in region.as_mut_slice().chunks_mut(PAGE).enumerate() {
        page[100..108].copy_from_slice(&(number as u64 + 1).to_le_bytes());
        Rng::new(number as u64).fill(&mut page[200..700]);
    }
    Some(region)
}

/// Pages all out, and touches those that are wanted. Returns by how much the counts changed.
fn cycle(region: &Region, mut wanted: impl FnMut(usize) -> bool) -> RegionStats {
    region.control().page_out(0..PAGES * PAGE).expect("out");
    let before = region.stats();
    for page in order().filter(|&page| wanted(page)) {
        let bytes = region.bytes(page * PAGE + 100..page * PAGE + 108).expect("there");
        assert_eq!(bytes, (page as u64 + 1).to_le_bytes(), "page {page}");
    }
    let after = region.stats();
    assert_eq!(region.control().check().expect("there"), [""; 0]);
    RegionStats {
        faults: after.faults - before.faults,
        stored_faults: after.stored_faults - before.stored_faults,
        pages_in: after.pages_in - before.pages_in,
        pages_around: after.pages_around - before.pages_around,
        ..after
    }
}

#[test]
fn dense_touches_have_stretches_brought_in() {
    let Some(region) = region(&RegionConfig::default()) else { return };
    // In the first cycle they are found to pay on the way. After that it is known.
    let first = cycle(&region, |_| true);
    assert_eq!((first.pages_in, first.stored_pages), (PAGES as u64, 0));
    assert!(first.faults < PAGES as u64 / 2, "{first:?}");
    let then = cycle(&region, |_| true);
    assert_eq!((then.pages_in, then.stored_faults), (PAGES as u64, then.faults));
    assert_eq!(then.pages_around, then.pages_in - then.faults);
    // One in 16 elsewhere, and all pages of the groups that are watched.
    let least = PAGES as u64 / 16;
    assert!(then.faults > least - STRAY && then.faults < least + PAGES as u64 / 10, "{then:?}");
    assert_eq!((then.density, then.fault_costs), (100, COSTS), "as the pager was told");
}

#[test]
fn what_faults_cost_is_measured_where_nobody_says_it() {
    let Some(pager) = setting::pager(&PagerConfig::default()) else { return };
    let region = || {
        let region = Region::map(&pager, PAGES * PAGE, &RegionConfig::default());
        let mut region = region.expect("a region");
        region.as_mut_slice().chunks_mut(PAGE).for_each(|page| Rng::new(1).fill(&mut page[..700]));
        region
    };
    let touched = region();
    let before = touched.stats().fault_costs;
    assert!(before.overhead > Duration::ZERO, "{before:?}");
    touched.control().page_out(0..PAGES * PAGE).expect("out");
    for page in order() {
        black_box(touched.as_slice()[page * PAGE]);
    }
    let learnt = touched.stats().fault_costs;
    assert_ne!(learnt, before, "from what went and what came");
    let new = region().stats().fault_costs;
    assert_eq!(
        new,
        FaultCosts { overhead: learnt.overhead, ..before },
        "measured for a pager once"
    );
}

#[test]
fn half_of_all_pages_have_stretches_brought_in() {
    let Some(region) = region(&RegionConfig::default()) else { return };
    let mut rng = Rng::new(4);
    let faults: u64 = (0..3).map(|_| cycle(&region, |_| rng.below(2) == 0).faults).sum();
    // Pages alone would be a half each time, and with quads a quarter.
    assert!(faults < 3 * PAGES as u64 / 6, "{faults}");
    assert!((40..55).contains(&region.stats().density), "{:?}", region.stats());
}

/// One of four quads is touched. Of the 15 pages beside one in its stretch, three are wanted.
#[test]
fn quads_far_from_each_other_come_without_what_is_between() {
    let Some(region) = region(&RegionConfig::default()) else { return };
    for _ in 0..3 {
        let stats = cycle(&region, |page| page / 4 % 4 == page / 16 % 4);
        assert_eq!(stats.pages_in, PAGES as u64 / 4, "no page that is not wanted: {stats:?}");
        assert!(stats.faults < PAGES as u64 / 6 && stats.density == 100, "{stats:?}");
    }
}

#[test]
fn sparse_touches_have_pages_come_alone() {
    let Some(region) = region(&RegionConfig::default()) else { return };
    let mut rng = Rng::new(1);
    for _ in 0..5 {
        let stats = cycle(&region, |_| rng.below(10) == 0);
        assert!(stats.faults > 700 && stats.density < 25, "{stats:?}");
        assert!(stats.pages_around < STRAY, "{stats:?}");
    }
}

#[test]
fn a_stretch_with_holes_comes_whole() {
    let Some(region) = region(&RegionConfig::default()) else { return };
    let control = region.control();
    for _ in 0..2 {
        cycle(&region, |_| true);
    }
    let (mut whole, mut alone) = (0, 0);
    for first in (0..PAGES).step_by(64) {
        // Pages of the second stretch, with pages in memory between them and around.
        for out in [17..19, 22..25, 31..32] {
            control.page_out((first + out.start) * PAGE..(first + out.end) * PAGE).expect("out");
        }
        let touched = first + [17, 24, 31][first / 64 % 3];
        let before = region.stats();
        assert_eq!(region.as_slice()[touched * PAGE + 100], (touched + 1) as u8);
        let after = region.stats();
        match (after.pages_in - before.pages_in, after.pages_around - before.pages_around) {
            (6, 5) => whole += 1,
            (1, 0) => alone += 1,
            other => panic!("{other:?} at {touched}"),
        }
        assert_eq!(after.faults - before.faults, 1);
        for page in first + 16..first + 32 {
            assert_eq!(region.as_slice()[page * PAGE + 100], (page + 1) as u8);
        }
    }
    // Pages of watched groups come alone.
    assert!((1..PAGES / 64 / 8).contains(&alone), "{whole} and {alone}");
    assert_eq!(control.check().expect("there"), [""; 0]);
}

#[test]
fn a_change_is_followed() {
    let Some(region) = region(&RegionConfig::default()) else { return };
    let mut rng = Rng::new(2);
    let (dense, mut sparse) = (|_| true, |_| rng.below(10) == 0);
    for _ in 0..3 {
        cycle(&region, dense);
    }
    let wasted = cycle(&region, &mut sparse);
    assert!(wasted.pages_around > 0, "what was seen last counts: {wasted:?}");
    for _ in 0..12 {
        cycle(&region, &mut sparse);
    }
    let found = cycle(&region, &mut sparse);
    assert!(found.pages_around < STRAY, "{found:?}");
    cycle(&region, dense);
    assert!(cycle(&region, dense).faults < PAGES as u64 / 2, "and back");
}

#[test]
fn with_a_limit_more_of_them_have_to_be_wanted() {
    for (limit, pays) in [(None, true), (Some(2 * PAGES * PAGE), false)] {
        let Some(region) = region(&RegionConfig { resident_limit: limit, ..Default::default() })
        else {
            return;
        };
        let mut rng = Rng::new(3);
        for _ in 0..3 {
            cycle(&region, |_| rng.below(100) < 50);
        }
        let stats = cycle(&region, |_| rng.below(100) < 50);
        // In a stretch that is touched, 7 of the other 15 pages are: 47 per cent.
        assert!((40..55).contains(&stats.density), "{stats:?}");
        assert_eq!(stats.pages_around >= STRAY, pays, "{stats:?}");
    }
}

#[test]
fn none_come_where_they_are_not_asked_for_and_all_where_they_are() {
    for (quads, faults) in [(Quads::Never, PAGES as u64), (Quads::Always, PAGES as u64 / 4)] {
        let Some(region) = region(&RegionConfig { quads, ..Default::default() }) else { return };
        for _ in 0..2 {
            let stats = cycle(&region, |_| true);
            assert!(stats.faults > faults - STRAY && stats.faults <= faults, "{stats:?}");
        }
    }
}

#[test]
fn quads_stop_at_the_limit() {
    let quads = Quads::Always;
    let Some(region) = region(&RegionConfig { quads, ..Default::default() }) else { return };
    region.control().page_out(0..PAGES * PAGE).expect("out");
    region.set_resident_limit(Some(ramfold_region::LIMIT_MIN)).expect("limited");
    let pinned = region.pin(0..ramfold_region::LIMIT_MIN).expect("pinned");
    let before = region.stats();
    assert!(before.resident_pages * PAGE as u64 >= ramfold_region::LIMIT_MIN as u64, "{before:?}");
    for page in [4000, 5001, 6002] {
        assert_eq!(region.as_slice()[page * PAGE + 100], (page + 1) as u8);
    }
    assert_eq!(region.stats().pages_around, before.pages_around);
    drop(pinned);
}

#[test]
fn what_is_out_of_a_quad_comes_whatever_is_there() {
    let quads = Quads::Always;
    let Some(mut region) = region(&RegionConfig { quads, ..Default::default() }) else { return };
    let control = region.control();
    let out = |pages: [usize; 4]| {
        control.page_out(64 * PAGE..128 * PAGE).expect("out");
        pages.map(|page| 64 + page)
    };
    let came = |region: &Region, page: usize| {
        let before = region.stats();
        assert_eq!(region.as_slice()[page * PAGE + 100], (page + 1) as u8);
        let after = region.stats();
        assert_eq!(after.faults - before.faults, 1);
        (after.pages_in - before.pages_in, after.pages_around - before.pages_around)
    };
    let came_there = |region: &Region, page: usize| {
        let before = region.stats().faults;
        region.as_slice()[page * PAGE + 100] == (page + 1) as u8 && region.stats().faults == before
    };
    let [first, second, third, fourth] = out([4, 5, 6, 7]);
    assert_eq!(came(&region, third), (4, 3));
    // The third page is in memory, and separates the fourth from the others.
    control.page_out(first * PAGE..third * PAGE).expect("out");
    control.page_out(fourth * PAGE..(fourth + 1) * PAGE).expect("out");
    assert_eq!(came(&region, fourth), (3, 2));
    assert!([first, second].iter().all(|&page| came_there(&region, page)));
    // It is forgotten, so it is zeros and no page of the store.
    let [first, second, ..] = out([4, 5, 6, 7]);
    region.discard(first * PAGE..second * PAGE).expect("forgotten");
    assert_eq!(came(&region, second), (3, 2));
    assert_eq!(region.as_slice()[first * PAGE + 100], 0);
    assert_eq!(control.check().expect("there"), [""; 0]);
}

#[test]
fn forgotten_pages_are_on_trial_no_more() {
    let Some(mut region) = region(&RegionConfig::default()) else { return };
    // One page of each stretch is touched, so that all others of watched groups are on trial.
    let stats = cycle(&region, |page| page % 16 == 1);
    assert_eq!(stats.density, 0);
    region.discard(0..PAGES * PAGE).expect("forgotten");
    assert_eq!(region.control().check().expect("there"), [""; 0]);
    assert!(region.as_slice().iter().step_by(PAGE).all(|&byte| byte == 0));
    assert_eq!(region.stats().density, 0);
}
