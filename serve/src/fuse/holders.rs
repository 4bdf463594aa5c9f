//! Who has disks open: processes, and the loop devices they have set up.
//!
//! A process that sets up a loop device ends, and the kernel keeps the file; what it is kept for
//! is in `/sys/block/loopN/loop/backing_file`. Nothing here touches the mount.

use super::handles::Handles;
use std::fs;
use std::os::unix::ffi::OsStrExt;
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

/// Loop devices over a file, by name.
fn loops_over(file: &Path) -> Vec<String> {
    let blocks = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let over = |name: &String| {
        let backing = fs::read(format!("/sys/block/{name}/loop/backing_file")).unwrap_or_default();
        backing.trim_ascii_end() == file.as_os_str().as_bytes()
    };
    blocks.filter_map(|block| block.file_name().into_string().ok()).filter(over).collect()
}

fn is_alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}
