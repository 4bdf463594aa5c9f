//! `lab teardown`: regions that are paged out and dropped together.

use crate::support::{json, lab, measured, number, rows};
use serde_json::Value;

/// What is measured of everybody.
pub(crate) const MEASURED: [&str; 8] = [
    "teardown_ms",
    "freed_ms",
    "release_ms",
    "drain_ms",
    "pageout_ns_per_page",
    "faultin_ns_per_page",
    "faultin_sequential_ns_per_page",
    "growth_bytes",
];

/// Whether folded memory works here; in CI it must.
pub(crate) fn has_userfault(document: &Value) -> bool {
    let has = !rows(document).is_empty();
    assert!(has || std::env::var("CI").is_err(), "CI is to have userfaultfd");
    if !has {
        println!("skipped: needs userfaultfd");
    }
    has
}

/// What is measured of a device too, which has no pages to page.
const OF_DEVICES: [&str; 5] = ["teardown_ms", "freed_ms", "release_ms", "drain_ms", "growth_bytes"];

#[test]
fn regions_are_torn_down_in_both_ways() {
    let arguments = ["teardown", "--quick", "--mib", "2", "--threads", "1,2", "--free"];
    let document = json("teardown", &[&arguments[..], &["sync,range"]].concat());
    if !has_userfault(&document) {
        return;
    }
    assert_eq!(cases(&document), ["sync 1", "range 1", "sync 2", "range 2"]);
    for row in rows(&document) {
        measured(row, &MEASURED);
        in_order(row, "zram");
        assert!(row["fallbacks"].is_null(), "no queue is involved: {row}");
    }
}

/// All regions share one cache, and so do areas that are emptied page by page.
#[test]
fn regions_over_a_cache_are_torn_down_and_areas_are_emptied_in_three_ways() {
    let arguments = ["teardown", "--quick", "--mib", "2", "--threads", "2", "--backend", "zswap"];
    let document = json("teardown-zswap", &arguments);
    if !has_userfault(&document) {
        return;
    }
    let regions = ["sync 2", "range 2", "sync-closed 2", "range-closed 2"];
    let areas = ["slots 2", "handles 2", "entries 2"];
    assert_eq!(cases(&document), [&regions[..], &areas[..]].concat());
    for row in rows(&document) {
        let of_area =
            row["free"].as_str().is_some_and(|free| areas.contains(&&*format!("{free} 2")));
        measured(row, if of_area { &OF_DEVICES[..] } else { &MEASURED[..] });
        assert_eq!(row["fallbacks"].is_number(), of_area, "{row}");
        in_order(row, "zswap");
        assert!(number(row, "speedup_vs_slots") > 0.0, "{row}");
    }
}

/// How many values find no room is a matter of who is faster; every way ends with nothing.
#[test]
fn devices_are_emptied_slot_by_slot_in_three_ways() {
    let arguments = ["teardown", "--quick", "--mib", "4", "--threads", "1", "--free"];
    let more = ["slots,handles,entries", "--buffer-bytes", "8K"];
    let document = json("teardown-slots", &[&arguments[..], &more].concat());
    if !has_userfault(&document) {
        return;
    }
    assert_eq!(cases(&document), ["slots 1", "handles 1", "entries 1"]);
    for row in rows(&document) {
        measured(row, &OF_DEVICES);
        measured(row, &["fallbacks"]);
        in_order(row, "zram");
        let queued = row["free"] != "slots";
        assert!(queued || number(row, "fallbacks_max") == 0.0, "{row}");
        assert_eq!(row["buffer_bytes"].is_number(), queued, "{row}");
        assert_eq!(row["faultin_ns_per_page"], Value::Null);
        assert!(number(row, "speedup_vs_slots") > 0.0, "{row}");
    }
}

/// One device for both threads; every design and its shards, and the base beside each of them.
#[test]
fn a_shared_device_is_emptied_under_every_lock_design() {
    let arguments = ["teardown", "--quick", "--mib", "2", "--threads", "2", "--free", "slots,sync"];
    let more = ["--design", "hierarchical,pool,class", "--shards", "one,spread"];
    let more = [&more[..], &["--algorithm", "lzo-rle"]].concat();
    let document = json("teardown-designs", &[&arguments[..], &more].concat());
    if !has_userfault(&document) {
        return;
    }
    let (slots, regions): (Vec<&Value>, Vec<&Value>) =
        rows(&document).iter().partition(|row| row["free"] == "slots");
    let layout = |row: &&Value| format!("{} {}", row["design"], row["shards"]).replace('"', "");
    let layouts: Vec<String> = slots.iter().map(layout).collect();
    assert_eq!(layouts, ["hierarchical one", "pool one", "class one", "class spread"]);
    for row in slots {
        measured(row, &["teardown_ms", "speedup_vs_hierarchical"]);
        assert_eq!(number(row, "speedup_vs_slots"), 1.0, "it is compared with its own pool");
    }
    let [region] = regions[..] else { panic!("a region has one design: {document}") };
    assert_eq!(layout(&region), "class spread");
    let refused = lab().args(["teardown", "--free", "sync", "--design", "pool"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "no region has another design");
}

fn cases(document: &Value) -> Vec<String> {
    let case = |row: &Value| format!("{} {}", row["free"].as_str().unwrap(), row["threads"]);
    rows(document).iter().map(case).collect()
}

/// One moment after the other, and a store smaller than what it holds.
fn in_order(row: &Value, backend: &str) {
    assert_eq!(row["backend"], backend);
    let moments = ["teardown_ms", "freed_ms", "drain_ms"].map(|field| number(row, field));
    assert!(moments.is_sorted(), "{moments:?} in {row}");
    let held = number(row, "threads") * number(row, "mib") * f64::from(1 << 20);
    let growth = number(row, "growth_bytes");
    assert!(growth > 0.0 && growth < held, "{growth} bytes hold {held}");
}

#[test]
fn more_than_the_machine_has_is_refused() {
    let output = lab().args(["teardown", "--mib", "65536", "--threads", "64"]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("more than half of what can be had"), "{errors}");
    assert_eq!(output.status.code(), Some(2));
}
