//! What the system swaps to, and how much it has swapped out.

use crate::ground::LabError;
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// What is swapped on: a heading, then one line per swap area, the device or file first.
pub(super) const SWAPS: &str = "/proc/swaps";
/// What the system has counted: a name and a number on each line.
const VMSTAT: &str = "/proc/vmstat";
/// What a swap area is to have besides room for every page: its header, and clusters of slots that
/// a CPU keeps to itself. The last few pages find no slot without.
pub(crate) const SPARE_BYTES: u64 = 32 << 20;

/// Pages that the system has swapped out since it started, to devices and to zswap.
pub(crate) fn pages_swapped_out() -> Result<u64, LabError> {
    let counts = fs::read_to_string(VMSTAT).map_err(LabError::io(VMSTAT))?;
    Ok(swapped_out(&counts))
}

fn swapped_out(counts: &str) -> u64 {
    let of = |line: &str| {
        let (name, count) = line.split_once(' ')?;
        count.parse::<u64>().ok().filter(|_| ["pswpout", "zswpout"].contains(&name))
    };
    counts.lines().filter_map(of).sum()
}

/// Runs one of util-linux's tools on a device or file.
pub(super) fn tool(name: &str, path: &Path) -> io::Result<()> {
    let output = Command::new(name).arg(path).stdin(Stdio::null()).output();
    let output = output.map_err(|error| io::Error::other(format!("{name}: {error}")))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let failed = || io::Error::other(format!("{name}: {}", said.trim()));
    output.status.success().then_some(()).ok_or_else(failed)
}

/// Why a study that swaps must not begin, if so.
pub(super) fn in_the_way() -> Option<String> {
    let swaps = fs::read_to_string(SWAPS).unwrap_or_default();
    first(&swaps).map(|other| format!("{other} is swapped on, which would disturb the figures"))
}

/// What is swapped on first, if anything is.
fn first(swaps: &str) -> Option<&str> {
    swaps.lines().nth(1).and_then(|line| line.split([' ', '\t']).next())
}

/// Whether `path` is swapped on.
pub(super) fn is_on(swaps: &str, path: &str) -> bool {
    swaps.lines().skip(1).any(|line| line.split([' ', '\t']).next() == Some(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_those_of_devices_and_of_zswap() {
        assert_eq!(swapped_out("pswpin 7\npswpout 5\nzswpin 1\nzswpout 20\nzswpwb 3\n"), 25);
        assert_eq!(swapped_out("nr_free_pages 9\n"), 0);
    }

    #[test]
    fn what_is_on_is_this_device_alone() {
        let head = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";
        let swaps = format!("{head}/dev/zram01 partition\t8\t0\t100\n");
        assert!(is_on(&swaps, "/dev/zram01"));
        assert!(!is_on(&swaps, "/dev/zram0"));
        assert_eq!((first(&swaps), first(head)), (Some("/dev/zram01"), None));
    }
}
