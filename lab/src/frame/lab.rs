//! What the frame gives a study: options that all have, the kernel's stores where they are asked
//! for, and the loop over runs and cases.
//!
//! Invariant: cases take turns in every run, in the order they are given.

use super::notes::note;
use crate::ground::{Cleanup, LabError};
use crate::kernel::{self, KernelZram, KernelZswap};
use crate::rows::Row;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A step that takes so long is told of where no bar shows it.
const LONG: Duration = Duration::from_secs(1);

/// Options every study has; not all accept `vs_kernel`.
#[derive(Args, Debug)]
pub(crate) struct Common {
    /// File whose 4 KiB pages are stored [default: a seeded synthetic mix]
    #[arg(long, value_name = "FILE")]
    corpus: Option<PathBuf>,
    /// Runs of everything compared, interleaved; rows are medians
    #[arg(long, value_name = "N", default_value = "5",
          value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Only check that it works: little data, few runs, under 20 s
    #[arg(long)]
    quick: bool,
    /// Also measure the kernel's own store (needs root; no swap may be on)
    #[arg(long)]
    pub(super) vs_kernel: bool,
    /// Write machine and rows as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Add a record with the rows of every run [default directory: the lab's own records]
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true,
          default_missing_value = concat!(env!("CARGO_MANIFEST_DIR"), "/records"))]
    pub(crate) record: Option<PathBuf>,
}

/// What the frame gives a study: the common options and the means to clean up and to show progress.
pub(crate) struct Lab {
    pub(crate) common: Common,
    pub(crate) cleanup: Cleanup,
}

impl Lab {
    pub(crate) fn corpus_file(&self) -> Option<&Path> {
        self.common.corpus.as_deref()
    }

    pub(crate) fn quick(&self) -> bool {
        self.common.quick
    }

    /// Whether the kernel's own store is measured too.
    pub(crate) fn vs_kernel(&self) -> bool {
        self.common.vs_kernel
    }

    /// The kernel's zram where `--vs-kernel` asks for it; a note if it is not available.
    pub(crate) fn kernel_peer(&self, notes: &mut Vec<String>) -> Option<KernelZram> {
        let claimed = self.common.vs_kernel.then(|| kernel::claim_zram(&self.cleanup))?;
        claimed.map_err(|error| note(notes, error.to_string())).ok()
    }

    /// The same for the kernel's zswap.
    pub(crate) fn kernel_zswap(&self, notes: &mut Vec<String>) -> Option<KernelZswap> {
        let claimed = self.common.vs_kernel.then(|| kernel::claim_zswap(&self.cleanup))?;
        claimed.map_err(|error| note(notes, error.to_string())).ok()
    }

    /// For a study that stores nothing: says so where pages are named.
    pub(crate) fn no_pages(&self, notes: &mut Vec<String>) {
        if self.common.corpus.is_some() {
            note(notes, "no page is stored here: --corpus changes nothing".into());
        }
    }

    /// Runs of everything compared; two are enough to see that it works.
    pub(crate) fn runs(&self) -> u32 {
        if self.common.quick { self.common.runs.min(2) } else { self.common.runs }
    }

    /// The rows of every case in every run. Cases take turns, so that a slow moment of the machine
    /// meets what is compared alike. `measure` verifies what it measured, or fails.
    pub(crate) fn interleaved<C>(
        &self,
        cases: &[C],
        name: impl Fn(&C) -> String,
        mut measure: impl FnMut(&C, u32) -> Result<Vec<Row>, LabError>,
    ) -> Result<Vec<Row>, LabError> {
        self.interleaved_in(|| Ok(()), cases, name, |(), case, run| measure(case, run))
    }

    /// The same where the cases of a run share a setting, made before the first of them.
    pub(crate) fn interleaved_in<S: Setting, C>(
        &self,
        setting: impl Fn() -> Result<S, LabError>,
        cases: &[C],
        name: impl Fn(&C) -> String,
        mut measure: impl FnMut(&mut S, &C, u32) -> Result<Vec<Row>, LabError>,
    ) -> Result<Vec<Row>, LabError> {
        let mut rows = Vec::new();
        let bar = self.progress(self.runs() as usize * cases.len());
        for run in 0..self.runs() {
            let mut setting = setting()?;
            for case in cases {
                let (step, begun) = (format!("run {run}, {}", name(case)), Instant::now());
                bar.set_message(step.clone());
                rows.extend(measure(&mut setting, case, run)?);
                bar.inc(1);
                tell_if_long(&step, begun.elapsed());
            }
            setting.check()?;
        }
        bar.finish_and_clear();
        Ok(rows)
    }

    /// A bar of `steps` on a terminal; it is hidden elsewhere.
    pub(crate) fn progress(&self, steps: usize) -> ProgressBar {
        let bar = ProgressBar::new(steps as u64);
        let style = ProgressStyle::with_template("{pos}/{len} [{bar:30}] {eta} left: {msg}");
        if let Ok(style) = style {
            bar.set_style(style);
        }
        bar
    }
}

/// Says of a long step that it is done, where no terminal shows a bar. Otherwise a study of an hour
/// seems to hang.
pub(crate) fn tell_if_long(step: &str, took: Duration) {
    if took >= LONG && !std::io::stderr().is_terminal() {
        eprintln!("lab: {step}: {:.1} s", took.as_secs_f64());
    }
}

/// What the cases of a run share.
pub(crate) trait Setting {
    /// Whether it is as it should be when all of them are done.
    fn check(&self) -> Result<(), LabError>;
}

impl Setting for () {
    fn check(&self) -> Result<(), LabError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Command, FromArgMatches};
    use std::cell::RefCell;

    fn lab(line: &[&str]) -> Lab {
        let matches = Common::augment_args(Command::new("lab")).get_matches_from(line);
        let common = Common::from_arg_matches(&matches).unwrap();
        Lab { common, cleanup: Cleanup::default() }
    }

    struct Logged<'a>(&'a RefCell<String>);

    impl Setting for Logged<'_> {
        fn check(&self) -> Result<(), LabError> {
            self.0.borrow_mut().push_str("checked ");
            Ok(())
        }
    }

    #[test]
    fn cases_take_turns_in_a_setting_of_each_run() {
        let log = RefCell::new(String::new());
        let setting = || {
            log.borrow_mut().push_str("made ");
            Ok(Logged(&log))
        };
        let measure = |setting: &mut Logged, case: &&str, run: u32| {
            setting.0.borrow_mut().push_str(&format!("{case}{run} "));
            let mut row = Row::default();
            row.set("case", *case).set("run", run);
            Ok(vec![row; 2])
        };
        let lab = lab(&["lab", "--runs", "3", "--quick"]);
        let cases = ["a", "b"];
        let rows = lab.interleaved_in(setting, &cases, ToString::to_string, measure).unwrap();
        assert_eq!(*log.borrow(), "made a0 b0 checked made a1 b1 checked ");
        let of_rows: Vec<String> =
            rows.iter().map(|row| format!("{}{}", row.get("case"), row.get("run"))).collect();
        let expected = ["a", "a", "b", "b"].map(|case| format!("\"{case}\""));
        let expected = [0, 1].map(|run| expected.clone().map(|case| format!("{case}{run}")));
        assert_eq!(of_rows, expected.concat());
    }

    #[test]
    fn what_fails_ends_the_loop() {
        let lab = lab(&["lab"]);
        let measure = |case: &u32, run: u32| match (case, run) {
            (2, 1) => Err(LabError::Wrong("case 2".into())),
            (2, _) | (1, 0 | 1) => Ok(Vec::new()),
            _ => panic!("case {case} of run {run} is after the failure"),
        };
        let failed = lab.interleaved(&[1, 2], ToString::to_string, measure);
        assert_eq!(failed.unwrap_err().to_string(), "wrong answer: case 2");
    }
}
