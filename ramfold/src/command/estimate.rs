//! `ramfold estimate`.
use crate::args;
use crate::failure::Failure;
pub(super) fn run(args: &args::Estimate) -> Result<(), Failure> {
    let _ = (&args.files, args.pid, args.json);
    Err(Failure::Failed("not yet".into()))
}
