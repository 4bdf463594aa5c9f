//! Records as they were kept, read back.
//!
//! Invariants
//! - Of two rows that measured the same thing on one machine, the one of the newer record is taken:
//!   by day, then by the second if both records have it. Among others of one day, a record of a
//!   clean tree counts as the newer one, and then the name decides.
//! - The fields that have no spread beside them say what was measured.

use super::plots::Plot;
use crate::ground::LabError;
use crate::rows::Row;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Where records are kept, a directory for each machine.
const RECORDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/records");

/// The mix of frees that do not lag.
const AT_ONCE: &str = "free-at-once";

/// One record.
pub(crate) struct Record {
    /// The name of its file.
    pub(crate) name: String,
    pub(crate) study: String,
    /// Processor, CPUs and kernel.
    pub(crate) machine: String,
    pub(crate) date: String,
    /// When it was made, since 1970; 0 in records that do not say it.
    seconds: u64,
    /// What made it; empty in the oldest records.
    pub(crate) command: String,
    /// The sum of the file whose pages were stored, if there was one.
    pub(crate) corpus: Option<String>,
    pub(crate) rows: Vec<Row>,
    /// The rows of every single run.
    pub(crate) runs: Vec<Row>,
}

impl Record {
    pub(crate) fn read(path: &Path) -> Result<Record, LabError> {
        let text = fs::read_to_string(path).map_err(LabError::io(path.display()))?;
        Record::parse(path, &text)
            .ok_or_else(|| LabError::Usage(format!("{}: not a record of a study", path.display())))
    }

    fn parse(path: &Path, text: &str) -> Option<Record> {
        let json: Value = serde_json::from_str(text).ok()?;
        let machine = &json["machine"];
        let told = |field: &str| machine[field].as_str();
        Some(Record {
            name: path.file_name()?.to_string_lossy().into_owned(),
            study: json["study"].as_str()?.to_owned(),
            machine: format!(
                "{}, {} CPUs, Linux {}",
                told("cpu")?,
                machine["cores"].as_u64()?,
                told("kernel")?
            ),
            date: told("date")?.to_owned(),
            seconds: machine["seconds"].as_u64().unwrap_or(0),
            command: json["command"].as_str().unwrap_or_default().to_owned(),
            corpus: machine["corpus"]["checksum"].as_str().map(str::to_owned),
            rows: rows(&json["rows"])?,
            runs: rows(&json["runs"]).unwrap_or_default(),
        })
    }

    /// What its rows are drawn as: the study, and the way if one was asked for. Programs without
    /// userfaultfd are other cases than those with it, and no field of a row says so.
    pub(crate) fn charted(&self) -> &str {
        let is_closed = self.command.starts_with("RAMFOLD_PATH=closed ");
        if is_closed && self.study == "run" { "run, closed" } else { &self.study }
    }

    /// Whether a chart is of its rows.
    pub(crate) fn is_of(&self, plot: &Plot) -> bool {
        self.charted() == plot.study
    }

    /// The processor alone: kernels change between two records of one machine.
    pub(crate) fn processor(&self) -> &str {
        self.machine.split(", Linux ").next().unwrap_or_default()
    }

    /// The single runs behind a row of this record: those that agree with it in every field that
    /// both have and that was not measured.
    pub(crate) fn runs_of(&self, row: &Row) -> Vec<Row> {
        let told = |(name, value): &(&str, &Value)| {
            *name != "runs" && !is_spread(name) && !is_measured(row, name) && !value.is_f64()
        };
        let told: Vec<(&str, &Value)> = row.fields().filter(told).collect();
        let same =
            |run: &&Row| told.iter().all(|(name, value)| !run.has(name) || run.get(name) == *value);
        self.runs.iter().filter(same).cloned().collect()
    }
}

/// Earlier records of study `locks` say of each row whether a model gave it. Such rows are left
/// out, and the others lose the field, so that they are the same cases as in later records. Frees
/// were all done at once then, and their mix was `free`; now `free` lags. Records that do not say
/// how many shards there were, or those of `teardown` and `compact` which lock design, are of the
/// default.
fn rows(json: &Value) -> Option<Vec<Row>> {
    let all = json.as_array()?;
    let lags = all.iter().any(|row| row["mix"] == AT_ONCE);
    let measured = all.iter().filter(|row| row["simulated"] != true);
    let row = |row: &Value| {
        let mut row = row.clone();
        row.as_object_mut()?.shift_remove("simulated");
        if !lags && row["mix"] == "free" {
            row["mix"] = AT_ONCE.into();
        }
        if row["compact_ms"].is_number() && row["store"] == "zram" && row["design"].is_null() {
            row["design"] = "class".into();
        }
        if row["fsmark_files_per_s"].is_number()
            && row["store"] == "zram"
            && row["requests"].is_null()
        {
            row["requests"] = "device".into();
        }
        let is_ours = row["backend"] == "zram" || row["backend"] == "zswap";
        if row["teardown_ms"].is_number() && is_ours && row["design"].is_null() {
            row["design"] = "class".into();
        }
        let with_shards = row["mix"].is_string() || row["teardown_ms"].is_number();
        if with_shards && row["design"].is_string() && row["shards"].is_null() {
            let spread = row["design"] == "class";
            row["shards"] = if spread { "spread" } else { "one" }.into();
        }
        Row::parse(&row.to_string())
    };
    measured.map(row).collect()
}

/// All of the lab's own records.
pub(crate) fn own() -> Result<Vec<Record>, LabError> {
    let mut paths: Vec<PathBuf> = Vec::new();
    for directory in list(Path::new(RECORDS))? {
        paths.extend(list(&directory)?);
    }
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    let all: Result<Vec<Record>, _> = paths.iter().map(|path| Record::read(path)).collect();
    // Those of python/bench are beside the lab's, and are of no study of its own.
    Ok(all?.into_iter().filter(|record| record.study != "python").collect())
}

fn list(directory: &Path) -> Result<Vec<PathBuf>, LabError> {
    let entries = fs::read_dir(directory).map_err(LabError::io(directory.display()))?;
    let paths: Result<Vec<PathBuf>, _> = entries.map(|entry| Ok(entry?.path())).collect();
    paths.map_err(LabError::io(directory.display()))
}

/// The rows of one study on one machine, each from the newest record that has it.
pub(crate) fn newest<'a>(records: &[&'a Record]) -> Vec<(&'a Row, &'a Record)> {
    let mut sorted = records.to_vec();
    sorted.sort_by_key(|record| {
        let clean = !record.name.contains("-dirty");
        (&record.date, record.seconds, clean, &record.name)
    });
    let mut found: BTreeMap<String, (&Row, &Record)> = BTreeMap::new();
    for record in sorted {
        found.extend(record.rows.iter().map(|row| (key(row), (row, record))));
    }
    found.into_values().collect()
}

/// What a row measured, as text: what [`fixed`] gives, without how often and on what file.
pub(crate) fn key(row: &Row) -> String {
    const NEITHER: [&str; 3] = ["runs", "corpus", "corpus_bytes"];
    let fields = fixed(row).filter(|(name, _)| !NEITHER.contains(name));
    fields.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

/// The fields of a row that say what was measured: words and whole numbers that have no spread.
pub(crate) fn fixed(row: &Row) -> impl Iterator<Item = (&str, &Value)> {
    row.fields().filter(|(name, value)| {
        let words = value.is_string() || value.is_u64() || value.is_boolean();
        words && !is_spread(name) && !is_measured(row, name)
    })
}

/// Whether a field has its spread beside it.
pub(crate) fn is_measured(row: &Row, name: &str) -> bool {
    !is_spread(name) && ENDS.iter().any(|end| row.has(&format!("{name}{end}")))
}

/// How the fields end that are a spread.
const ENDS: [&str; 3] = ["_min", "_max", "_ci95"];

fn is_spread(name: &str) -> bool {
    ENDS.iter().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(date: &str, name: &str, rows: &[&str]) -> Record {
        let text = format!(
            "{{\"study\":\"s\",\"machine\":{{\"cpu\":\"c\",\"cores\":2,\"kernel\":\"6\",\
             \"date\":\"{date}\"}},\"rows\":[{}]}}",
            rows.join(",")
        );
        Record::parse(Path::new(name), &text).expect("a record")
    }

    #[test]
    fn rows_of_a_model_are_left_out() {
        let row = |simulated: &str| format!("{{\"threads\":4{simulated},\"ms\":1,\"ms_min\":1}}");
        let [old, new] =
            [&[row(",\"simulated\":false"), row(",\"simulated\":true")][..], &[row("")]]
                .map(|rows| record("d", "a", &rows.iter().map(String::as_str).collect::<Vec<_>>()));
        assert_eq!(old.rows, new.rows);
    }

    #[test]
    fn frees_were_at_once_before_they_lagged() {
        let mix = |mixes: &[&str]| {
            let rows: Vec<String> =
                mixes.iter().map(|mix| format!("{{\"mix\":\"{mix}\"}}")).collect();
            let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
            let first = record("d", "a", &rows).rows.remove(0);
            first.get("mix").clone()
        };
        assert_eq!(mix(&["free", "free-batch"]), AT_ONCE);
        assert_eq!(mix(&["free", AT_ONCE]), "free");
    }

    #[test]
    fn shards_were_those_of_the_design_before_they_were_said() {
        let rows = ["class", "pool"].map(|design| {
            format!("{{\"mix\":\"mixed\",\"design\":\"{design}\",\"ops\":1,\"ops_min\":1}}")
        });
        let locks = record("d", "a", &rows.each_ref().map(String::as_str));
        assert!(locks.rows[0].is("shards", "spread") && locks.rows[1].is("shards", "one"));
        let rows = ["zram", "kernel-zram"].map(|backend| {
            format!("{{\"backend\":\"{backend}\",\"teardown_ms\":1,\"teardown_ms_min\":1}}")
        });
        let teardown = record("d", "a", &rows.each_ref().map(String::as_str));
        assert!(teardown.rows[0].is("design", "class") && teardown.rows[0].is("shards", "spread"));
        assert!(teardown.rows[1].get("design").is_null(), "the kernel's is no design of ours");
        let rows = ["zram", "kernel-zram"].map(|store| {
            format!("{{\"store\":\"{store}\",\"compact_ms\":1,\"compact_ms_min\":1}}")
        });
        let compact = record("d", "a", &rows.each_ref().map(String::as_str));
        assert!(compact.rows[0].is("design", "class") && compact.rows[1].get("design").is_null());
    }

    #[test]
    fn the_newer_of_two_rows_is_taken() {
        let row = |ms: u32| format!("{{\"free\":\"sync\",\"runs\":{ms},\"ms\":{ms},\"ms_min\":1}}");
        let old = record("2026-11-20", "a.json", &[&row(7), "{\"free\":\"range\",\"ms\":1.5}"]);
        let new = record("2026-11-21", "b.json", &[&row(8)]);
        let found = newest(&[&new, &old]);
        let of = |free: &str| found.iter().find(|(row, _)| row.is("free", free)).expect("a row");
        assert_eq!(found.len(), 2);
        assert_eq!((of("sync").0.number("ms"), &*of("sync").1.name), (Some(8.0), "b.json"));
        assert_eq!(&*of("range").1.name, "a.json", "what only the older one has stays");
    }

    #[test]
    fn a_row_without_a_bound_has_no_run_with_one() {
        let rows = ["{\"free\":\"a\",\"bound\":null,\"runs\":1,\"ms\":1,\"ms_min\":1}"];
        let mut record = record("2026-11-20", "a.json", &rows);
        let run = |text: &str| Row::parse(text).expect("a run");
        let without = run("{\"free\":\"a\",\"bound\":null,\"ms\":1}");
        record.runs = vec![without.clone(), run("{\"free\":\"a\",\"bound\":5,\"ms\":2}")];
        assert_eq!(record.runs_of(&record.rows[0]), [without]);
    }

    #[test]
    fn the_runs_of_a_row_are_as_many_as_it_says() {
        let mut rows = 0;
        for record in own().expect("they are part of the repository") {
            for row in record.rows.iter().filter(|_| !record.runs.is_empty()) {
                let (found, said) = (record.runs_of(row).len(), row.number("runs"));
                // The free blocks of the system are other ones in each run, and are no case.
                let is_the_systems = row.is("mode", "kernel");
                assert!(
                    Some(found as f64) == said || is_the_systems,
                    "{}: {}",
                    record.name,
                    key(row)
                );
                rows += 1;
            }
        }
        assert!(rows > 1000, "{rows} rows");
    }

    #[test]
    fn of_one_day_the_later_record_is_the_newer_one() {
        let at = |name: &str, seconds: u64| {
            let mut record = record("2026-11-20", name, &["{\"free\":\"sync\",\"ms\":1}"]);
            record.seconds = seconds;
            record
        };
        let (later, sooner) = (at("a.json", 9), at("b.json", 8));
        assert_eq!(newest(&[&later, &sooner])[0].1.name, "a.json");
        let (clean, dirty) = (at("a.json", 0), at("b-dirty.json", 0));
        assert_eq!(newest(&[&dirty, &clean])[0].1.name, "a.json");
    }

    #[test]
    fn what_is_no_record_is_refused() {
        for text in ["", "[]", "{}", "{\"study\":\"s\",\"machine\":{},\"rows\":[]}"] {
            assert!(Record::parse(Path::new("a.json"), text).is_none(), "{text}");
        }
    }

    #[test]
    fn the_labs_own_records_are_read() {
        let records = own().expect("they are part of the repository");
        assert!(records.iter().any(|record| record.study == "teardown"));
        assert!(records.iter().all(|record| !record.rows.is_empty()));
    }
}
