//! The programs that make, mount and unmount a file system: run, and their refusals told.
//!
//! They run as processes of their own although most of it is a system call each. A call that
//! unmounts waits for the server. If the server made it and was killed meanwhile, the two would
//! wait for each other for ever.
//!
//! Invariant: a program gets no signal of a terminal, because half of the work is worse than all
//! or none. Locks: none.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::line::Failure;

/// Directories of programs for administrators, which users may not have in PATH.
const ADMINISTRATORS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Where a program is.
pub(super) fn find(program: &str) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&paths).chain(ADMINISTRATORS.map(PathBuf::from));
    places.map(|place| place.join(program)).find(|path| path.is_file())
}

/// A program that is installed, or a word about where it comes from.
pub(super) fn command(program: &str) -> Result<Command, Failure> {
    let found = find(program).ok_or_else(|| {
        Failure::Failed(format!(
            "{program} is not installed; it is in the package {}",
            package(program)
        ))
    })?;
    let mut command = Command::new(found);
    command.env("LC_ALL", "C").env_remove("NOTIFY_SOCKET").env_remove("WATCHDOG_USEC");
    command.stdin(Stdio::null()).process_group(0);
    Ok(command)
}

/// The package that has a program, by the names of Debian.
fn package(program: &str) -> &'static str {
    match program {
        "mkfs.ext4" => "e2fsprogs",
        "mkfs.btrfs" => "btrfs-progs",
        "mkfs.xfs" => "xfsprogs",
        "fuse2fs" => "fuse2fs",
        "fusermount3" => "fuse3",
        "unshare" => "util-linux",
        _ => "mount (util-linux)",
    }
}

/// Runs a program to its end, and gives what it printed.
pub(super) fn run(
    program: &str,
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> Result<String, Failure> {
    let output = command(program)?.args(arguments).output();
    let output = output.map_err(|error| Failure::about(program, error))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned());
    }
    Err(Failure::about(program, said(&output.stderr, &output.status.to_string())))
}

/// What a program said on standard error, on one line, without its own name before it.
pub(super) fn said(stderr: &[u8], otherwise: &str) -> String {
    let text = String::from_utf8_lossy(stderr);
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    // How the program is used is no matter of whoever reads this: it was called here.
    let lines: Vec<&str> = lines.take_while(|line| !line.starts_with("Usage:")).collect();
    let text = lines.join("; ");
    let named = text.split_once(": ").filter(|(name, _)| find(name).is_some());
    let text = named.map_or(&*text, |(_, rest)| rest).to_owned();
    if text.is_empty() { otherwise.to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_once_and_on_one_line() {
        assert_eq!(said(b"umount: /mnt: target is busy.\n", ""), "/mnt: target is busy.");
        assert_eq!(said(b"\n  first\n second \n", ""), "first; second");
        assert_eq!(said(b"\n", "exit status: 1"), "exit status: 1");
        assert_eq!(said(b"too small\nUsage: mkfs\n/* size */\n", ""), "too small");
        let missing = run("ramfold-no-such-program", ["x"]).unwrap_err().to_string();
        assert!(missing.contains("is not installed"), "{missing}");
        let refused = run("mount", ["--no-such-option"]).unwrap_err().to_string();
        assert!(refused.starts_with("mount: unrecognized option"), "{refused}");
    }
}
