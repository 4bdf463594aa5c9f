//! What every form of a job shares: the command, the plain job's line and peak, and rows.
//!
//! ```text
//!   Bench                        the command that is measured, and the frame
//!   Base, one for each job       its line, peak and time without anything
//!     .row(form, ..), .fill(..)  what was measured of it
//! ```
//!
//! Invariant: a line that differs from the plain job's is never taken for it, and a job whose plain
//! runs differ is not measured.

use super::jobs::Job;
use super::trial::{self, Trial, Way};
use crate::frame::Lab;
use crate::ground::{LabError, stats};
use crate::rows::Row;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// What errors call the command.
const COMMAND: &str = "ramfold";
/// What it says where the system refuses what it needs.
const CANNOT: &str = "cannot fold here";
/// The smallest limit that it takes.
pub(super) const LIMIT_MIN: u64 = 16 << 20; // 16 MiB
/// A job may take so many times as long as plain, and a little more, until it is ended.
const PATIENCE_TIMES: f64 = 20.0;
const PATIENCE_MORE: Duration = Duration::from_secs(30);
/// The longest that a plain job may take.
const PATIENCE: Duration = Duration::from_secs(600);

/// How densely pages are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Density {
    Fast,
    Balanced,
    Dense,
}

impl Density {
    pub(super) fn name(self) -> &'static str {
        match self {
            Density::Fast => "fast",
            Density::Balanced => "balanced",
            Density::Dense => "dense",
        }
    }

    /// What pages are compressed with when they leave, and after that.
    pub(super) fn algorithms(self) -> &'static str {
        match self {
            Density::Balanced => "lz4 then pagelz",
            Density::Fast | Density::Dense => self.first_algorithm(),
        }
    }

    /// What pages are compressed with when they leave. The kernel's store has it too.
    pub(super) fn first_algorithm(self) -> &'static str {
        match self {
            Density::Fast | Density::Balanced => "lz4",
            Density::Dense => "zstd",
        }
    }
}

/// See the module documentation.
pub(super) struct Bench<'a> {
    command: PathBuf,
    pub(super) lab: &'a Lab,
}

/// A job as it is without anything.
pub(super) struct Base {
    pub(super) job: &'static Job,
    rows: Option<u32>,
    said: String,
    /// The median of its peaks.
    pub(super) peak_bytes: u64,
    wall_s: f64,
}

impl Bench<'_> {
    /// The command is tried once.
    pub(super) fn new(command: Option<PathBuf>, lab: &Lab) -> Result<Bench<'_>, LabError> {
        let own = std::env::current_exe().map_err(LabError::io("this program"))?;
        let command = command.unwrap_or_else(|| own.with_file_name(COMMAND));
        // Some jobs change their directory.
        let command = std::path::absolute(command).map_err(LabError::io("the command"))?;
        let output = Command::new(&command).args(["run", "--limit", "16M", "--", "true"]).output();
        let why = |error| format!("{}: {error}; cargo build -p ramfold-cli", command.display());
        let output = output.map_err(|error| LabError::missing(COMMAND, why(error)))?;
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        match output.status.success() {
            true => Ok(Bench { command, lab }),
            false if said.contains(CANNOT) => Err(LabError::missing("userfaultfd", said)),
            false => Err(LabError::Store { what: command.display().to_string(), why: said }),
        }
    }

    /// The words before a program that has a limit.
    pub(super) fn words(&self, limit: u64, density: Density) -> Vec<OsString> {
        let mut words = vec![self.command.clone().into_os_string()];
        let limit = limit.to_string();
        let options = ["run", "--limit", &limit, "--density", density.name(), "--"];
        words.extend(options.map(OsString::from));
        words
    }

    /// Every job, plain, once for each run: what it is, and the rows of those runs.
    pub(super) fn bases(&self, jobs: &[&'static Job]) -> Result<(Vec<Base>, Vec<Row>), LabError> {
        let mut trials: Vec<Vec<Trial>> = jobs.iter().map(|_| Vec::new()).collect();
        let numbered: Vec<(usize, &'static Job)> = jobs.iter().copied().enumerate().collect();
        let name = |(_, job): &(usize, &'static Job)| format!("{}, for its peak", job.name);
        let measure = |&(number, job): &(usize, &'static Job), _| {
            let rows = job.quick_rows.filter(|_| self.lab.quick());
            let way = Way { words: &[], group_limit: None, rows, patience: PATIENCE };
            trials[number].push(trial::run(&job.script(), &way, self.lab)?);
            Ok(Vec::new())
        };
        self.lab.interleaved(&numbered, name, measure)?;
        let (mut bases, mut rows) = (Vec::new(), Vec::new());
        for (job, trials) in jobs.iter().zip(trials) {
            let base = Base::of(job, job.quick_rows.filter(|_| self.lab.quick()), &trials)?;
            for (run, trial) in trials.iter().enumerate() {
                let mut row = base.row("peak", None, run as u32);
                base.fill(&mut row, trial);
                rows.push(row);
            }
            bases.push(base);
        }
        Ok((bases, rows))
    }

    /// One more run of a job.
    pub(super) fn run(
        &self,
        base: &Base,
        words: &[OsString],
        group_limit: Option<u64>,
    ) -> Result<Trial, LabError> {
        let way = Way { words, group_limit, ..self.plain(base) };
        trial::run(&base.job.script(), &way, self.lab)
    }

    /// A job as it is, that may take long.
    pub(super) fn plain(&self, base: &Base) -> Way<'static> {
        let patience = Duration::from_secs_f64(base.wall_s * PATIENCE_TIMES) + PATIENCE_MORE;
        Way { words: &[], group_limit: None, rows: base.rows, patience }
    }

    /// The command that is measured.
    pub(super) fn command(&self) -> &Path {
        &self.command
    }
}

impl Base {
    /// By its plain runs, which all say the same.
    fn of(job: &'static Job, rows: Option<u32>, trials: &[Trial]) -> Result<Base, LabError> {
        let failed = |why: &str| LabError::Store { what: job.name.into(), why: why.to_owned() };
        let said = trials.first().map(|trial| trial.said.clone()).unwrap_or_default();
        if let Some(trial) = trials.iter().find(|trial| trial.wall_s.is_none()) {
            return Err(failed(&trial.complaints));
        }
        if said.is_empty() || trials.iter().any(|trial| trial.said != said) {
            return Err(LabError::Wrong(format!("{}: two plain runs differ: {said}", job.name)));
        }
        let median = |of: fn(&Trial) -> f64| {
            let spread = stats::spread(&trials.iter().map(of).collect::<Vec<_>>());
            spread.map_or(0.0, |spread| spread.median)
        };
        let peak_bytes = median(|trial| trial.peak.bytes as f64) as u64;
        let wall_s = median(|trial| trial.wall_s.unwrap_or(0.0));
        Ok(Base { job, rows, said, peak_bytes, wall_s })
    }

    /// The limit that is so many hundredths of the peak.
    pub(super) fn limit(&self, percent: u32) -> u64 {
        self.peak_bytes * u64::from(percent) / 100
    }

    /// A row with its keys; a form sets those that are its own.
    pub(super) fn row(&self, form: &str, percent: Option<u32>, run: u32) -> Row {
        let mut row = Row::default();
        row.set("job", self.job.name).set("form", form).set("limit_percent", percent);
        row.set("run", run);
        row
    }

    /// Adds what a run showed.
    pub(super) fn fill(&self, row: &mut Row, trial: &Trial) {
        let Trial { line, .. } = trial;
        let ended = !trial.late && trial.killed == 0;
        let same = trial.wall_s.is_some() && trial.said == self.said;
        row.set("wall_s", trial.wall_s.filter(|_| same))
            .set("cpu_s", trial.cpu_s.filter(|_| same))
            .set("peak_bytes", trial.peak.bytes)
            .set("kernel_bytes", trial.peak.kernel_bytes)
            .set("looks", trial.looks)
            .set("pages_out", line.pages_out)
            .set("pages_in", line.pages_in)
            .set("faults", line.faults)
            .set("stall_s", line.stall_s)
            .set("killed", u32::from(trial.killed > 0))
            .set("late", u32::from(trial.late))
            .set("same", (same || ended).then_some(u32::from(same)));
    }
}

#[cfg(test)]
mod tests {
    use super::super::jobs::JOBS;
    use super::*;
    use crate::kernel::Charged;

    fn trial(said: &str, mib: u64, wall_s: f64) -> Trial {
        let peak = Charged { bytes: mib << 20, kernel_bytes: 1 };
        Trial { said: said.into(), peak, wall_s: Some(wall_s), ..Trial::default() }
    }

    #[test]
    fn a_job_is_the_median_of_its_plain_runs() {
        let trials = [trial("x", 100, 1.0), trial("x", 300, 9.0), trial("x", 104, 2.0)];
        let base = Base::of(&JOBS[0], None, &trials).unwrap();
        assert_eq!((base.peak_bytes, base.wall_s), (104 << 20, 2.0));
        assert_eq!(base.limit(125), 130 << 20);
        let other = [trial("x", 100, 1.0), trial("y", 100, 1.0)];
        assert!(Base::of(&JOBS[0], None, &other).is_err(), "it differs from run to run");
        assert!(Base::of(&JOBS[0], None, &[trial("", 100, 1.0)]).is_err(), "it said nothing");
        let failed = Trial { wall_s: None, complaints: "no sort".into(), ..trial("x", 1, 1.0) };
        let said = Base::of(&JOBS[0], None, &[failed]).err().map(|error| error.to_string());
        assert_eq!(said.as_deref(), Some("sort: no sort"));
    }

    #[test]
    fn a_line_is_right_or_wrong_unless_the_job_was_ended() {
        let base = Base::of(&JOBS[0], None, &[trial("x", 100, 1.0)]).unwrap();
        let same = |trial: &Trial| {
            let mut row = base.row("ramfold", Some(70), 0);
            base.fill(&mut row, trial);
            (row.number("same"), row.number("wall_s"))
        };
        assert_eq!(same(&trial("x", 1, 2.0)), (Some(1.0), Some(2.0)));
        assert_eq!(same(&trial("y", 1, 2.0)), (Some(0.0), None), "its time is worth nothing");
        let failed = Trial { wall_s: None, ..trial("", 1, 1.0) };
        assert_eq!(same(&failed), (Some(0.0), None), "it ended by itself, without a line");
        let killed = Trial { killed: 1, ..trial("", 1, 1.0) };
        assert_eq!(same(&killed), (None, None));
        let late = Trial { late: true, wall_s: None, ..trial("", 1, 1.0) };
        assert_eq!(same(&late), (None, None));
        let in_spite = Trial { killed: 1, ..trial("x", 1, 2.0) };
        assert_eq!(same(&in_spite), (Some(1.0), Some(2.0)), "another process was killed");
    }
}
