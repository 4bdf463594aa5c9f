//! What a study is: its name, its options, what runs, and what it gives back.
//!
//! ```text
//!   Study { name, options, run }  --run(options, Lab)-->  Report { rows, runs, notes }
//!        ^ main finds it by name                               ^ main prints, writes, records
//! ```
//!
//! A study never prints a result and never exits; it returns what it found or why it could not.

use super::lab::{Common, Lab};
use crate::ground::LabError;
use crate::pages::Corpus;
use crate::rows::{Field, Row};
use clap::{ArgMatches, Args, Command};

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

    /// Refuses what would change nothing, and names the studies of `all` that accept it.
    pub(crate) fn accepts(&self, common: &Common, all: &[Study]) -> Result<(), LabError> {
        if self.vs_kernel || !common.vs_kernel {
            return Ok(());
        }
        let others: Vec<&str> =
            all.iter().filter(|study| study.vs_kernel).map(|study| study.name).collect();
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
