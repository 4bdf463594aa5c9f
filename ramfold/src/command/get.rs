//! `ramfold get`: the text of an attribute, as a file of the kernel's has it.
//!
//! Invariant: a server is asked only if there is such an attribute. Locks: none.

use serve::control::{self, Request};

use crate::line::Failure;
use crate::line::args;
use crate::line::attribute;
use crate::line::output::print;

/// Asks the server, and prints what it says.
pub(super) fn run(args: &args::Get) -> Result<(), Failure> {
    attribute::check_readable(&args.attribute).map_err(Failure::Usage)?;
    let path = control::locate(&args.target)?;
    let text = control::call(&path, &Request::Get { attribute: args.attribute.clone() })?;
    print(&format!("{}\n", text.as_str().unwrap_or_default().trim_end_matches('\n')))
}
