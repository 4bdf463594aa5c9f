//! `ramfold`: serves compressed RAM disks, says what they hold, changes, recounts and estimates.
//!
//! ```text
//!   args, usage      what was typed, and what is wrong with it       touches nothing
//!   command          one module per verb                             talks to the system
//!   attribute        what `set` can change, and `control` how
//!   document         figures as JSON, in the words of the contract
//!   page_types       frames as the kernel's text and as JSON
//!   output, failure  one way out for text, one for errors
//! ```
//!
//! Exit codes are decided here and nowhere else: 0 done, 1 failed, 2 the command line is wrong.
//! A reader that goes away, as `head` does, is not a failure.
#![forbid(unsafe_code)]

mod command;
mod line;

use std::process::ExitCode;

use line::{Failure, output, usage};

fn main() -> ExitCode {
    match run() {
        Ok(()) | Err(Failure::ReaderGone) => ExitCode::SUCCESS,
        Err(failure) => {
            output::complain(&failure.to_string());
            failure.exit_code()
        }
    }
}

fn run() -> Result<(), Failure> {
    match usage::parse(std::env::args_os())? {
        usage::Wanted::Text(text) => output::print(&text),
        usage::Wanted::Command(command) => command::run(*command),
    }
}
