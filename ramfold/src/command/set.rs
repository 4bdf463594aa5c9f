//! `ramfold set`: changes an attribute of a running server's devices, or which devices there are.

use serve::control::{self, Request};

use crate::args;
use crate::ask::ask;
use crate::attribute::Change;
use crate::failure::Failure;
use crate::output::print;

/// Looks at the attribute before anybody is asked, then asks.
pub(super) fn run(args: &args::Set) -> Result<(), Failure> {
    let (attribute, value) = (args.attribute.clone(), args.value.join(" "));
    let value = Change::parse(&attribute, &value).map_err(Failure::Usage)?.into_value();
    let path = control::locate(&args.target)?;
    let done = ask(&path, &Request::Set { attribute, value })?;
    print(&format!("{}\n", done.as_str().unwrap_or("done")))
}
