//! A process that stands still for a while.

use std::fs;

use super::server::signal;
use super::{eventually, tool};

/// A process that stands still until this is dropped, even if the test fails and readers wait for
/// it.
pub(crate) struct Stopped(u32);

impl Stopped {
    /// Stops a process, and waits until it stands: one of its threads sees the signal first, and
    /// the others may go on until that one comes to run.
    pub(crate) fn new(pid: u32) -> Stopped {
        signal(pid, "STOP");
        let stopped = Stopped(pid);
        let stands = |thread: fs::DirEntry| {
            let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            stat.contains(") T ")
        };
        eventually("every thread to stand still", || {
            let threads = fs::read_dir(format!("/proc/{pid}/task"));
            threads.expect("it lives").flatten().all(stands)
        });
        stopped
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // Fails only when the process has ended.
        let _ = tool("sh").arg("-c").arg(format!("kill -CONT {}", self.0)).status();
    }
}
