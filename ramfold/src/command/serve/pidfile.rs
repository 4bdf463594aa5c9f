//! The file of `serve --pidfile`, and the end that comes with the parent's.
//!
//! Invariant: the file has the whole number from the moment it is there. It is there from when
//! clients can connect until the server has ended.
//!
//! Locks: that of the system on the file, which the server holds until it ends.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::Path;

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use super::ending::Ending;
use crate::line::Failure;

/// Writes the number of this process to a file, which is removed at the end if it is still ours.
pub(super) fn write(path: &Path, ending: &Ending) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::about(format!("--pidfile {}", path.display()), error);
    let path = std::path::absolute(path).map_err(failed)?;
    // Replacing a device or a pipe would take it away from everybody else.
    if fs::symlink_metadata(&path).is_ok_and(|found| !found.is_file()) {
        return Err(failed(io::Error::other("it is there, and is not a file")));
    }
    if File::open(&path).is_ok_and(|it| matches!(it.try_lock(), Err(TryLockError::WouldBlock))) {
        return Err(failed(io::Error::other("another server that runs has it")));
    }
    let mut fresh = path.clone().into_os_string();
    fresh.push(format!(".{}.new", std::process::id()));
    let own = format!("{}\n", std::process::id());
    let mut file = File::create_new(&fresh).map_err(failed)?;
    // It is locked as long as this process lives, so that no other server takes it. On a file
    // system without locks another one may.
    let _ = file.try_lock();
    let written = file.write_all(own.as_bytes()).and_then(|()| fs::rename(&fresh, &path));
    written.map_err(|error| {
        let _ = fs::remove_file(&fresh);
        failed(error)
    })?;
    ending.at_last(move || {
        // It may be another server's by now, or be gone.
        if fs::read_to_string(&path).is_ok_and(|text| text == own) {
            let _ = fs::remove_file(&path);
        }
        // The lock goes with the process.
        let _ = &file;
    });
    Ok(())
}

/// From now on this process gets SIGTERM when its parent ends. Fails if the parent is gone already.
pub(super) fn follow_parent() -> Result<(), Failure> {
    let gone = |why: &str| Failure::about("--exit-with-parent", why);
    let parent = getppid();
    // A process whose parent ended before this line is a child of process 1, or of another that
    // takes orphans. A child that process 1 has started itself, in a container, is in its session.
    let sessions = (session("1"), session("self"));
    if parent == Some(Pid::INIT) && sessions.0 != sessions.1 {
        return Err(gone("the parent is gone already, or it is process 1, which does not end"));
    }
    set_parent_process_death_signal(Some(Signal::TERM))
        .map_err(|error| Failure::about("--exit-with-parent", error))?;
    if getppid() != parent {
        return Err(gone("the parent is gone already"));
    }
    Ok(())
}

/// The session of a process. 0 is one that is outside of a container.
fn session(process: &str) -> Option<u32> {
    /// Among the fields after the name.
    const SESSION: usize = 3;
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split_ascii_whitespace().nth(SESSION)?.parse().ok()
}
