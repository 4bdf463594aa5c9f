//! A memory cgroup of version 1: what its processes are charged, and the most that they may be.
//!
//! ```text
//!   /sys/fs/cgroup/memory/..ours../
//!     ramfold-lab-PID-N/        a job: its script, and what prepares its input
//!       program/                the program that is measured, with all processes it starts
//!
//!   charged = usage_in_bytes - total_cache + total_shmem
//! ```
//!
//! Invariants
//! - Removing a group kills what still runs in it. A group that a killed lab left is removed by the
//!   next lab that makes one.
//! - Each run of a job has a group of its own, so that its counts begin at nothing.
//!
//! Lock: none. Names of groups have the number of their process.

use super::text::field_of;
use crate::ground::{Cleanup, Deferred, LabError};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What errors and messages call it.
pub(crate) const GROUPS: &str = "memory cgroups of version 1";
const MOUNT: &str = "/sys/fs/cgroup/memory";
const PREFIX: &str = "ramfold-lab-";
const PROGRAM: &str = "program";
const PROCESSES: &str = "cgroup.procs";
/// The system takes a moment to end processes that were killed.
const PATIENCE: Duration = Duration::from_secs(10);

/// A group with one for the program in it; gone when dropped.
pub(crate) struct Group {
    directory: PathBuf,
    _deferred: Deferred,
}

/// What a group was charged at one moment, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Charged {
    /// All memory, without the cache of files.
    pub(crate) bytes: u64,
    /// The kernel's part of it: page tables, stacks, objects.
    pub(crate) kernel_bytes: u64,
}

impl Charged {
    /// The greater of both, figure by figure.
    pub(crate) fn max(self, other: Charged) -> Charged {
        let bytes = self.bytes.max(other.bytes);
        Charged { bytes, kernel_bytes: self.kernel_bytes.max(other.kernel_bytes) }
    }
}

impl Group {
    /// A new one below the group that this process is in.
    pub(crate) fn new(cleanup: &Cleanup) -> Result<Group, LabError> {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let missing = |why: io::Error| LabError::missing(GROUPS, why);
        let parent = parent(Path::new(MOUNT), &groups);
        let none = || LabError::missing(GROUPS, "none is mounted");
        let parent = parent.filter(|parent| parent.join(PROCESSES).exists()).ok_or_else(none)?;
        remove_abandoned(&parent);
        let directory = create(&parent).map_err(missing)?;
        let doomed = directory.clone();
        let deferred = cleanup.defer(move || {
            if let Err(why) = remove(&doomed) {
                eprintln!("lab: {} is still there: {why}", doomed.display());
            }
        });
        fs::create_dir(directory.join(PROGRAM)).map_err(missing)?;
        Ok(Group { directory, _deferred: deferred })
    }

    /// The file by which a process joins the outer group.
    pub(crate) fn job(&self) -> PathBuf {
        self.directory.join(PROCESSES)
    }

    /// The file by which a process joins the group that is counted.
    pub(crate) fn program(&self) -> PathBuf {
        self.inner(PROCESSES)
    }

    /// The most that the program may be charged, the cache of files included.
    pub(crate) fn set_limit(&self, bytes: u64) -> Result<(), LabError> {
        let path = self.inner("memory.limit_in_bytes");
        fs::write(&path, bytes.to_string()).map_err(LabError::io(path.display()))
    }

    /// What the program and its processes are charged now.
    pub(crate) fn charged(&self) -> Result<Charged, LabError> {
        let usage = self.read("memory.usage_in_bytes")?;
        let kernel = self.read("memory.kmem.usage_in_bytes")?;
        let stat = self.read("memory.stat")?;
        let wrong = || LabError::Wrong(format!("{}: not understood", self.inner("").display()));
        charged(&usage, &kernel, &stat).ok_or_else(wrong)
    }

    /// How many processes the kernel has killed because of the limit.
    pub(crate) fn killed(&self) -> Result<u64, LabError> {
        let control = self.read("memory.oom_control")?;
        let wrong = || LabError::Wrong(format!("memory.oom_control: {control}"));
        field_of(&control, "oom_kill").ok_or_else(wrong)
    }

    /// Stops all processes of the program until they are killed, and returns their numbers.
    pub(crate) fn stop(&self) -> Result<Vec<u32>, LabError> {
        let mut stopped = Vec::new();
        loop {
            let pids: Vec<u32> =
                self.read(PROCESSES)?.lines().filter_map(|line| line.parse().ok()).collect();
            // One that was not stopped yet may have made another.
            if pids == stopped {
                return Ok(pids);
            }
            for pid in pids.iter().filter_map(|&pid| Pid::from_raw(pid as i32)) {
                // It may have ended a moment ago.
                let _ = kill_process(pid, Signal::STOP);
            }
            stopped = pids;
        }
    }

    /// Kills all processes of the job.
    pub(crate) fn end(&self) -> Result<(), LabError> {
        empty(&self.directory).map_err(LabError::io(self.directory.display()))
    }

    fn inner(&self, file: &str) -> PathBuf {
        self.directory.join(PROGRAM).join(file)
    }

    fn read(&self, file: &str) -> Result<String, LabError> {
        let path = self.inner(file);
        fs::read_to_string(&path).map_err(LabError::io(path.display()))
    }
}

fn charged(usage: &str, kernel: &str, stat: &str) -> Option<Charged> {
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let (cache, shared) = (field_of(stat, "total_cache")?, field_of(stat, "total_shmem")?);
    // The two files were read one after the other.
    let bytes = (number(usage)? + shared).saturating_sub(cache);
    Some(Charged { bytes, kernel_bytes: number(kernel)? })
}

/// The group of a process, by its `/proc/PID/cgroup`. In a container the name may be one that only
/// the machine outside has; the mount is then the container's group.
fn parent(mount: &Path, groups: &str) -> Option<PathBuf> {
    let of_memory = |line: &str| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let has = controllers.split(',').any(|name| name == "memory");
        has.then(|| mount.join(path.trim_start_matches('/')))
    };
    let own = groups.lines().find_map(of_memory)?;
    Some(if own.exists() { own } else { mount.to_owned() })
}

/// The first name of ours that is not taken.
fn create(parent: &Path) -> io::Result<PathBuf> {
    let mut number = 0;
    loop {
        let path = parent.join(format!("{PREFIX}{}-{number}", std::process::id()));
        match fs::create_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            result => return result.map(|()| path),
        }
    }
}

/// The process whose group this is, by its name.
fn owner(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split_once('-')?.0.parse().ok()
}

fn remove_abandoned(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let owner = entry.file_name().to_str().and_then(owner);
        if owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            // Another lab may remove it at the same moment.
            let _ = remove(&entry.path());
        }
    }
}

/// Kills what runs in a group, and removes it.
fn remove(directory: &Path) -> io::Result<()> {
    empty(directory)?;
    for group in [directory.join(PROGRAM), directory.to_owned()] {
        patiently(|| match fs::remove_dir(&group) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Ok(false),
            result => result.map(|()| true),
        })?;
    }
    Ok(())
}

/// Kills what runs in a group and in the program's, until nothing does.
fn empty(directory: &Path) -> io::Result<()> {
    patiently(|| {
        let mut none = true;
        for group in [directory.to_owned(), directory.join(PROGRAM)] {
            let processes = fs::read_to_string(group.join(PROCESSES)).unwrap_or_default();
            for pid in processes.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)) {
                none = false;
                // It may have ended a moment ago.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        Ok(none)
    })
}

/// Tries again and again until it is done.
fn patiently(mut done: impl FnMut() -> io::Result<bool>) -> io::Result<()> {
    let start = Instant::now();
    while !done()? {
        if start.elapsed() > PATIENCE {
            return Err(io::Error::other("processes in it do not end"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::PrivateDirectory;
    use std::process::Command;

    #[test]
    fn what_is_charged_has_shared_memory_and_no_file_cache() {
        let stat = "cache 1\nshmem 1\ntotal_cache 700\ntotal_rss 300\ntotal_shmem 200\n";
        let read = charged("1100\n", "100\n", stat);
        assert_eq!(read, Some(Charged { bytes: 600, kernel_bytes: 100 }));
        let later = charged("400\n", "100\n", stat).map(|charged| charged.bytes);
        assert_eq!(later, Some(0), "the cache went between the two");
        assert_eq!(charged("1100\n", "100\n", "total_cache 1\n"), None);
        let [one, other] =
            [(7, 1), (5, 3)].map(|(bytes, kernel_bytes)| Charged { bytes, kernel_bytes });
        assert_eq!(one.max(other), Charged { bytes: 7, kernel_bytes: 3 });
    }

    #[test]
    fn a_group_is_made_below_ones_own_or_in_the_mount() {
        let scratch = PrivateDirectory::new(&Cleanup::default()).unwrap();
        let mount = scratch.path();
        fs::create_dir_all(mount.join("a/b")).unwrap();
        let of = |groups: &str| parent(mount, groups);
        assert_eq!(of("9:name=systemd:/x\n4:cpu,memory:/a/b\n"), Some(mount.join("a/b")));
        assert_eq!(of("4:memory:/elsewhere\n"), Some(mount.to_owned()));
        assert_eq!(of("0::/\n3:memory2:/a\n"), None);
    }

    #[test]
    fn a_group_names_its_lab() {
        assert_eq!(owner("ramfold-lab-77-3"), Some(77));
        assert_eq!(owner("ramfold-lab-77").or(owner("lab-77-3")), None);
    }

    /// Needs root and cgroups of version 1.
    #[test]
    fn what_runs_in_a_group_is_charged_and_killed_with_it() {
        let cleanup = Cleanup::default();
        let group = match Group::new(&cleanup) {
            Ok(group) => group,
            Err(error) => return println!("skipped: needs {error}"),
        };
        assert_eq!(group.charged().unwrap().bytes, 0);
        group.set_limit(256 << 20).unwrap();
        let join = "echo $$ > \"$0\" && exec sleep 1000";
        let mut child = Command::new("sh").args(["-c", join]).arg(group.program()).spawn().unwrap();
        let start = Instant::now();
        while group.charged().unwrap().bytes == 0 {
            assert!(start.elapsed() < PATIENCE, "nothing is charged");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(group.killed().unwrap(), 0);
        let directory = group.directory.clone();
        drop(group);
        assert!(!child.wait().unwrap().success(), "it was killed");
        assert!(!directory.exists());
    }
}
