//! `ramfold add` and `ramfold remove`: devices of a running server.
//!
//! Invariant: a server is asked only for a name and a size that a device may have. Locks: none.

use serve::control::{self, Request};

use crate::line::Failure;
use crate::line::args;
use crate::line::output::{one_line, patiently, print};

/// Asks a server to add a device.
pub(super) fn add(args: &args::Add) -> Result<(), Failure> {
    let (name, size) = (args.export.name.clone(), args.export.size);
    ask(&args.target, &Request::Add { name, size })
}

/// Asks a server to remove a device.
pub(super) fn remove(args: &args::Remove) -> Result<(), Failure> {
    ask(&args.target, &Request::Remove { name: args.device.clone() })
}

fn ask(target: &str, request: &Request) -> Result<(), Failure> {
    let path = control::locate(target)?;
    let done = patiently(|| control::call(&path, request))?;
    print(&format!("{}\n", one_line(done.as_str().unwrap_or("done"))))
}
