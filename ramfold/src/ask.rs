//! Asking a server for what may take it long.
//!
//! Invariant: one that answers nothing, because it is stopped, is found out before it is asked.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use serve::control::{self, ControlError, Request};

use crate::output::patiently;

/// Recounting, write-back and recompression may pass over every page of a large disk.
const PATIENCE: Duration = Duration::from_secs(3600);

/// What the server at a control socket answers.
pub(crate) fn ask(path: &Path, request: &Request) -> Result<Value, ControlError> {
    ask_within(path, request, control::CALL_TIMEOUT)
}

fn ask_within(path: &Path, request: &Request, alive: Duration) -> Result<Value, ControlError> {
    patiently(|| {
        control::call_within(path, &Request::Stat, alive)?;
        control::call_within(path, request, PATIENCE)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_server_that_is_stopped_is_not_waited_for() {
        let path = std::env::temp_dir().join(format!("ramfold-stopped-{}", std::process::id()));
        // The system takes connections and what is written to them; nobody reads.
        let _listener = UnixListener::bind(&path).unwrap();
        let asked = ask_within(&path, &Request::Check, Duration::from_millis(50));
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(asked, Err(ControlError::Timeout(_))), "{asked:?}");
    }
}
