//! A directory over which `ramfold mount` mounts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Scratch, needs, needs_device, needs_tree, ramfold, succeed, tool};

/// Mounts that a test has at a directory, one over the other.
const MOUNTS_MAX: usize = 3;

/// A directory to mount over, which does not exist yet, with its own runtime directory.
pub(crate) struct Spot {
    pub(crate) scratch: Scratch,
    pub(crate) name: String,
}

impl Spot {
    pub(crate) fn new(name: &str) -> Spot {
        // Disks are called as their directories, and other tests have disks at the same time.
        Spot { scratch: Scratch::new(), name: format!("{name}-{}", std::process::id()) }
    }

    pub(crate) fn directory(&self) -> PathBuf {
        self.scratch.path(&self.name)
    }

    pub(crate) fn place(&self) -> PathBuf {
        Path::new("/run/ramfold/mounts").join(&self.name)
    }

    pub(crate) fn ramfold(&self, verb: &str) -> Command {
        let mut command = ramfold(&[verb]);
        command.arg(self.directory()).env("XDG_RUNTIME_DIR", self.scratch.path("run"));
        command
    }

    pub(crate) fn mount(&self, arguments: &[&str]) -> String {
        succeed(self.ramfold("mount").args(arguments))
    }

    pub(crate) fn server(&self) -> u32 {
        let text = fs::read_to_string(self.place().join("record")).expect("it is mounted");
        let pid = text.split("\"pid\":").nth(1).and_then(|rest| rest.split(',').next());
        pid.and_then(|pid| pid.parse().ok()).expect("a number")
    }

    /// No directory, mount, loop device or process of it is left.
    #[track_caller]
    pub(crate) fn is_gone(&self) {
        let (directory, place) = (self.directory(), self.place());
        assert!(!directory.exists(), "{} was made for the mount", directory.display());
        assert!(!place.exists(), "{}", place.display());
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("there");
        assert!(!mounts.contains(&self.name), "{mounts}");
        let blocks = fs::read_dir("/sys/block").expect("there").flatten();
        let files =
            blocks.filter_map(|b| fs::read_to_string(b.path().join("loop/backing_file")).ok());
        let left: Vec<String> = files.filter(|file| file.contains(&self.name)).collect();
        assert!(left.is_empty(), "{left:?}");
        let running = fs::read_dir("/proc").expect("there").flatten();
        let lines = running.filter_map(|p| fs::read_to_string(p.path().join("cmdline")).ok());
        let left: Vec<String> = lines.filter(|line| line.contains(&self.name)).collect();
        assert!(left.is_empty(), "{left:?}");
        let sockets = fs::read_dir(self.scratch.path("run/ramfold")).into_iter().flatten().count();
        assert_eq!(sockets, 0, "in the runtime directory");
    }
}

impl Drop for Spot {
    /// A test that fails leaves nothing either, whatever it has mounted over the disk.
    fn drop(&mut self) {
        let is_mounted = || {
            let mounts = fs::read_to_string("/proc/self/mountinfo");
            mounts.is_ok_and(|mounts| mounts.contains(&self.directory().display().to_string()))
        };
        for _ in 0..MOUNTS_MAX {
            if is_mounted() || self.place().exists() {
                // One of them is right for what is at the top now.
                let _ = self.ramfold("umount").output();
                let _ = tool("umount").arg(self.directory()).output();
            }
        }
    }
}

pub(crate) fn needs_mount(tools: &[&str]) -> bool {
    needs_tree(&["losetup", "mount", "umount"]) && needs_device("/dev/loop-control") && needs(tools)
}
