//! Each rule of a region's recount, against a region that was damaged on purpose.
//!
//! Claims
//! - A region that nobody damaged has no defect.
//! - The recount names what is wrong. Invariants of a group alone are broken in `group`.

use std::sync::Arc;

use crate::neighbours::is_watched;
use crate::places::{Group, bits};
use crate::resources::Count;
use crate::state::Folded;
use crate::terms::GROUP_PAGES;
use crate::{Memory, MemoryConfig, Pager, PagerConfig, Region, RegionConfig};

const GROUPS: usize = 64;

/// A region whose first half is in the store, and the rest in memory. `None` if this system folds
/// no memory.
fn region() -> Option<Region> {
    let memory = Memory::new(MemoryConfig::for_disk(64 << 20)).expect("a memory");
    let pager = Pager::new(memory, &PagerConfig::default());
    let pager = pager.inspect_err(|error| eprintln!("skipped: needs {error}")).ok()?;
    let bytes = GROUPS * GROUP_PAGES * 4096;
    let mut region = Region::map(&pager, bytes, &RegionConfig::default()).expect("a region");
    region.as_mut_slice().fill(1);
    region.folded.learn_all().expect("memory");
    assert!(region.control().page_out(0..bytes / 2).expect("it goes").stored > 0);
    Some(region)
}

#[track_caller]
fn shows(damage: impl FnOnce(&Folded), finding: &str) {
    let Some(region) = region() else { return };
    let folded = Arc::clone(&region.folded);
    assert_eq!(folded.check(), [""; 0], "sound before the damage");
    damage(&folded);
    let defects = folded.check();
    let found = defects.iter().any(|defect| defect.contains(finding));
    assert!(found, "{defects:?} are not about {finding:?}");
    // What is damaged cannot be torn down.
    std::mem::forget(region);
}

fn change(folded: &Folded, index: usize, change: impl FnOnce(&mut Group)) {
    change(&mut folded.lock_known(index).expect("registered"));
}

/// The first group of those in the store that is watched, or that is not.
fn stored(watched: bool) -> usize {
    (0..GROUPS / 2).find(|&index| is_watched(index) == watched).expect("some are")
}

#[test]
fn a_wrong_counter_is_found() {
    for count in [Count::Resident, Count::Staged, Count::Stored, Count::DeadCopies] {
        shows(|folded| folded.counters.add(count, 1), &format!("{count:?}: counted"));
    }
}

#[test]
fn a_page_in_memory_that_its_group_does_not_know_is_found() {
    let forget = |group: &mut Group| group.forget(bits(3, 1));
    shows(|folded| change(folded, GROUPS - 1, forget), "a page is in memory that should be out");
}

#[test]
fn a_group_that_contradicts_itself_is_found() {
    let twice = |group: &mut Group| group.keep(bits(3, 1));
    shows(|folded| change(folded, GROUPS - 1, twice), "a page is in two places (G1, G5)");
}

#[test]
fn trials_that_nobody_counted_are_found() {
    let trial = |group: &mut Group| {
        let stored = group.stored();
        group.trials_mut().quads.touched(3, stored);
    };
    shows(|folded| change(folded, stored(true), trial), "trials: counted");
    shows(|folded| change(folded, stored(false), trial), "it has trials (G7)");
}
