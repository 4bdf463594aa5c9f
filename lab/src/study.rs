//! What a study is, and the list of them. A new study is one file and one line of `STUDIES`.
//!
//! ```text
//!   Study { name, options, run }  --run(options, Lab)-->  Report { fields, rows, runs, notes }
//!        ^ main finds it by name                               ^ main prints, writes, records
//! ```
//!
//! A study never prints a result and never exits; it returns what it found or why it could not.

use crate::cleanup::Cleanup;
use crate::corpus::Corpus;
use crate::error::LabError;
use crate::fields::Field;
use crate::kernel::KernelZram;
use crate::kernel::zswap::KernelZswap;
use crate::row::Row;
use clap::{ArgMatches, Args, Command};
use indicatif::{ProgressBar, ProgressStyle};
use std::path::{Path, PathBuf};

mod alloc;
mod breakdown;
mod cache;
mod chain;
mod compact;
mod cpulists;
mod device;
mod faultin;
mod folding;
mod fs;
mod gate;
mod locks;
mod objects;
mod ours;
mod pagealloc;
mod pagetypeinfo;
mod paging;
mod peer;
mod reader;
mod recompress;
mod scattered;
mod spoken;
mod store;
mod swapping;
mod teardown;
mod valgrind;
mod writeback;

/// Every study there is.
pub(crate) const STUDIES: [Study; 15] = [
    alloc::STUDY,
    breakdown::STUDY,
    cache::STUDY,
    chain::STUDY,
    compact::STUDY,
    cpulists::STUDY,
    device::STUDY,
    faultin::STUDY,
    fs::STUDY,
    locks::STUDY,
    pagealloc::STUDY,
    pagetypeinfo::STUDY,
    recompress::STUDY,
    teardown::STUDY,
    writeback::STUDY,
];
/// What studies run in processes of their own.
pub(crate) const INSIDES: [Inside; 6] = [
    alloc::INSIDE,
    breakdown::INSIDE,
    fs::INSIDE,
    locks::INSIDE,
    pagealloc::INSIDE,
    teardown::INSIDE,
];

/// A named experiment.
pub(crate) struct Study {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// Adds the study's own options to its subcommand.
    pub(crate) options: fn(Command) -> Command,
    /// What its rows are made of.
    pub(crate) fields: &'static [Field],
    /// Whether it can also measure the kernel's own store; a study that cannot refuses to.
    pub(crate) vs_kernel: bool,
    pub(crate) run: fn(&ArgMatches, &Lab) -> Result<Report, LabError>,
}

impl Study {
    /// Its subcommand, with the options that it accepts.
    pub(crate) fn command(&self) -> Command {
        let command = Common::augment_args((self.options)(Command::new(self.name)));
        command.about(self.about).mut_arg("vs_kernel", |option| option.hide(!self.vs_kernel))
    }

    /// Refuses what would change nothing.
    pub(crate) fn accepts(&self, common: &Common) -> Result<(), LabError> {
        if self.vs_kernel || !common.vs_kernel {
            return Ok(());
        }
        let others: Vec<&str> =
            STUDIES.iter().filter(|study| study.vs_kernel).map(|study| study.name).collect();
        Err(LabError::Usage(format!(
            "--vs-kernel: study {} measures no store of the kernel's; these do: {}",
            self.name,
            others.join(", ")
        )))
    }
}

/// The part of a study that this program runs as its own child, away from what the study itself
/// holds. Not in the help: it is talked to through pipes.
pub(crate) struct Inside {
    pub(crate) name: &'static str,
    pub(crate) options: fn(Command) -> Command,
    pub(crate) run: fn(&ArgMatches) -> Result<(), LabError>,
}

/// What a study found.
pub(crate) struct Report {
    /// The pages that were stored, where any were.
    pub(crate) corpus: Option<Corpus>,
    /// Medians, one row per thing compared.
    pub(crate) rows: Vec<Row>,
    /// One row per thing and run, as measured.
    pub(crate) runs: Vec<Row>,
    /// Sentences below the table: ratios, and which peer is missing and why.
    pub(crate) notes: Vec<String>,
}

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
    vs_kernel: bool,
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

    /// The kernel's zram where `--vs-kernel` asks for it; a note if it is not available.
    pub(crate) fn kernel_peer(&self, notes: &mut Vec<String>) -> Option<KernelZram> {
        let claimed = self.common.vs_kernel.then(|| KernelZram::claim(&self.cleanup))?;
        claimed.map_err(|error| note(notes, error.to_string())).ok()
    }

    /// The same for the kernel's zswap.
    fn kernel_zswap(&self, notes: &mut Vec<String>) -> Option<KernelZswap> {
        let claimed = self.common.vs_kernel.then(|| KernelZswap::claim(&self.cleanup))?;
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
        let mut rows = Vec::new();
        let bar = self.progress(self.runs() as usize * cases.len());
        for run in 0..self.runs() {
            for case in cases {
                bar.set_message(format!("run {run}, {}", name(case)));
                rows.extend(measure(case, run)?);
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        Ok(rows)
    }

    /// A bar of `steps` on a terminal, nothing elsewhere.
    pub(crate) fn progress(&self, steps: usize) -> ProgressBar {
        let bar = ProgressBar::new(steps as u64);
        let style = ProgressStyle::with_template("{pos}/{len} [{bar:30}] {eta} left: {msg}");
        if let Ok(style) = style {
            bar.set_style(style);
        }
        bar
    }
}

/// What was found; a note instead where something is missing that a study can do without.
fn present<T>(found: Result<T, LabError>, notes: &mut Vec<String>) -> Result<Option<T>, LabError> {
    match found {
        Err(error @ LabError::Missing { .. }) => {
            note(notes, error.to_string());
            Ok(None)
        }
        found => found.map(Some),
    }
}

/// Adds a sentence, once.
fn note(notes: &mut Vec<String>, sentence: String) {
    if !notes.contains(&sentence) {
        notes.push(sentence);
    }
}

#[cfg(test)]
mod tests {
    use super::STUDIES;
    use crate::report::newest_fields;

    /// Documents, charts and `lab compare` read records by these names.
    #[test]
    fn no_study_has_lost_a_field_of_its_newest_record() {
        for study in STUDIES {
            let known: Vec<String> = study.fields.iter().flat_map(|field| field.names()).collect();
            for field in newest_fields(study.name) {
                let there = field == "runs" || known.contains(&field);
                assert!(there, "{}: the newest record has {field}", study.name);
            }
        }
    }
}
