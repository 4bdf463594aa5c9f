//! `lab run`: whole programs, plain and in less memory.

use crate::support::{Scratch, json, lab, measured, number, rows, succeed};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Why programs cannot be measured here. In CI the command is built: `./test unit` builds all.
pub(crate) fn missing() -> Option<String> {
    let ramfold = Path::new(env!("CARGO_BIN_EXE_lab")).with_file_name("ramfold");
    if !ramfold.exists() {
        assert!(std::env::var("CI").is_err(), "{} is to be there", ramfold.display());
        return Some("ramfold: cargo build -p ramfold-cli".to_owned());
    }
    if !Path::new("/sys/fs/cgroup/memory/memory.usage_in_bytes").exists() {
        return Some("memory cgroups of version 1".to_owned());
    }
    let output = Command::new(ramfold).args(["run", "--limit", "16M", "--", "true"]).output();
    let output = output.expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (!output.status.success()).then_some(said)
}

/// The rows of a form.
pub(crate) fn of<'a>(document: &'a Value, form: &str) -> Vec<&'a Value> {
    rows(document).iter().filter(|row| row["form"] == form).collect()
}

#[test]
fn a_job_in_less_memory_says_the_same_and_stays_within_its_bound() {
    if let Some(missing) = missing() {
        return println!("skipped: needs {missing}");
    }
    let arguments = ["run", "--quick", "--job", "sort", "--runs", "1", "--density", "fast,dense"];
    let document = json("run", &[&arguments[..], &["--bounds"]].concat());
    let [plain] = of(&document, "plain")[..] else { panic!("one plain row: {document}") };
    measured(plain, &["wall_s", "cpu_s", "peak_bytes", "kernel_bytes"]);
    assert_eq!((number(plain, "same"), number(plain, "time_vs_plain")), (1.0, 1.0));
    let ours = of(&document, "ramfold");
    let said: Vec<&Value> = ours.iter().map(|row| &row["algorithm"]).collect();
    assert_eq!(said, ["lz4", "zstd"]);
    for row in ours {
        measured(row, &["wall_s", "time_vs_plain", "peak_bytes", "peak_of_limit", "pages_out"]);
        assert_eq!((number(row, "same"), number(row, "limit_percent")), (1.0, 70.0), "{row}");
        assert!(number(row, "pages_out") > 0.0, "nothing had to leave: {row}");
        assert!(number(row, "peak_bytes") < number(plain, "peak_bytes"), "{row}");
        let limit = number(row, "limit_bytes");
        assert_eq!(number(row, "peak_of_limit"), number(row, "peak_bytes") / limit);
        let over = number(row, "peak_bytes") - limit * 17.0 / 16.0 - f64::from(16 << 20);
        assert!((number(row, "over_bound_bytes") - over.max(0.0)).abs() < 2.0, "{row}");
    }
    let inside = of(&document, "in-bound");
    assert_eq!(inside.len(), 2);
    for row in inside {
        assert!(number(row, "group_limit_bytes") > number(row, "limit_bytes"), "{row}");
        assert!(number(row, "peak_bytes") <= number(row, "group_limit_bytes"), "{row}");
    }
    assert_eq!(of(&document, "plain-bound").len(), 2);
}

#[test]
fn a_job_that_is_unknown_or_a_limit_that_is_none_is_refused() {
    let refused = |arguments: &[&str]| {
        let output = lab().arg("run").args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(refused(&["--job", "srot"]).contains("pyfork"));
    assert!(refused(&["--limit", "70%"]).contains("as in 0.7"));
}

/// As where no package of a job is installed, or the command was not built.
#[test]
fn what_is_missing_is_said() {
    let run = |arguments: &[&str]| {
        let mut command = lab();
        command.arg("run").args(arguments).env("PATH", "/nonexistent");
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let said = run(&["--job", "sqlite,node"]);
    assert!(said.contains("nodejs: missing (no node)"), "{said}");
    let said = run(&["--job", "pyfork", "--ramfold", "/nonexistent"]);
    assert!(said.contains("ramfold: missing (/nonexistent"), "{said}");
    let help = String::from_utf8(succeed(&["run", "--help"]).stdout).unwrap();
    assert!(help.contains("redis"), "the jobs are named: {help}");
}

#[test]
fn a_program_in_a_group_is_counted_and_its_failure_is_told() {
    if !Path::new("/sys/fs/cgroup/memory/memory.usage_in_bytes").exists() {
        return println!("skipped: needs memory cgroups of version 1");
    }
    let out = Scratch::new("swapped");
    let path = out.0.to_str().unwrap();
    // A shell of more than 16 MiB, for a moment.
    let fill = "x=$(head -c 16777216 /dev/zero | tr '\\0' x); sleep 0.3; echo ${#x}";
    let done = succeed(&["swapped", "--out", path, "--", "sh", "-c", fill]);
    assert_eq!(String::from_utf8_lossy(&done.stdout), "16777216\n");
    let row: Value = serde_json::from_str(&std::fs::read_to_string(&out.0).unwrap()).unwrap();
    assert!(number(&row, "peak_bytes") > f64::from(16 << 20), "{row}");
    assert_eq!((number(&row, "killed"), &row["store_bytes"]), (0.0, &Value::Null));
    for words in [&["--", "false"][..], &["--patience", "1", "--", "sleep", "100"]] {
        let failed = lab().args(["swapped", "--out", path]).args(words).output().unwrap();
        let said = String::from_utf8_lossy(&failed.stderr).into_owned();
        assert!(!failed.status.success() && said.contains("did not end well"), "{said}");
    }
}
