//! `ramfold set`: changes an attribute of a running server's devices, or which devices there are.

use std::time::Duration;

use serve::control::{self, Request};

use crate::line::Failure;
use crate::line::args;
use crate::line::attribute::Change;
use crate::line::output::{one_line, patiently, print};

/// Write-back and recompression may pass over every page of a large disk.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Looks at the attribute before anybody is asked, then asks.
pub(super) fn run(args: &args::Set) -> Result<(), Failure> {
    let (attribute, value) = (args.attribute.clone(), args.value.join(" "));
    let value = Change::parse(&attribute, &value).map_err(Failure::Usage)?.into_value();
    let path = control::locate(&args.target)?;
    let request = Request::Set { attribute, value };
    let done = patiently(|| control::call_within(&path, &request, PATIENCE))?;
    print(&format!("{}\n", one_line(done.as_str().unwrap_or("done"))))
}
