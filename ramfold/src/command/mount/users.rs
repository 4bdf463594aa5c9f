//! Who uses a mounted directory: processes, mounts below it, loop devices and swap in it.
//!
//! ```text
//!   /proc/PID/{cwd,root,exe,fd/*}    a file of that file system
//!   /proc/PID/maps                   a mapping of one
//!   /proc/PID/mountinfo              a mount in another namespace
//! ```
//!
//! Invariant: at most `USERS_MAX` are named. This process is not among them. Locks: none.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};
use serve::fuse::mounts;

/// More would not be read.
const USERS_MAX: usize = 8;

/// A phrase for each user: `bash (pid 17)`.
pub(super) fn of(directory: &Path) -> Vec<String> {
    let Ok(found) = fs::metadata(directory) else { return Vec::new() };
    let device = found.dev();
    let mut users = below(directory);
    users.extend(processes().filter(|pid| uses(*pid, device)).map(named));
    let left = users.len().saturating_sub(USERS_MAX);
    users.truncate(USERS_MAX);
    users.extend((left > 0).then(|| format!("{left} more")));
    users
}

/// A process in whose mount namespace, which is not ours, one of these sources is mounted.
pub(super) fn with_mount(sources: &[PathBuf]) -> Option<String> {
    let space = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    let own = space("self");
    let is_one = |line: &str| {
        let (_, after) = line.split_once(" - ")?;
        let source = after.split(' ').nth(1)?;
        sources.iter().find(|it| it.as_os_str() == source)
    };
    let sees = |pid: &u32| {
        let list = || fs::read(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
        let has = || String::from_utf8_lossy(&list()).lines().any(|line| is_one(line).is_some());
        space(&pid.to_string()) != own && has()
    };
    processes().find(sees).map(named)
}

/// Mounts, loop devices and swap files in the directory, which hold it as a process does.
fn below(directory: &Path) -> Vec<String> {
    let inside = |path: &Path| path.starts_with(directory) && path != directory;
    let points = mounts().into_iter().map(|mounted| mounted.point).filter(|point| inside(point));
    let mut found: Vec<String> =
        points.map(|point| format!("the mount at {}", point.display())).collect();
    let blocks = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    found.extend(blocks.filter_map(|block| {
        let file = fs::read_to_string(block.path().join("loop/backing_file")).ok()?;
        let name = block.file_name().to_string_lossy().into_owned();
        inside(Path::new(file.trim_end())).then_some(name)
    }));
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let swaps = swaps.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    let swaps = swaps.filter(|file| inside(Path::new(file)));
    found.extend(swaps.map(|file| format!("the swap file {file}")));
    found
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let own = std::process::id();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(move |&pid| pid != own)
}

fn uses(pid: u32, device: u64) -> bool {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let is_there = |path: PathBuf| fs::metadata(path).is_ok_and(|found| found.dev() == device);
    ["cwd", "root", "exe"].iter().any(|link| is_there(process.join(link)))
        || entries(&process.join("fd")).any(is_there)
        || maps(&process, device)
}

fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// Whether a file of the device is mapped, although it may be closed.
fn maps(process: &Path, device: u64) -> bool {
    let number = format!("{:02x}:{:02x}", major(device), minor(device));
    let text = fs::read_to_string(process.join("maps")).unwrap_or_default();
    text.lines().any(|line| line.split_ascii_whitespace().nth(3) == Some(&*number))
}

fn named(pid: u32) -> String {
    match fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(name) => format!("{} (pid {pid})", name.trim_end()),
        Err(_) => format!("pid {pid}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_named_by_what_it_has_open_or_mapped() {
        let own = std::process::id();
        let program = fs::metadata("/proc/self/exe").expect("this test").dev();
        assert!(uses(own, program), "its program and its directory are files");
        assert!(maps(Path::new("/proc/self"), program) && !uses(own, u64::MAX));
        assert!(named(own).ends_with(&format!("(pid {own})")));
        assert_eq!(named(u32::MAX), format!("pid {}", u32::MAX));
        assert_eq!(of(Path::new("/nonexistent")), [""; 0]);
    }
}
