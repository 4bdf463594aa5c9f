//! One run of a job: in a group, looked at every 20 ms, with a line to compare at its end.
//!
//! ```text
//!   lab/jobs/NAME.sh              JOB_WRAP = lab run-inside .. WORDS      WORDS: ramfold's
//!     |-- prepares its input          |
//!     '-- program, in the group <-----'     charged? charged? charged? ..
//! ```
//!
//! Invariants
//! - Memory is counted of the program and all processes it starts, and of nothing else.
//! - A job that takes longer than it may is ended, with all of its processes.

use super::line::Line;
use super::program::{self, in_group};
use crate::frame::Lab;
use crate::ground::{GuardedChild, LabError, PrivateDirectory, clock};
use crate::kernel::{Charged, Group};
use crate::rows::Row;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// From one look at the group to the next.
const LOOK_NS: u64 = 20_000_000;
/// The same where a moment near the peak is waited for.
const SOON_NS: u64 = 2_000_000;
/// How often a job runs until its memory was seen.
const TRIES: usize = 4;
/// Bytes of what a failed job said that are repeated, from the end.
const QUOTED: usize = 600;

/// How a job is run.
pub(super) struct Way<'a> {
    /// The words before the program.
    pub(super) words: &'a [OsString],
    /// The most that the group may be charged.
    pub(super) group_limit: Option<u64>,
    /// For scripts that have a short form.
    pub(super) rows: Option<u32>,
    pub(super) patience: Duration,
}

/// What a run showed.
#[derive(Debug, Default)]
pub(super) struct Trial {
    /// The last line of its output; empty if there was none.
    pub(super) said: String,
    /// The end of what it complained of.
    pub(super) complaints: String,
    /// Of the program alone; `None` if it did not come to its end.
    pub(super) wall_s: Option<f64>,
    pub(super) cpu_s: Option<f64>,
    /// The most that the group was charged, in all and of the kernel's own.
    pub(super) peak: Charged,
    /// How often the group was looked at while it was charged anything.
    pub(super) looks: u64,
    /// Processes that the kernel killed because of the group's limit.
    pub(super) killed: u64,
    /// Whether it was ended because it took too long.
    pub(super) late: bool,
    pub(super) line: Line,
}

/// Runs a job once. If its memory was never seen, it runs again: a busy machine looks late.
pub(super) fn run(script: &Path, way: &Way<'_>, lab: &Lab) -> Result<Trial, LabError> {
    for _ in 1..TRIES {
        let trial = run_once(script, way, lab)?;
        if trial.looks > 0 {
            return Ok(trial);
        }
    }
    run_once(script, way, lab)
}

/// Runs a job until its group is charged so many bytes. Then its processes stop, `look` is told
/// their numbers, and the job is ended. `None` if it ended by itself, or took too long.
pub(super) fn at<T>(
    script: &Path,
    way: &Way<'_>,
    lab: &Lab,
    bytes: u64,
    look: impl FnOnce(&[u32]) -> Result<T, LabError>,
) -> Result<Option<T>, LabError> {
    let place = PrivateDirectory::new(&lab.cleanup)?;
    let files = Files::new(place.path())?;
    let group = Group::new(&lab.cleanup)?;
    let child = start(script, way, &files, &group, lab)?;
    let started = Instant::now();
    let mut looked = None;
    while child.exited().is_none() && started.elapsed() < way.patience {
        if group.charged()?.bytes >= bytes {
            looked = Some(look(&group.stop()?)?);
            break;
        }
        clock::sleep_until(clock::now_ns() + SOON_NS);
    }
    group.end()?;
    Ok(looked)
}

fn run_once(script: &Path, way: &Way<'_>, lab: &Lab) -> Result<Trial, LabError> {
    let place = PrivateDirectory::new(&lab.cleanup)?;
    let files = Files::new(place.path())?;
    let group = Group::new(&lab.cleanup)?;
    if let Some(bytes) = way.group_limit {
        group.set_limit(bytes)?;
    }
    let child = start(script, way, &files, &group, lab)?;
    let Seen { peak, looks, late } = watched(&child, &group, way.patience)?;
    let killed = group.killed()?;
    drop((child, group));
    let complaints = read(&files.complaints);
    let time = Row::parse(&read(&files.time)).unwrap_or_default();
    Ok(Trial {
        said: last_line(&read(&files.said)),
        wall_s: time.number("wall_s").filter(|_| !late),
        cpu_s: time.number("cpu_s").filter(|_| !late),
        line: Line::of(&complaints),
        complaints: tail(&complaints).to_owned(),
        peak,
        looks,
        killed,
        late,
    })
}

/// Where a run's files are.
struct Files {
    scratch: PathBuf,
    said: PathBuf,
    complaints: PathBuf,
    time: PathBuf,
}

impl Files {
    fn new(place: &Path) -> Result<Files, LabError> {
        let scratch = place.join("scratch");
        fs::create_dir(&scratch).map_err(LabError::io(scratch.display()))?;
        let file = |name: &str| place.join(name);
        Ok(Files { scratch, said: file("out"), complaints: file("err"), time: file("time") })
    }
}

fn start(
    script: &Path,
    way: &Way<'_>,
    files: &Files,
    group: &Group,
    lab: &Lab,
) -> Result<GuardedChild, LabError> {
    let output = |path: &Path| File::create(path).map_err(LabError::io(path.display()));
    let mut command = in_group(&group.job(), &[script.as_os_str().to_owned()]);
    command.env("JOB_WRAP", wrap(way.words, files, group)?);
    command.env("JOB_TMP", &files.scratch).env("TMPDIR", &files.scratch);
    command.env_remove("JOB_ROWS").envs(way.rows.map(|rows| ("JOB_ROWS", rows.to_string())));
    command.stdin(Stdio::null());
    command.stdout(output(&files.said)?).stderr(output(&files.complaints)?);
    lab.cleanup.spawn(&mut command)
}

/// The words before the program, as the scripts take them: with a blank between two.
fn wrap(words: &[OsString], files: &Files, group: &Group) -> Result<String, LabError> {
    let lab = std::env::current_exe().map_err(LabError::io("this program"))?;
    let mut all: Vec<OsString> = vec![lab.into(), program::INSIDE.name.into()];
    all.extend(["--group".into(), group.program().into_os_string()]);
    all.extend(["--out".into(), files.time.clone().into_os_string(), "--".into()]);
    all.extend_from_slice(words);
    let text = |word: &OsString| {
        let word = word.to_string_lossy().into_owned();
        let why = || LabError::Usage(format!("{word:?}: jobs take no path with a blank in it"));
        (!word.contains(char::is_whitespace)).then(|| word.clone()).ok_or_else(why)
    };
    Ok(all.iter().map(text).collect::<Result<Vec<String>, _>>()?.join(" "))
}

/// What was seen of a group.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) peak: Charged,
    pub(super) looks: u64,
    pub(super) late: bool,
}

/// Looks at the group until the job has ended, or has to be.
pub(super) fn watched(
    child: &GuardedChild,
    group: &Group,
    patience: Duration,
) -> Result<Seen, LabError> {
    let (start, mut next, mut seen) = (Instant::now(), clock::now_ns(), Seen::default());
    while child.exited().is_none() {
        if start.elapsed() > patience {
            group.end()?;
            return Ok(Seen { late: true, ..seen });
        }
        let now = group.charged()?;
        seen.peak = seen.peak.max(now);
        seen.looks += u64::from(now.bytes > 0);
        next = (next + LOOK_NS).max(clock::now_ns());
        clock::sleep_until(next);
    }
    Ok(seen)
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

fn last_line(text: &str) -> String {
    text.lines().next_back().unwrap_or_default().to_owned()
}

fn tail(text: &str) -> &str {
    let at = text.char_indices().rev().nth(QUOTED).map_or(0, |(at, _)| at);
    text[at..].trim()
}
