//! `lab`: workloads, measurement, peers, reports.
//!
//! ```text
//!   main -> study::STUDIES -> a room for each study -> Report -> table, --json, --record
//!   all  -> every one of them                       -> Report -> a line each
//!                                |
//!                             Lab: common options, cleanup on any exit, the loop over runs
//! ```
//!
//! A study verifies every answer before its figures count, interleaves what it compares, and
//! reports medians with minimum and maximum. Nothing here is a library; nothing depends on it.
#![forbid(unsafe_code)]

mod all;
mod apparatus;
mod frame;
mod ground;
mod kernel;
mod pages;
mod report;
mod rows;
mod study;

use clap::error::{ContextKind, ErrorKind};
use clap::{Args, Command, FromArgMatches};
use frame::{Common, Lab, Report, Study};
use ground::{Cleanup, LabError};
use pages::{dump, shipped};
use rows::{fields, record, table};
use std::io::Write;
use std::process::ExitCode;
use study::{INSIDES, STUDIES, swapped};

fn main() -> ExitCode {
    let cleanup = Cleanup::default();
    let result = run(&cleanup);
    let code = match result {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("lab: {error}");
            error.exit_code()
        }
    };
    cleanup.finish();
    ExitCode::from(code)
}

fn run(cleanup: &Cleanup) -> Result<(), LabError> {
    if let Some(done) = run_inside() {
        return done;
    }
    let matches = match command().try_get_matches() {
        Ok(matches) => matches,
        Err(error) if error.kind() == ErrorKind::InvalidSubcommand => return Err(unknown(&error)),
        Err(error) => error.exit(),
    };
    let Some((name, matches)) = matches.subcommand() else { return Ok(()) };
    cleanup.watch_signals()?;
    if name == CORPUS {
        let options = dump::Options::from_arg_matches(matches).map_err(LabError::usage)?;
        return print(&dump::run(&options)?);
    }
    if name == CODEC_TABLES {
        let options = shipped::Options::from_arg_matches(matches).map_err(LabError::usage)?;
        return print(&shipped::run(&options)?);
    }
    if name == COMPARE {
        let options =
            report::compare::Options::from_arg_matches(matches).map_err(LabError::usage)?;
        return print(&report::compare::run(&options)?);
    }
    if name == REPORT {
        let options = report::Options::from_arg_matches(matches).map_err(LabError::usage)?;
        return print(&report::run(&options)?);
    }
    if name == TABLES {
        let options =
            report::studies::Options::from_arg_matches(matches).map_err(LabError::usage)?;
        return print(&report::studies::run(&options)?);
    }
    if name == SWAPPED {
        let options = swapped::Options::from_arg_matches(matches).map_err(LabError::usage)?;
        return swapped::run(&options, cleanup);
    }
    if name == ALL {
        let options = all::Options::from_arg_matches(matches).map_err(LabError::usage)?;
        return all::run(&options, cleanup, print);
    }
    let Some(study) = STUDIES.iter().find(|study| study.name == name) else { return Ok(()) };
    let common = Common::from_arg_matches(matches).map_err(LabError::usage)?;
    study.accepts(&common, &STUDIES)?;
    let lab = Lab { common, cleanup: cleanup.clone() };
    let report = (study.run)(matches, &lab)?;
    publish(study, &report, &lab.common)
}

/// The part of a study that is to run in this process, if it is that. It finds a heap that the
/// options of other studies have not been on, and no thread for signals: its memory is measured.
fn run_inside() -> Option<Result<(), LabError>> {
    let mut arguments = std::env::args_os().skip(1).peekable();
    let name = arguments.peek()?;
    let inside = INSIDES.iter().find(|inside| name == inside.name)?;
    let matches = (inside.options)(Command::new(inside.name)).try_get_matches_from(arguments);
    Some(matches.map_err(LabError::usage).and_then(|matches| (inside.run)(&matches)))
}

const ALL: &str = "all";
const CODEC_TABLES: &str = "codec-tables";
const CORPUS: &str = "corpus";
const COMPARE: &str = "compare";
const REPORT: &str = "report";
const SWAPPED: &str = "swapped";
const TABLES: &str = "studies";

fn command() -> Command {
    let mut command = Command::new("lab")
        .about("Measures the compressed-memory stack; every answer is verified first")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand_value_name("STUDY")
        .subcommand_help_heading("Studies and tools")
        .disable_help_subcommand(true)
        .subcommand(
            all::Options::augment_args(Command::new(ALL))
                .about("Every study, one after the other; fails if one of them does"),
        )
        .subcommand(
            dump::Options::augment_args(Command::new(CORPUS))
                .about("Dump the resident anonymous pages of a process"),
        )
        .subcommand(
            shipped::Options::augment_args(Command::new(CODEC_TABLES))
                .about("Train the tables that pagelz is shipped with, and write their source"),
        )
        .subcommand(
            report::compare::Options::augment_args(Command::new(COMPARE))
                .about("Compare two records of one study, row by row"),
        )
        .subcommand(
            report::Options::augment_args(Command::new(REPORT))
                .about("Draw the studies from their records, as one HTML page"),
        )
        .subcommand(
            report::studies::Options::augment_args(Command::new(TABLES))
                .about("Write the published tables, with ours beside them, into a document"),
        )
        .subcommand(
            swapped::Options::augment_args(Command::new(SWAPPED))
                .about("Run a program in a memory group, with swap on the kernel's zram"),
        );
    for study in STUDIES {
        command = command.subcommand(study.command());
    }
    command
}

fn unknown(error: &clap::Error) -> LabError {
    let given = error.get(ContextKind::InvalidSubcommand).map(ToString::to_string);
    let names: Vec<&str> = STUDIES.iter().map(|study| study.name).collect();
    LabError::Usage(format!(
        "no study {}; there are {}, and the tools {ALL}, {CODEC_TABLES}, {CORPUS}, \
         {COMPARE}, {REPORT} and {TABLES}",
        given.unwrap_or_default(),
        names.join(", ")
    ))
}

/// Prints the table and the notes, then writes what was asked for. A row that is not as its study's
/// table says is an error after that, so that no measurement is lost.
fn publish(study: &Study, report: &Report, common: &Common) -> Result<(), LabError> {
    let table = table::render(study.fields, &report.rows);
    let notes: String = report.notes.iter().map(|note| format!("\n{note}")).collect();
    print(&format!("{table}{notes}"))?;
    let machine = record::Machine::here();
    let document = record::document(study.name, &machine, report.corpus.as_ref(), &report.rows);
    if let Some(path) = &common.json {
        record::write(path, &document)?;
    }
    if let Some(root) = &common.record {
        let path = record::add(root, &machine, document, &report.runs)?;
        print(&format!("record: {}", path.display()))?;
    }
    fields::check(study.fields, &report.rows, &report.runs)
}

/// `println!` would panic when the reader has gone.
fn print(text: &str) -> Result<(), LabError> {
    writeln!(std::io::stdout(), "{}", text.trim_end()).map_err(LabError::io("standard output"))
}
