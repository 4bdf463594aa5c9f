//! The end of a process whose memory cannot be kept right.
//!
//! Going on would give the program wrong bytes, so it ends with a message. Our threads have none of
//! the program's descriptors, so the message goes to its standard error by way of `/proc`.

use std::fs::OpenOptions;
use std::io::Write;

/// Ends the process with a message.
pub(crate) fn lost(what: &str) -> ! {
    let pid = std::process::id();
    let text = format!("ramfold: process {pid} is ended, because {what}\n");
    if let Ok(mut file) = OpenOptions::new().append(true).open(format!("/proc/{pid}/fd/2")) {
        let _ = file.write_all(text.as_bytes());
    }
    std::process::abort()
}
