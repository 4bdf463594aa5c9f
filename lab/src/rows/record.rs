//! What is kept of a run: the machine, the rows, and for `--record` the rows of every single run.
//!
//! ```text
//!   lab/records/<machine>/<date>-<study>-<commit>.json     added, never overwritten
//! ```

use super::Row;
use crate::ground::LabError;
use crate::pages::Corpus;
use serde_json::{Value, json};
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// Where and with what a study ran.
pub(crate) struct Machine {
    cpu: String,
    cores: usize,
    kernel: String,
    memory_bytes: u64,
    commit: String,
    date: String,
    /// When it ran, in seconds since 1970: of two records of a day, which is the newer one.
    seconds: u64,
}

impl Machine {
    pub(crate) fn here() -> Machine {
        let seconds = seconds_since_1970();
        let kernel = read("/proc/sys/kernel/osrelease").trim().to_owned();
        let kib = field(&read("/proc/meminfo"), "MemTotal")
            .and_then(|value| value.split(' ').next()?.parse::<u64>().ok());
        Machine {
            cpu: field(&read("/proc/cpuinfo"), "model name").unwrap_or("unknown".into()),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            kernel,
            memory_bytes: kib.unwrap_or(0) * 1024,
            commit: commit(),
            date: date(seconds),
            seconds,
        }
    }

    fn json(&self, corpus: Option<&Corpus>) -> Value {
        let corpus = corpus.map(|corpus| {
            json!({
                "name": corpus.name, "bytes": corpus.length,
                "checksum": format!("cksum:{}", corpus.checksum),
            })
        });
        json!({
            "cpu": self.cpu, "cores": self.cores, "kernel": self.kernel,
            "memory_bytes": self.memory_bytes, "rustc": env!("LAB_RUSTC"),
            "commit": self.commit, "date": self.date, "seconds": self.seconds,
            "corpus": corpus,
        })
    }

    /// A directory name for this machine: its processor and cores.
    fn slug(&self) -> String {
        let text = format!("{} {}c", self.cpu, self.cores).to_lowercase();
        let words =
            text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        words.collect::<Vec<_>>().join("-")
    }
}

/// What `--json` writes.
pub(crate) fn document(
    study: &str,
    machine: &Machine,
    corpus: Option<&Corpus>,
    rows: &[Row],
) -> Value {
    let rows: Vec<Value> = rows.iter().cloned().map(Value::from).collect();
    json!({"study": study, "machine": machine.json(corpus), "rows": rows})
}

/// Writes `document` where `--json` says.
pub(crate) fn write(path: &Path, document: &Value) -> Result<(), LabError> {
    fs::write(path, format!("{document:#}\n")).map_err(LabError::io(path.display()))
}

/// Adds a record: the document, the command and the rows of every run. Returns where it went.
pub(crate) fn add(
    root: &Path,
    machine: &Machine,
    mut document: Value,
    runs: &[Row],
) -> Result<PathBuf, LabError> {
    let study = document["study"].as_str().unwrap_or("study").to_owned();
    let command: Vec<String> = std::env::args().skip(1).collect();
    // The one variable by which a user chooses what is measured.
    let path = std::env::var("RAMFOLD_PATH").map(|path| format!("RAMFOLD_PATH={path} "));
    let path = path.unwrap_or_default();
    document["command"] = Value::from(format!("{path}lab {}", command.join(" ")));
    document["runs"] = runs.iter().cloned().map(Value::from).collect();
    let directory = root.join(machine.slug());
    fs::create_dir_all(&directory).map_err(LabError::io(directory.display()))?;
    let stem = format!("{}-{study}-{}", machine.date, machine.commit);
    // One name per run of a study on a day; a thousand of them is a mistake, not a practice.
    for name in (1..1000).map(|n| if n == 1 { stem.clone() } else { format!("{stem}-{n}") }) {
        let path = directory.join(name + ".json");
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut file) => {
                let text = format!("{document:#}\n");
                return file
                    .write_all(text.as_bytes())
                    .map(|()| path.clone())
                    .map_err(LabError::io(path.display()));
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(source) => return Err(LabError::Io { what: path.display().to_string(), source }),
        }
    }
    Err(LabError::Usage(format!("{} holds 999 records of {stem}", directory.display())))
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The value of the first `name : value` line.
fn field(text: &str, name: &str) -> Option<String> {
    let value = |line: &str| Some(line.strip_prefix(name)?.trim().strip_prefix(':')?.trim().into());
    text.lines().find_map(value)
}

/// The commit this tree is at, `-dirty` when files differ from it.
fn commit() -> String {
    let mut git = Command::new("git");
    git.args(["-C", env!("CARGO_MANIFEST_DIR"), "describe", "--always", "--dirty", "--exclude=*"]);
    let output = git.output().ok().filter(|output| output.status.success());
    let commit = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    commit.unwrap_or_else(|| "unknown".into())
}

fn seconds_since_1970() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs())
}

/// The UTC date as `2026-11-20`: years counted from March so that the leap day comes last.
fn date(seconds: u64) -> String {
    const DAYS_TO_MARCH_OF_YEAR_0: u64 = 719_468;
    const DAYS_IN_400_YEARS: u64 = 146_097;
    let days = seconds / 86_400 + DAYS_TO_MARCH_OF_YEAR_0;
    let (era, day) = (days / DAYS_IN_400_YEARS, days % DAYS_IN_400_YEARS);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{day_of_month:02}", era * 400 + year + next)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `date -u -d @SECONDS +%F` prints them.
    #[test]
    fn dates_are_the_calendars() {
        for (seconds, day) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (1_709_164_800, "2024-02-29"),
            (1_767_225_599, "2025-12-31"),
            (1_795_212_906, "2026-11-20"),
            (4_107_542_400, "2100-03-01"),
        ] {
            assert_eq!(date(seconds), day, "{seconds}");
        }
    }

    #[test]
    fn a_machine_names_its_directory() {
        let mut machine = Machine::here();
        (machine.cpu, machine.cores) = ("Intel(R) Xeon(R) CPU @ 2.20GHz".into(), 2);
        assert_eq!(machine.slug(), "intel-r-xeon-r-cpu-2-20ghz-2c");
    }

    #[test]
    fn records_are_added_and_never_overwritten() {
        let root = std::env::temp_dir().join(format!("lab-records-{}", std::process::id()));
        let machine = Machine::here();
        let corpus = Corpus::open(None, 8192).unwrap();
        let document = document("chain", &machine, Some(&corpus), &[Row::default()]);
        let first = add(&root, &machine, document.clone(), &[]).unwrap();
        let second = add(&root, &machine, document, &[Row::default()]).unwrap();
        assert_ne!(first, second, "the second record went over the first");
        let text = fs::read_to_string(&second).unwrap();
        let json: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["study"], "chain");
        assert_eq!(json["runs"].as_array().unwrap().len(), 1);
        assert!(json["machine"]["corpus"]["checksum"].as_str().unwrap().starts_with("cksum:"));
        fs::remove_dir_all(root).unwrap();
    }
}
