//! `lab all`: every study, one after the other, and what each of them found wrong or missing.
//!
//! ```text
//!   for every study, and every further form of it in FORMS:
//!     every answer is right, every row is as its table says     name, options   rows   seconds
//!     something is not on this machine                          skipped: needs ..
//!     anything else                                             FAILED: ..
//! ```
//!
//! The kernel's own stores are measured too, where a study can do that and they are free. With
//! `CI=true` a program that is missing is a failure, because `.ci/run` installs them all. What only
//! the system can give is not: see `OF_THE_SYSTEM`.
//!
//! Invariant: a form that fails does not keep the next from running, and the end is an error then.

use crate::frame::{Common, Lab, Report, Study};
use crate::ground::{Cleanup, LabError};
use crate::kernel::{self, zswap};
use crate::rows::fields;
use crate::study::STUDIES;
use clap::builder::PossibleValuesParser;
use clap::{Args, FromArgMatches};
use std::path::PathBuf;
use std::time::Instant;

/// Options of `lab all`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// These studies alone
    #[arg(value_name = "STUDY", value_parser = PossibleValuesParser::new(names()))]
    studies: Vec<String>,
    /// Each study in its short form, under 20 s
    #[arg(long)]
    quick: bool,
    /// File whose 4 KiB pages are stored [default: a seeded synthetic mix]
    #[arg(long, value_name = "FILE")]
    corpus: Option<PathBuf>,
}

/// Further forms: what a study does only if it is asked.
const FORMS: [(&str, &str); 5] = [
    ("breakdown", "--backend zswap"),
    ("faultin", "--backend zswap --mode signal"),
    ("fs", "--fs btrfs --workload build --package ramfold-buddy"),
    ("teardown", "--free slots --design hierarchical,pool,class --shards one,spread --threads 2"),
    ("teardown", "--backend zswap --threads 2"),
];

/// What no package brings.
const OF_THE_SYSTEM: [&str; 10] = [
    kernel::NAME,
    kernel::GROUPS,
    zswap::NAME,
    "region",
    "userfaultfd",
    "/proc/pagetypeinfo",
    "/dev/fuse",
    "/dev/loop-control",
    "a FUSE mount",
    "root",
];

/// A study with options.
struct Form {
    study: &'static Study,
    options: &'static str,
}

/// What came of a form.
#[derive(Debug, PartialEq)]
enum Outcome {
    /// Every answer was right. Some of what was to be compared may be missing.
    Right {
        rows: usize,
        missing: Vec<String>,
    },
    /// Nothing can be measured here without this.
    Skipped(String),
    Failed(String),
}

/// Runs every form, and has `say` print a line for each.
pub(crate) fn run(
    options: &Options,
    cleanup: &Cleanup,
    say: impl Fn(&str) -> Result<(), LabError>,
) -> Result<(), LabError> {
    let strict = std::env::var_os("CI").is_some_and(|value| value == "true");
    let forms = forms(&options.studies);
    let mut failed = 0;
    for form in &forms {
        let start = Instant::now();
        let outcome = judged(form.run(options, cleanup), strict);
        failed += usize::from(matches!(outcome, Outcome::Failed(_)));
        say(&line(&form.name(), start.elapsed().as_secs_f64(), &outcome))?;
    }
    let wrong = || LabError::Wrong(format!("{failed} of {} forms failed", forms.len()));
    (failed == 0).then_some(()).ok_or_else(wrong)
}

fn names() -> [&'static str; STUDIES.len()] {
    std::array::from_fn(|index| STUDIES[index].name)
}

/// Each study's plain form, and then its others: of the studies named, of all if none is.
fn forms(named: &[String]) -> Vec<Form> {
    let of = |study: &'static Study| {
        let others = FORMS.iter().filter(|(name, _)| *name == study.name);
        let all = [""].into_iter().chain(others.map(|&(_, options)| options));
        all.map(move |options| Form { study, options })
    };
    let wanted = |study: &&Study| named.is_empty() || named.iter().any(|name| name == study.name);
    STUDIES.iter().filter(wanted).flat_map(of).collect()
}

impl Form {
    fn name(&self) -> String {
        format!("{} {}", self.study.name, self.options).trim_end().to_owned()
    }

    fn run(&self, options: &Options, cleanup: &Cleanup) -> Result<Report, LabError> {
        let mut words = vec![self.study.name.to_owned()];
        words.extend(self.options.split_whitespace().map(str::to_owned));
        if options.quick {
            // One run, because each is verified, and each takes as long as the first.
            words.extend(["--quick", "--runs", "1"].map(str::to_owned));
        }
        words.extend(self.study.vs_kernel.then(|| "--vs-kernel".to_owned()));
        if let Some(corpus) = &options.corpus {
            words.extend(["--corpus".to_owned(), corpus.display().to_string()]);
        }
        let matches = self.study.command().try_get_matches_from(words).map_err(LabError::usage)?;
        let common = Common::from_arg_matches(&matches).map_err(LabError::usage)?;
        let report = (self.study.run)(&matches, &Lab { common, cleanup: cleanup.clone() })?;
        fields::check(self.study.fields, &report.rows, &report.runs)?;
        Ok(report)
    }
}

/// `strict` if every program is to be there.
fn judged(found: Result<Report, LabError>, strict: bool) -> Outcome {
    let outcome = match found {
        Ok(report) => {
            let missing = report.notes.iter().filter(|note| LabError::lacks(note).is_some());
            Outcome::Right { rows: report.rows.len(), missing: missing.cloned().collect() }
        }
        Err(error @ LabError::Missing { .. }) => Outcome::Skipped(error.to_string()),
        Err(error) => Outcome::Failed(error.to_string()),
    };
    let lacks = |sentence: &&String| {
        let what = LabError::lacks(sentence).unwrap_or_default();
        !OF_THE_SYSTEM.contains(&what)
    };
    let program = match &outcome {
        Outcome::Right { missing, .. } => missing.iter().find(lacks).cloned(),
        Outcome::Skipped(sentence) => Some(sentence).filter(lacks).cloned(),
        Outcome::Failed(_) => None,
    };
    program.filter(|_| strict).map_or(outcome, Outcome::Failed)
}

fn line(name: &str, seconds: f64, outcome: &Outcome) -> String {
    let said = match outcome {
        Outcome::Right { rows, missing } if missing.is_empty() => format!("{rows} rows, verified"),
        Outcome::Right { rows, missing } => {
            format!("{rows} rows, verified; skipped: needs {}", missing.join("; "))
        }
        Outcome::Skipped(why) => format!("skipped: needs {why}"),
        Outcome::Failed(why) => format!("FAILED: {why}"),
    };
    format!("{name}  {seconds:.1} s  {said}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::Row;

    fn report(notes: &[&str]) -> Report {
        let notes = notes.iter().map(|&note| note.to_owned()).collect();
        Report { corpus: None, rows: vec![Row::default()], runs: Vec::new(), notes }
    }

    #[test]
    fn every_further_form_is_of_a_study_that_takes_its_options() {
        let forms = forms(&[]);
        assert_eq!(forms.len(), STUDIES.len() + FORMS.len(), "a form is of no study");
        for form in forms {
            let words = [form.study.name, "--quick"].into_iter();
            let words = words.chain(form.options.split_whitespace());
            let parsed = form.study.command().try_get_matches_from(words);
            assert!(parsed.is_ok(), "{}: {:?}", form.name(), parsed.err());
        }
    }

    #[test]
    fn a_wrong_answer_fails_and_what_is_missing_does_not() {
        let wrong = judged(Err(LabError::Wrong("a page".into())), false);
        assert_eq!(wrong, Outcome::Failed("wrong answer: a page".into()));
        let skipped = judged(Err(LabError::missing("root", "no")), false);
        assert_eq!(line("fs", 0.25, &skipped), "fs  0.2 s  skipped: needs root: missing (no)");
        let right = judged(Ok(report(&["fio: missing (none)", "twice as fast"])), false);
        let missing = vec!["fio: missing (none)".to_owned()];
        assert_eq!(right, Outcome::Right { rows: 1, missing });
    }

    #[test]
    fn ci_insists_on_programs_and_not_on_what_the_system_has() {
        let program = judged(Ok(report(&["kernel-zram: missing (no)", "fio: missing (no)"])), true);
        assert_eq!(program, Outcome::Failed("fio: missing (no)".into()));
        let tool = judged(Err(LabError::missing("btrfs-progs", "no")), true);
        assert_eq!(tool, Outcome::Failed("btrfs-progs: missing (no)".into()));
        for what in OF_THE_SYSTEM {
            let system = judged(Err(LabError::missing(what, "no")), true);
            assert_eq!(system, Outcome::Skipped(format!("{what}: missing (no)")));
        }
    }
}
