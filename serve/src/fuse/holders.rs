//! What has disks open: processes, and the loop devices that they have set up.
//!
//! ```text
//!   opened by losetup, which has ended   -> loop0, whose file it is
//!   opened by mkfs, which runs           -> mkfs (pid 17)
//!   opened by bash, which has ended      -> what bash (pid 17) opened before it ended
//! ```
//!
//! A process is known by its number and its start, because numbers are used again.
//!
//! Invariant: nothing here touches the mount, which might wait. Locks: none.

use disk::loops_over;
use std::fs;
use std::path::Path;

/// The process that opened a disk.
#[derive(Clone, Debug)]
pub(super) struct Holder {
    pid: u32,
    /// Its name and number, for people.
    name: String,
    /// Its start in clock ticks. `None` if the system does not say.
    started: Option<u64>,
}

impl Holder {
    /// The process of a thread. A request of the kernel names a thread, or 0 for the kernel itself.
    pub(super) fn of(thread: u32) -> Self {
        let status = fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
        let pid = line.and_then(|pid| pid.trim().parse().ok()).unwrap_or(thread);
        let name = match fs::read_to_string(format!("/proc/{pid}/comm")) {
            Ok(name) => format!("{} (pid {pid})", name.trim_end()),
            Err(_) if pid == 0 => "the kernel".to_owned(),
            Err(_) => format!("pid {pid}"),
        };
        Self { pid, name, started: start_of(pid) }
    }

    /// What has a disk open now that this process opened.
    pub(super) fn now(&self, disk: &Path) -> String {
        if !self.has_ended() {
            return self.name.clone();
        }
        let loops = loops_over(disk);
        if loops.is_empty() { self.legacy() } else { loops.join(", ") }
    }

    fn legacy(&self) -> String {
        format!("what {} opened before it ended", self.name)
    }

    fn has_ended(&self) -> bool {
        self.started.is_some() && start_of(self.pid) != self.started
    }
}

/// The start of a process. `None` if it has ended, even if its parent has not waited for it yet.
fn start_of(pid: u32) -> Option<u64> {
    /// Among the fields after the name. The first of those is the state, and this is field 22 of
    /// all.
    const START: usize = 19;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split_ascii_whitespace().collect();
    let ended = matches!(fields.first(), Some(&("Z" | "X")));
    fields.get(START).filter(|_| !ended)?.parse().ok()
}

/// A phrase for each holder of a disk: `zram0 by loop0`.
pub(super) fn all(open: &[(String, Holder)], point: &Path) -> Vec<String> {
    let mut devices: Vec<&String> = open.iter().map(|(device, _)| device).collect();
    devices.sort();
    devices.dedup();
    let mut holders = Vec::new();
    for device in devices {
        let loops = loops_over(&point.join(device).join("disk"));
        let of_device = open.iter().filter(|(name, _)| name == device).map(|(_, holder)| holder);
        // Loop devices were set up by processes that have ended.
        let (ended, alive): (Vec<&Holder>, _) = of_device.partition(|holder| holder.has_ended());
        let ended = ended.into_iter().filter(|_| loops.is_empty()).map(Holder::legacy);
        let alive = alive.into_iter().map(|holder: &Holder| holder.name.clone());
        let names = loops.iter().cloned().chain(alive).chain(ended);
        holders.extend(names.map(|name| format!("{device} by {name}")));
    }
    holders
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn who_has_ended_is_not_named_as_if_it_ran() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let holder = Holder::of(child.id());
        let alive = holder.now(Path::new("/nonexistent"));
        assert!(alive.ends_with(&format!("(pid {})", child.id())), "{alive}");
        drop(child.stdin.take());
        // The process has ended, but it was not waited for, so it is still listed.
        while start_of(child.id()).is_some() {
            std::thread::yield_now();
        }
        let ended = format!("what {} opened before it ended", holder.name);
        assert_eq!(holder.now(Path::new("/nonexistent")), ended);
        child.wait().unwrap();
        assert_eq!(holder.now(Path::new("/nonexistent")), ended);
        let ours = std::process::id();
        let other = Holder { pid: ours, started: start_of(ours).map(|start| start + 1), ..holder };
        assert_eq!(other.now(Path::new("/nonexistent")), ended, "a number that is used again");
    }

    #[test]
    fn the_kernel_does_not_end() {
        assert_eq!(Holder::of(0).now(Path::new("/nonexistent")), "the kernel");
    }
}
