//! The program of a job, in a process of its own below the job's script.
//!
//! ```text
//!   script -> JOB_WRAP: this process -> sh: joins the group, becomes WORDS.. and the program
//!                            | waits; writes the time and how it ended
//! ```
//!
//! So the time of the program is known without what prepares its input, and this process is not in
//! the group that is counted.

use crate::frame::Inside;
use crate::ground::{LabError, Spent};
use crate::rows::Row;
use clap::{ArgMatches, Args, FromArgMatches};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// What a shell does that is given a group's file and the words of a program.
const JOIN: &str = "echo $$ > \"$0\" && exec \"$@\"";

/// Options of the process.
#[derive(Args, Debug)]
struct Options {
    /// The file by which the program joins its group
    #[arg(long)]
    group: PathBuf,
    /// Where its time is written
    #[arg(long)]
    out: PathBuf,
    /// The program and its arguments
    #[arg(required = true, last = true)]
    words: Vec<OsString>,
}

/// The program, in a process of its own.
pub(crate) const INSIDE: Inside =
    Inside { name: "run-inside", options: Options::augment_args, run };

/// A command whose process is in a group.
pub(super) fn in_group(group: &Path, words: &[OsString]) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", JOIN]).arg(group).args(words);
    command
}

/// Ends well if the program does.
fn run(matches: &ArgMatches) -> Result<(), LabError> {
    let options = Options::from_arg_matches(matches).map_err(LabError::usage)?;
    let start = Instant::now();
    let status = in_group(&options.group, &options.words).status().map_err(LabError::io("sh"))?;
    let wall_s = start.elapsed().as_secs_f64();
    let mut row = Row::default();
    row.set("wall_s", wall_s).set("cpu_s", Spent::of_children()?.seconds());
    let text = serde_json::Value::from(row).to_string();
    std::fs::write(&options.out, text).map_err(LabError::io(options.out.display()))?;
    let failed = || LabError::Store { what: "the program".into(), why: format!("ended: {status}") };
    status.success().then_some(()).ok_or_else(failed)
}
