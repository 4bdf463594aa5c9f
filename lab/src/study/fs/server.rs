//! The serving process.
use super::super::super::error::LabError;
use clap::{ArgMatches, Args};
pub(super) const READY: &str = "ready";
/// Options.
#[derive(Args, Debug)]
pub(super) struct Options {
    #[arg(long)]
    dir: std::path::PathBuf,
}
pub(super) fn run(_: &ArgMatches) -> Result<(), LabError> {
    Ok(())
}
