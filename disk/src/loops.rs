//! Files that the kernel has as block devices.
//!
//! A process that sets up a loop device ends, and the kernel keeps the file without a lock on it;
//! which file that is, is in `/sys/block/loopN/loop/backing_file`.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Loop devices over a file, by name: `loop0`. The path is to be the file's own, absolute and
/// without links; it is compared, not followed, so a file system that hangs makes nobody wait.
pub fn loops_over(file: &Path) -> Vec<String> {
    let blocks = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let over = |name: &String| {
        let backing = fs::read(format!("/sys/block/{name}/loop/backing_file")).unwrap_or_default();
        backing.strip_suffix(b"\n") == Some(file.as_os_str().as_bytes())
    };
    blocks.filter_map(|block| block.file_name().into_string().ok()).filter(over).collect()
}
