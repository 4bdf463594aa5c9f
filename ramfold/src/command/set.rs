//! `ramfold get` and `set`: an attribute of a running server's device, shown and changed.
//!
//! Invariant: a server is asked only if the attribute and the value may be right. Locks: none.

use std::time::Duration;

use serve::control::{self, Request};

use crate::line::Failure;
use crate::line::args;
use crate::line::attribute::{self, Change};
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

/// Asks the server, and prints what it says.
pub(super) fn get(args: &args::Get) -> Result<(), Failure> {
    attribute::check_readable(&args.attribute).map_err(Failure::Usage)?;
    let path = control::locate(&args.target)?;
    let text = control::call(&path, &Request::Get { attribute: args.attribute.clone() })?;
    print(&format!("{}\n", text.as_str().unwrap_or_default().trim_end_matches('\n')))
}
