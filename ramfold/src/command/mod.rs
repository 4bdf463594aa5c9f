//! The verbs. Each takes what was typed and does it.

mod check;
mod estimate;
mod serve;
mod set;
mod stat;
mod train;

use codec::{Algorithm, Codec};

use crate::args::Command;
use crate::failure::Failure;

pub(crate) use serve::Board;

/// Refuses an algorithm that has no use for a dictionary.
fn check_takes_dictionary(codec: &Codec) -> Result<(), Failure> {
    let algorithm = codec.algorithm();
    if algorithm.takes_dictionary() {
        return Ok(());
    }
    let takers = Algorithm::ALL.iter().filter(|algorithm| algorithm.takes_dictionary());
    let names: Vec<&str> = takers.map(|algorithm| algorithm.name()).collect();
    let text = format!("{algorithm} uses no dictionary; these do: {}", names.join(" "));
    Err(Failure::Usage(text))
}

/// Does what was asked.
pub(crate) fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Serve(args) => self::serve::run(args),
        Command::Stat(args) => stat::run(&args),
        Command::Set(args) => set::run(&args),
        Command::Estimate(args) => estimate::run(&args),
        Command::Train(args) => train::run(&args),
        Command::Check(args) => check::run(&args),
    }
}
