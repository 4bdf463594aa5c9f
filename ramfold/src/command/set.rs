//! `ramfold set`: changes an attribute of a running server's devices, or adds and removes devices.
//!
//! Invariant: a server is asked only if the attribute and the value may be right. Locks: none.

use std::time::Duration;

use serve::control::{self, Request};

use crate::line::Failure;
use crate::line::args;
use crate::line::attribute::Change;
use crate::line::output::{one_line, patiently, print};

/// How long to wait for the answer. Write-back and recompression may visit every page of a disk.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Judges the attribute and the value, and then asks the server.
pub(super) fn run(args: &args::Set) -> Result<(), Failure> {
    let (attribute, value) = (args.attribute.clone(), args.value.join(" "));
    let value = Change::parse(&attribute, &value).map_err(Failure::Usage)?.into_value();
    let path = control::locate(&args.target)?;
    let request = Request::Set { attribute, value };
    let done = patiently(|| control::call_within(&path, &request, PATIENCE))?;
    print(&format!("{}\n", one_line(done.as_str().unwrap_or("done"))))
}
