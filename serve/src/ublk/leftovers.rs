//! Devices of servers that were killed.
//!
//! ```text
//!   mark of a device:   "rfol".4 process.4
//!   /sys/class/ublk-char/ublkcN --> info --> our mark, dead, and its process is gone --> delete
//! ```
//!
//! When a server is killed, the kernel ends its block device, and what has that open gets errors.
//! The number stays taken until it is deleted, which the next server does.
//!
//! Invariant: only a device with our mark is deleted, and only if no process has it. Locks: none.

use host::{UblkControl, UblkDevice};
use rustix::io::Errno;
use std::fs;
use std::io;
use std::path::Path;

/// The first half of a mark.
const OURS: u64 = 0x7266_6f6c;
/// Where the kernel lists the devices.
const LIST: &str = "/sys/class/ublk-char";

/// The mark of this process's devices.
pub(super) fn mark() -> u64 {
    OURS << 32 | u64::from(std::process::id())
}

/// Deletes what servers that were killed have left, and gives the numbers.
pub(super) fn delete(control: &mut UblkControl) -> Vec<u32> {
    let entries = fs::read_dir(LIST).into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| number(entry.file_name().to_str()?));
    ids.filter(|&id| delete_one(control, id).is_ok_and(|deleted| deleted)).collect()
}

fn delete_one(control: &mut UblkControl, id: u32) -> io::Result<bool> {
    let info = control.info(id)?;
    let is_left = info.is_dead && process_of(info.mark).is_some_and(|pid| !is_running(pid));
    // A server of another process namespace has it open.
    if !is_left || !is_free(UblkDevice::open(id)) {
        return Ok(false);
    }
    control.delete(id).map(|()| true)
}

fn is_free(opened: io::Result<UblkDevice>) -> bool {
    // The kernel may still be ending it, and then says that it is busy: it stays for the next one.
    !opened.is_err_and(|error| Errno::from_io_error(&error) == Some(Errno::BUSY))
}

/// The process whose mark it is, if it is one of ours.
fn process_of(mark: u64) -> Option<u32> {
    (mark >> 32 == OURS).then_some(mark as u32)
}

fn is_running(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

/// The number of `ublkcN`.
fn number(name: &str) -> Option<u32> {
    name.strip_prefix("ublkc")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_names_its_process_and_others_are_none_of_ours() {
        assert_eq!(process_of(mark()), Some(std::process::id()));
        assert!(is_running(std::process::id()) && !is_running(u32::MAX));
        assert_eq!((process_of(0), process_of(u64::MAX)), (None, None));
        assert_eq!((number("ublkc12"), number("ublkb1"), number("ublkc")), (Some(12), None, None));
    }
}
