//! The verbs. Each takes what was typed and does it.
//!
//! Invariant: a verb prints its result, or gives one failure. Locks: those of `serve`.

mod check;
mod devices;
mod estimate;
mod mount;
mod run;
mod serve;
mod set;
mod stat;
mod top;
mod train;

use crate::derived::{completions, manual};
use crate::line::Failure;
use crate::line::args::Command;

/// Does what was asked.
pub(crate) fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Serve(args) => self::serve::run(&args),
        Command::Mount(args) => mount::run(&args),
        Command::Umount(args) => mount::umount(&args),
        Command::Stat(args) => stat::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Get(args) => set::get(&args),
        Command::Set(args) => set::run(&args),
        Command::Run(args) => self::run::run(&args),
        Command::Estimate(args) => estimate::run(&args),
        Command::Train(args) => train::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Add(args) => devices::add(&args),
        Command::Remove(args) => devices::remove(&args),
        Command::Manual(args) => manual::run(&args),
        Command::Completions(args) => completions::run(&args),
    }
}
