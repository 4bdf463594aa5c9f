//! Ours against the kernel's in the same run, and against what was published.
//!
//! ```text
//!   run r, 256 MiB, 2 at once   kernel-zram sync   zram sync   zram range
//!                                     ^------ ratio ---'-----------'
//! ```
//!
//! Invariant: a ratio is of two rows of one run; above 1 is better for ours, whatever is compared.

use super::published;
use crate::frame::note;
use crate::kernel::{self, zswap};
use crate::rows::Row;

/// The ratios: how they are called, and of what.
pub(super) const RATIOS: [(&str, &str); 5] = [
    ("speedup_vs_kernel", "teardown_ms"),
    ("drain_speedup_vs_kernel", "drain_ms"),
    ("pageout_speedup_vs_kernel", "pageout_ns_per_page"),
    ("faultin_speedup_vs_kernel", "faultin_ns_per_page"),
    ("faultin_sequential_speedup_vs_kernel", "faultin_sequential_ns_per_page"),
];

/// Adds the ratios to every row of ours whose run has the other.
pub(super) fn speedups(runs: &mut [Row]) {
    let others: Vec<Row> = runs.to_vec();
    for row in runs.iter_mut().filter(|row| !is_kernels(row)) {
        let find = |wanted: &dyn Fn(&Row) -> bool| {
            let same = |other: &&Row| CASE.iter().all(|&field| other.get(field) == row.get(field));
            others.iter().filter(same).find(|other| wanted(other))
        };
        let ratio = |other: Option<&Row>, of: &str| {
            other.and_then(|other| other.number(of)).zip(row.number(of)).map(|(a, b)| a / b)
        };
        let kernels = find(&is_kernels);
        let ratios = RATIOS.map(|(name, of)| (name, ratio(kernels, of)));
        let pool = |other: &Row| {
            ["design", "shards"].iter().all(|&field| other.get(field) == row.get(field))
        };
        let slots = find(&|other| other.is("free", "slots") && pool(other));
        let slots = ratio(slots, "teardown_ms");
        let base = find(&|other| {
            other.is("design", "hierarchical") && other.get("free") == row.get("free")
        });
        let base = ratio(base, "teardown_ms");
        for (name, ratio) in ratios {
            row.set(name, ratio);
        }
        row.set("speedup_vs_slots", slots).set("speedup_vs_hierarchical", base);
    }
}

fn is_kernels(row: &Row) -> bool {
    row.is("backend", kernel::NAME) || row.is("backend", zswap::NAME)
}

const CASE: [&str; 3] = ["mib", "threads", "run"];

/// Adds `published_speedup` to every row, and a sentence where there is one.
pub(super) fn beside_published(rows: &mut [Row], notes: &mut Vec<String>) {
    for row in rows {
        let text = |field| row.get(field).as_str().unwrap_or_default().to_owned();
        let number = |field| row.get(field).as_u64().unwrap_or_default();
        let (free, mib, threads) = (text("free"), number("mib"), number("threads") as u32);
        let backend = text("backend");
        // What is deferred there is entries, and here their range.
        let there = if (&*backend, &*free) == ("zswap", "range") { "entries" } else { &*free };
        let line = published::find(&backend, there, mib, threads);
        row.set("published_speedup", line.map(published::Published::speedup));
        let Some((line, ours)) = line.zip(row.number("speedup_vs_slots")) else { continue };
        let there = line.speedup();
        note(
            notes,
            format!(
                "{free}, {threads} x {mib} MiB: {ours:.2} x slots here, {there:.2} x base in S3"
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(backend: &str, free: &str, run: u32, teardown_ms: f64) -> Row {
        let mut row = Row::default();
        row.set("backend", backend).set("free", free).set("mib", 256).set("threads", 1);
        row.set("run", run).set("teardown_ms", teardown_ms);
        row
    }

    #[test]
    fn ratios_are_of_the_same_run() {
        let mut runs = [
            row("zram", "range", 0, 2.0),
            row(kernel::NAME, "sync", 0, 20.0),
            row(kernel::NAME, "sync", 1, 30.0),
            row("zram", "range", 1, 6.0),
            row("zram", "range", 2, 6.0),
        ];
        speedups(&mut runs);
        let ratios = runs.each_ref().map(|row| row.number("speedup_vs_kernel"));
        assert_eq!(ratios, [Some(10.0), None, None, Some(5.0), None]);
        assert_eq!(runs[0].number("speedup_vs_slots"), None, "nobody emptied slots");
        assert_eq!(runs[0].number("drain_speedup_vs_kernel"), None, "nobody measured it");
    }

    #[test]
    fn deferral_is_compared_with_the_same_without_it() {
        let mut runs = [
            row("zram", "slots", 0, 9.0),
            row("zram", "entries", 0, 3.0),
            row("zram", "entries", 1, 1.0),
        ];
        speedups(&mut runs);
        let ratios = runs.each_ref().map(|row| row.number("speedup_vs_slots"));
        assert_eq!(ratios, [Some(1.0), Some(3.0), None]);
    }

    #[test]
    fn a_lock_design_is_compared_with_the_base_freed_alike() {
        let with = |design: &str, free: &str, ms| {
            let mut row = row("zram", free, 0, ms);
            row.set("design", design);
            row
        };
        let mut runs = [
            with("hierarchical", "entries", 1.0),
            with("hierarchical", "slots", 9.0),
            with("class", "slots", 6.0),
            with("class", "entries", 2.0),
        ];
        speedups(&mut runs);
        let of = |field| runs.each_ref().map(|row| row.number(field).unwrap());
        assert_eq!(of("speedup_vs_hierarchical"), [1.0, 1.0, 1.5, 0.5]);
        assert_eq!(of("speedup_vs_slots"), [9.0, 1.0, 1.0, 3.0], "of the same pool");
    }

    #[test]
    fn what_was_published_stands_beside_ours() {
        let mut entries = row("zram", "entries", 0, 2.0);
        entries.set("speedup_vs_slots", 8.0);
        let mut rows = [entries, row("zram", "range", 0, 1.0)];
        let mut notes = Vec::new();
        beside_published(&mut rows, &mut notes);
        assert_eq!(notes, ["entries, 1 x 256 MiB: 8.00 x slots here, 7.17 x base in S3"]);
        assert!(rows[1].number("published_speedup").is_none());
    }
}
