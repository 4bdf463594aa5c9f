//! `ramfold completions SHELL`: the script by which a shell completes the words of a command line.
//!
//! Invariant: the script has the words of the table, and no others. Locks: none.

use clap::CommandFactory;

use crate::line::args::{Completions, Line};
use crate::line::{Failure, output};

const PROGRAM: &str = "ramfold";

/// Prints the script.
pub(crate) fn run(args: &Completions) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Line::command(), PROGRAM, &mut script);
    output::print(&String::from_utf8_lossy(&script))
}
