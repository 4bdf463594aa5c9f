//! Trees that another mount covers, that were moved, or that are mounted elsewhere too.
//!
//! Claims: a tree that is still mounted does not count as unmounted. What keeps it is named. A
//! server ends by itself when that is gone.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::rig::{Mount, Process, Scratch, Tree, eventually, needs_tree, succeed, tool};

/// A tree on a mount of its own, from which it can be moved. Mounts of the test are below it too.
struct Ground {
    process: Process,
    directory: PathBuf,
    /// Dropped after the process. What is still mounted below it goes with it.
    base: Mount,
    _scratch: Scratch,
}

impl Ground {
    fn new() -> Ground {
        let scratch = Scratch::new();
        let base = Mount::memory(scratch.path("base"), 1 << 20);
        succeed(tool("mount").arg("--make-private").arg(&base.directory));
        let directory = base.directory.join("tree");
        let mut serve = Tree::command(&scratch, &directory, &["--size", "1M"]);
        let process = Process::start(&mut serve, "mounted at");
        Ground { process, directory, base, _scratch: scratch }
    }

    /// Another directory, which is empty.
    fn other(&self) -> PathBuf {
        let other = self.base.directory.join("other");
        fs::create_dir(&other).expect("room");
        other
    }

    fn is_mounted(&self, at: &Path) -> bool {
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("Linux");
        mounts.contains(&format!(" {} ", at.display()))
    }

    /// Sends a signal, and waits until this is said.
    fn signalled(&self, words: &str) {
        self.process.signal("TERM");
        eventually(words, || self.process.said().contains(words));
    }

    fn ends(&mut self) {
        let status = self.process.wait();
        assert_eq!(status.code(), Some(0), "{}", self.process.said());
        let said = self.process.said();
        assert!(said.contains("are gone"), "{said}");
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        self.process.kill();
        // A test that fails leaves mounts, which would keep the one below them.
        for directory in ["other", "tree", "tree"] {
            let path = self.base.directory.join(directory);
            let _ = tool("umount").args(["--quiet", "--lazy"]).arg(path).output();
        }
    }
}

fn works(disk: &Path) {
    let disk = OpenOptions::new().read(true).write(true).open(disk).expect("it is served");
    disk.write_all_at(b"served", 4096).expect("room");
}

fn mount(arguments: &[&str], from: &Path, to: &Path) {
    succeed(tool("mount").args(arguments).arg(from).arg(to));
}

/// The server took a covered tree for an unmounted one: it closed its doors and then waited for
/// the tree, without a word.
#[test]
fn a_tree_that_is_covered_stays_and_what_covers_it_is_named() {
    if !needs_tree(&["mount", "umount"]) {
        return;
    }
    let mut ground = Ground::new();
    let at = ground.directory.clone();
    mount(&["-t", "tmpfs"], Path::new("none"), &at);
    ground.signalled("another mount is over it (tmpfs); unmount that first: umount ");
    assert!(ground.is_mounted(&at) && !ground.process.has_ended());
    succeed(tool("umount").arg(&at));
    works(&at.join("zram0/disk"));
    ground.process.signal("TERM");
    ground.ends();
    assert!(!ground.is_mounted(&at), "unmounted");
}

#[test]
fn a_tree_that_was_moved_is_unmounted_where_it_is() {
    if !needs_tree(&["mount"]) {
        return;
    }
    let mut ground = Ground::new();
    let (at, other) = (ground.directory.clone(), ground.other());
    mount(&["--move"], &at, &other);
    works(&other.join("zram0/disk"));
    ground.process.signal("TERM");
    ground.ends();
    assert!(!ground.is_mounted(&at) && !ground.is_mounted(&other), "unmounted");
}

/// The mount at its own directory goes. The other one has the disk, and keeps the server.
#[test]
fn a_tree_that_is_mounted_elsewhere_too_says_where() {
    if !needs_tree(&["mount", "umount"]) {
        return;
    }
    let mut ground = Ground::new();
    let (at, other) = (ground.directory.clone(), ground.other());
    mount(&["--bind"], &at, &other);
    ground.signalled(&format!("still in use: the mount at {}; ends when", other.display()));
    assert!(!ground.is_mounted(&at) && !ground.process.has_ended());
    works(&other.join("zram0/disk"));
    succeed(tool("umount").arg(&other));
    ground.ends();
}
