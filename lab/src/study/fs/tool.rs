//! Programs of the system: run, waited for, and quoted when they fail.

use crate::frame::Lab;
use crate::ground::LabError;
use std::io::{self, Read};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The longest any of them may take.
const PATIENCE: Duration = Duration::from_secs(1800);
/// Bytes of what a failed one said that are repeated, from the end.
const QUOTED: usize = 2000;

/// Runs a program to its end; what it said on both outputs. `package` is where to find it.
pub(super) fn run(
    mut command: Command,
    package: &'static str,
    lab: &Lab,
) -> Result<String, LabError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let (mut reader, writer) = io::pipe().map_err(LabError::io("a pipe"))?;
    let second = writer.try_clone().map_err(LabError::io("a pipe"))?;
    command.stdin(Stdio::null()).stdout(writer).stderr(second);
    let spawned = lab.cleanup.spawn(&mut command);
    // It holds the writing ends: without this the reading end would never come to an end.
    drop(command);
    let child = spawned.map_err(|error| LabError::missing(package, format!("{name}: {error}")))?;
    let mut said = String::new();
    reader.read_to_string(&mut said).map_err(LabError::io(&name))?;
    match child.wait(PATIENCE)? {
        status if status.success() => Ok(said),
        status => {
            let tail = said.char_indices().rev().nth(QUOTED).map_or(0, |(at, _)| at);
            let why = format!("ended with {status}: {}", said[tail..].trim());
            Err(LabError::Store { what: name, why })
        }
    }
}
