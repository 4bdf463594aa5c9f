//! What has a block device open: mounts, swap, devices over it, and processes.
//!
//! ```text
//!   /proc/self/mountinfo, /proc/swaps     by its number, by its path
//!   /sys/block/NAME/holders, loop devices by name, by its path
//!   /proc/PID/fd/*                        by its number, and those of its partitions
//! ```
//!
//! Invariant: nothing here opens the device or asks a file system of it, which might wait. At most
//! `HOLDERS_MAX` are named. Locks: none.

use crate::fuse::mounts;
use disk::loops_over;
use rustix::fs::{FileType, major, minor, stat};
use std::fs;
use std::path::{Path, PathBuf};

/// More would not be read.
const HOLDERS_MAX: usize = 8;

/// A phrase for each holder of a block device.
pub(super) fn of(device: &Path) -> Vec<String> {
    let Some(name) = device.file_name().and_then(|name| name.to_str()) else { return Vec::new() };
    let directory = Path::new("/sys/block").join(name);
    let numbers = numbers(&directory);
    let mounted = mounts().into_iter().filter(|mount| {
        numbers.contains(&mount.device)
            || mount.source.starts_with("/dev") && mount.source == device
    });
    let mut holders: Vec<String> =
        mounted.map(|mount| format!("the mount at {}", mount.point.display())).collect();
    holders.extend(swapped(&fs::read_to_string("/proc/swaps").unwrap_or_default(), device));
    holders.extend(names(&directory.join("holders")));
    holders.extend(loops_over(device));
    let own = std::process::id();
    let processes = names(Path::new("/proc")).filter_map(|name| name.parse().ok());
    let processes = processes.filter(|&pid| pid != own && has_open(pid, &numbers));
    holders.extend(processes.map(named));
    let left = holders.len().saturating_sub(HOLDERS_MAX);
    holders.truncate(HOLDERS_MAX);
    holders.extend((left > 0).then(|| format!("{left} more")));
    holders
}

/// The swap on a device or its partitions.
fn swapped(swaps: &str, device: &Path) -> Vec<String> {
    let paths = swaps.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    let of_device = |path: &str| {
        let rest = Path::new(path).to_str()?.strip_prefix(device.to_str()?)?;
        (rest.is_empty() || rest.starts_with('p')).then(|| format!("swap on {path}"))
    };
    paths.filter_map(of_device).collect()
}

/// The numbers of a device and of its partitions.
fn numbers(directory: &Path) -> Vec<(u32, u32)> {
    let parts = names(directory).map(|name| directory.join(name));
    let parts = parts.filter(|part| part.join("partition").exists());
    std::iter::once(directory.to_owned()).chain(parts).filter_map(number).collect()
}

fn number(directory: PathBuf) -> Option<(u32, u32)> {
    let text = fs::read_to_string(directory.join("dev")).ok()?;
    let (major, minor) = text.trim_end().split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn names(directory: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}

fn has_open(pid: u32, numbers: &[(u32, u32)]) -> bool {
    let files = PathBuf::from(format!("/proc/{pid}/fd"));
    names(&files).any(|name| is_device(&files.join(name), numbers))
}

/// Whether a path leads to a block device of one of these numbers.
fn is_device(path: &Path, numbers: &[(u32, u32)]) -> bool {
    stat(path).is_ok_and(|found| {
        FileType::from_raw_mode(found.st_mode) == FileType::BlockDevice
            && numbers.contains(&(major(found.st_rdev), minor(found.st_rdev)))
    })
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
    fn swap_is_that_of_the_device_or_its_partitions() {
        let swaps = "Filename Type Size Used Priority\n\
                     /dev/ublkb1 partition 8 0 -2\n\
                     /dev/ublkb1p2 partition 8 0 -2\n\
                     /dev/ublkb10 partition 8 0 -2\n";
        let found = swapped(swaps, Path::new("/dev/ublkb1"));
        assert_eq!(found, ["swap on /dev/ublkb1", "swap on /dev/ublkb1p2"]);
        assert!(swapped("", Path::new("/dev/ublkb1")).is_empty());
    }

    #[test]
    fn a_device_that_is_not_there_has_no_holders() {
        assert_eq!(of(Path::new("/dev/ublkb4294967295")), [""; 0]);
        assert!(named(std::process::id()).ends_with(&format!("(pid {})", std::process::id())));
    }
}
