//! How many times less a job's pages would take in a store, near its peak.
//!
//! ```text
//!   plain job --95 % of its peak--> all its processes stop --> ramfold estimate --pid, each
//!                                                              --> pages over what they would take
//! ```
//!
//! Pages that forks share are counted once for each process. Few are, where this matters.
//!
//! Invariant: a job without a figure never came near its peak.

use super::bench::{Base, Bench};
use super::trial;
use crate::frame::note;
use crate::ground::LabError;
use crate::rows::Row;
use serde_json::Value;
use std::process::Command;

/// Hundredths of the peak at which the job stops.
const NEAR: u64 = 95;
/// The store that is asked for: what `--density dense` takes.
const ALGORITHM: &str = "zstd";
const CHAIN_ORDER: u64 = 4;
const PAGE: f64 = 4096.0;

/// The row of a job, if it came near its peak.
pub(super) fn row(
    bench: &Bench<'_>,
    base: &Base,
    notes: &mut Vec<String>,
) -> Result<Option<Row>, LabError> {
    let bytes = base.peak_bytes / 100 * NEAR;
    let looked = trial::at(&base.job.script(), &bench.plain(base), bench.lab, bytes, |pids| {
        let estimates = pids.iter().filter_map(|&pid| estimate(bench, pid));
        Ok(estimates.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1)))
    })?;
    match looked {
        Some((pages, takes)) if takes > 0.0 => {
            let mut row = base.row("estimate", None, 0);
            row.set("algorithm", ALGORITHM).set("ratio", pages * PAGE / takes);
            Ok(Some(row))
        }
        _ => {
            note(notes, format!("{}: it did not come near its peak again", base.job.name));
            Ok(None)
        }
    }
}

/// The pages of a process, and the bytes that they would take. `None` if it has none, or has gone.
fn estimate(bench: &Bench<'_>, pid: u32) -> Option<(f64, f64)> {
    let mut command = Command::new(bench.command());
    let output = command.args(["estimate", "--json", "--pid", &pid.to_string()]).output().ok()?;
    takes(&serde_json::from_slice(&output.stdout).ok()?)
}

/// The pages of a document of `ramfold estimate`, and what they would take.
fn takes(document: &Value) -> Option<(f64, f64)> {
    let is_asked =
        |row: &&Value| row["algorithm"] == ALGORITHM && row["chain_order"] == CHAIN_ORDER;
    let row = document["rows"].as_array()?.iter().find(is_asked)?;
    let bytes = row["object_bytes_resident"].as_f64()? + row["metadata_bytes"].as_f64()?;
    Some((document["pages"].as_f64()?, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_row_of_the_dense_store_is_taken() {
        let row = |algorithm: &str, order: u64, bytes: u64| {
            serde_json::json!({
                "algorithm": algorithm, "level": 3, "chain_order": order,
                "object_bytes_resident": bytes, "metadata_bytes": 96,
            })
        };
        let rows = [row("lz4", 4, 9), row("zstd", 3, 9), row("zstd", 4, 4000)];
        assert_eq!(takes(&serde_json::json!({"pages": 3, "rows": rows})), Some((3.0, 4096.0)));
        assert_eq!(takes(&serde_json::json!({"pages": 3, "rows": rows[..2]})), None);
    }
}
