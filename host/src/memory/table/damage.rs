//! Each rule of a table's recount, against a table that was damaged on purpose.
//!
//! Claim: the recount names the invariant that the damage breaks.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Table;

/// A table in steps with two pages in use.
fn table() -> Table<AtomicU64> {
    let table: Table<AtomicU64> = Table::in_steps(1 << 16, None).expect("address space");
    let entries = 0..2 * Table::<AtomicU64>::PER_PAGE;
    table.open(entries.clone()).expect("a step");
    table.touch(entries);
    table.check().expect("sound before the damage");
    table
}

#[track_caller]
fn shows(damage: impl FnOnce(&Table<AtomicU64>), finding: &str) {
    let table = table();
    damage(&table);
    let defect = table.check().expect_err("damaged").to_string();
    assert!(defect.contains(finding), "{defect:?} is not about {finding:?}");
}

#[test]
fn a_wrong_count_of_held_pages_breaks_t2() {
    // relaxed: one thread, here and below.
    shows(|table| _ = table.held_pages.fetch_add(1, Ordering::Relaxed), "T2: held_bytes says");
    shows(|table| _ = table.held[0].fetch_or(1 << 9, Ordering::Relaxed), "T2: held_bytes says");
}
