//! Who has disks open: processes, and the loop devices they have set up.
//!
//! Nothing here touches the mount.

use super::handles::Handles;
use disk::loops_over;
use std::path::Path;

/// All of them, a phrase each: `zram0 by loop0`.
pub(super) fn all(handles: &Handles, point: &Path) -> Vec<String> {
    let open = handles.holders();
    let phrase = |(device, who): (&String, &String)| format!("{device} by {who}");
    let mut names: Vec<&String> = open.iter().map(|(device, ..)| device).collect();
    names.sort();
    names.dedup();
    let mut holders = Vec::new();
    for device in names {
        let loops = loops_over(&point.join(device).join("disk"));
        holders.extend(loops.iter().map(|name| phrase((device, name))));
    }
    let alive = open.iter().filter(|(_, pid, _)| *pid == 0 || is_alive(*pid));
    holders.extend(alive.map(|(device, _, name)| phrase((device, name))));
    holders
}

fn is_alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}
