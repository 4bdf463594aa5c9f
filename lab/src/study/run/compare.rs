//! How long a job took beside the plain one and beside the kernel's, and what is to be said.
//!
//! Invariant: a ratio is of two runs of one job in one round, both of which ended with the right
//! line.

use super::balance::TOLERANCE;
use crate::frame::note;
use crate::ground::size;
use crate::kernel::NAME;
use crate::rows::Row;

/// Adds the ratios to every run that has something beside it.
pub(super) fn ratios(runs: &mut [Row]) {
    let all = runs.to_vec();
    for row in runs {
        let plain = all.iter().find(|other| other.is("form", "plain") && same(row, other, &ROUND));
        let kernel = row.is("form", "ramfold").then(|| beside(row, &all)).flatten();
        for (field, base) in [("time_vs_plain", plain), ("time_vs_kernel", kernel)] {
            let ratio = base.and_then(|base| Some(row.number("wall_s")? / base.number("wall_s")?));
            row.set(field, ratio);
        }
    }
}

/// What runs of one round of a job agree in.
const ROUND: [&str; 2] = ["job", "run"];

/// The kernel's run beside one of ours: with the same algorithm, or another if it has not that one.
fn beside<'a>(row: &Row, all: &'a [Row]) -> Option<&'a Row> {
    let of_limit = |other: &&Row| {
        other.is("form", NAME) && same(row, other, &ROUND) && same(row, other, &["limit_percent"])
    };
    let mut others = all.iter().filter(of_limit);
    let alike = others.clone().find(|other| same(row, other, &["algorithm"]));
    alike.or_else(|| others.next())
}

fn same(row: &Row, other: &Row, fields: &[&str]) -> bool {
    fields.iter().all(|field| row.get(field) == other.get(field))
}

/// Sentences on what is not as it should be.
pub(super) fn remarks(rows: &[Row], notes: &mut Vec<String>) {
    for row in rows {
        let of = |field: &str| row.number(&format!("{field}_max")).unwrap_or(0.0);
        let text = |field: &str| row.get(field).as_str().unwrap_or_default().to_owned();
        let (job, form, algorithm) = (text("job"), text("form"), text("algorithm"));
        let Some(percent) = row.number("limit_percent") else { continue };
        let case = format!("{job} at {percent} %, {form} with {algorithm}");
        let mib = |bytes: f64| format!("{:.0} MiB", size::mib(bytes as u64));
        if of("over_bound_bytes") > 0.0 {
            let (most, over) = (mib(of("peak_bytes")), mib(of("over_bound_bytes")));
            note(notes, format!("{case}: {most}, which is {over} over limit + 1/16 + 16 MiB"));
        }
        if of("late") > 0.0 {
            note(notes, format!("{case}: ended because it took too long"));
        }
        if of("killed") > 0.0 && form != "kernel-probe" {
            note(notes, format!("{case}: processes were killed by the kernel"));
        }
        let held = row.number("peak_of_limit").unwrap_or(1.0);
        if form == NAME && (held - 1.0).abs() > TOLERANCE {
            let held = held * 100.0;
            note(notes, format!("{case}: group and store have {held:.0} % of the limit"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(form: &str, algorithm: &str, percent: Option<u32>, run: u32, wall_s: f64) -> Row {
        let mut row = Row::default();
        row.set("job", "sort").set("form", form).set("limit_percent", percent);
        row.set("algorithm", algorithm).set("run", run).set("wall_s", wall_s);
        row
    }

    #[test]
    fn ratios_are_of_one_round_and_limit() {
        let mut runs = vec![
            run("plain", "", None, 0, 2.0),
            run("ramfold", "lz4", Some(70), 0, 3.0),
            run("ramfold", "zstd", Some(70), 0, 6.0),
            run(NAME, "lz4", Some(70), 0, 4.0),
            run(NAME, "lz4", Some(50), 0, 8.0),
            run("ramfold", "lz4", Some(70), 1, 5.0),
            run("plain", "", None, 1, f64::NAN),
            run("ramfold", "zstd", Some(50), 0, 6.0),
            run(NAME, "zstd", Some(50), 0, 2.0),
        ];
        ratios(&mut runs);
        let of = |at: usize, field| runs[at].number(field);
        assert_eq!((of(1, "time_vs_plain"), of(1, "time_vs_kernel")), (Some(1.5), Some(0.75)));
        assert_eq!(of(2, "time_vs_kernel"), Some(1.5), "the kernel's has lz4 alone");
        assert_eq!(of(7, "time_vs_kernel"), Some(3.0), "the kernel's with zstd, not with lz4");
        assert_eq!((of(3, "time_vs_plain"), of(3, "time_vs_kernel")), (Some(2.0), None));
        assert_eq!((of(5, "time_vs_plain"), of(5, "time_vs_kernel")), (None, None));
    }

    #[test]
    fn what_is_not_as_it_should_be_is_said() {
        let said = |field: &str, value: f64| {
            let mut row = run(NAME, "lz4", Some(70), 0, 4.0);
            row.set(field, value);
            let mut notes = Vec::new();
            remarks(&[row], &mut notes);
            notes
        };
        assert_eq!(said("late_max", 0.0), [""; 0]);
        for (field, value) in [("late_max", 1.0), ("killed_max", 1.0), ("peak_of_limit", 0.9)] {
            assert_eq!(said(field, value).len(), 1, "{field}");
        }
        assert!(said("over_bound_bytes_max", f64::from(3 << 20))[0].contains("3 MiB over"));
        assert_eq!(said("peak_of_limit", 1.02), [""; 0]);
    }
}
