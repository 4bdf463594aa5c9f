//! Every call that may hold what a fault waits for is noted while it runs.
//!
//! A signal handler of the program that touched a region in the middle of such a call once waited
//! for its own thread, for ever. Now that ends the process with a message.
//! `host/tests/span/calls.rs` tests that, because handlers can be made there. Here a test counts
//! which calls are noted. It is alone in its process, because the count is the process's.

mod setting;

use host::fault::calls_begun;
use ramfold_region::{PagerConfig, Region, RegionConfig, Teardown};

const PAGE: usize = 4096;

#[test]
fn every_call_on_a_region_is_noted() {
    let Some(pager) = setting::pager(&PagerConfig::default()) else { return };
    let map = || Region::map(&pager, 256 * PAGE, &RegionConfig::default()).expect("a region");
    let (mut region, dropped) = (map(), map());
    let control = region.control();
    let noted = |what: &str, call: &mut dyn FnMut()| {
        let before = calls_begun();
        call();
        assert_ne!(calls_begun(), before, "{what}");
    };
    region.as_mut_slice().fill(7);
    let all = 0..256 * PAGE;
    noted("page_out", &mut || assert_eq!(control.page_out(all.clone()).expect("out").refused, 0));
    noted("page_out_coldest", &mut || {
        assert_eq!(control.page_out_coldest(1).expect("out").refused, 0)
    });
    noted("prefetch", &mut || control.prefetch(all.clone()).expect("in"));
    noted("cold", &mut || control.cold(all.clone()).expect("noted"));
    noted("stats", &mut || assert_eq!(control.stats().expect("there").pages, 256));
    noted("check", &mut || assert_eq!(control.check().expect("there"), [""; 0]));
    noted("stats of a region", &mut || assert_eq!(region.stats().pages, 256));
    noted("store_stat", &mut || drop(region.store_stat()));
    noted("buffer_bytes", &mut || assert!(pager.buffer_bytes() > 0));
    noted("a limit", &mut || region.set_resident_limit(Some(1 << 20)).expect("a limit"));
    noted("pin", &mut || std::mem::forget(region.pin(0..PAGE).expect("pinned")));
    let pinned = std::cell::Cell::new(region.pin(64 * PAGE..65 * PAGE).ok());
    noted("the end of a pin", &mut || drop(pinned.take()));
    drop(pinned);
    noted("pin_mut", &mut || std::mem::forget(region.pin_mut(0..PAGE).expect("pinned")));
    let pinned = std::cell::Cell::new(region.pin_mut(64 * PAGE..65 * PAGE).ok());
    noted("the end of a pin_mut", &mut || drop(pinned.take()));
    drop(pinned);
    noted("discard", &mut || region.discard(0..PAGE).expect("discarded"));
    noted("unmap", &mut || region.unmap(PAGE..2 * PAGE).expect("given back"));
    let (mut region, mut dropped) = (Some(region), Some(dropped));
    noted("drop", &mut || drop(dropped.take()));
    noted("teardown", &mut || region.take().expect("there").teardown(Teardown::Sync));
}
