//! `ramfold set`: changes an attribute of a running server.

use std::time::Duration;

use serve::control::{self, Request};

use crate::args;
use crate::attribute::Change;
use crate::failure::Failure;
use crate::output::{patiently, print};

/// Compaction moves, at most, every object of a large disk.
const PATIENCE: Duration = Duration::from_secs(600);

/// Looks at attribute and value before anybody is asked, then asks.
pub(super) fn run(args: &args::Set) -> Result<(), Failure> {
    Change::parse(&args.attribute, &args.value).map_err(Failure::Usage)?;
    let path = control::locate(&args.target)?;
    let request = Request::Set { attribute: args.attribute.clone(), value: args.value.clone() };
    let done = patiently(|| control::call_within(&path, &request, PATIENCE))?;
    print(&format!("{}\n", done.as_str().unwrap_or("done")))
}
