//! `ramfold`: serves compressed RAM disks. It also shows, changes, recounts and estimates them.
//!
//! ```text
//!   command             one module for each verb; talks to the system
//!   command/estimate    stores pages to see what they take
//!   command/serve       a server, its answers and its end
//!   derived             files of options, manual pages and completions, from the table in `line`
//!   line                what was typed, and the ways out for text and errors
//! ```
//!
//! Invariant: exit codes are decided only in `main`. 0 means done, 1 failed, and 2 that the command
//! line is wrong. A reader that goes away, as `head` does, is not a failure.
//!
//! Locks: those of `command/serve`.
#![forbid(unsafe_code)]

mod command;
mod derived;
mod line;

use std::process::ExitCode;

use derived::config;
use line::{Failure, output, usage};

fn main() -> ExitCode {
    match run() {
        Ok(()) | Err(Failure::ReaderGone) => ExitCode::SUCCESS,
        Err(ended @ Failure::Ended(_)) => ended.exit_code(),
        Err(failure) => {
            output::complain(&failure.to_string());
            failure.exit_code()
        }
    }
}

fn run() -> Result<(), Failure> {
    match config::parse(std::env::args_os())? {
        usage::Wanted::Text(text) => output::print(&text),
        usage::Wanted::Command(command) => command::run(*command),
    }
}
