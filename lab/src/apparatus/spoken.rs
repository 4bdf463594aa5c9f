//! A child that is given its input, says what it has to say, and ends.

use crate::frame::Lab;
use crate::ground::LabError;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long it may take to end once it has said everything.
const PATIENCE: Duration = Duration::from_secs(10);

/// All of its standard output; an error unless it ended well.
pub(crate) fn said(command: &mut Command, input: &[u8], lab: &Lab) -> Result<String, LabError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let child = lab.cleanup.spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
    if let Some(mut pipe) = child.stdin() {
        pipe.write_all(input).map_err(LabError::io(&name))?;
    }
    let mut said = String::new();
    if let Some(mut output) = child.stdout() {
        output.read_to_string(&mut said).map_err(LabError::io(&name))?;
    }
    match child.wait(PATIENCE)? {
        status if status.success() => Ok(said),
        status => Err(LabError::Store { what: name, why: format!("ended with {status}: {said}") }),
    }
}
