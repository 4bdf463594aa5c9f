//! An ext4 file system on the disk, through FUSE and a loop device.
//!
//! ```text
//!   cp, diff -> ext4 -> loop device -> nbdfuse's file -> NBD -> ramfold
//! ```
//!
//! Invariant: mounts, loop devices and nbdfuse are ended in the reverse order, even if the test
//! fails.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::rig::{
    Loop, Mount, Server, eventually, needs, needs_device, needs_root, succeed, tool, undo,
};

const TREE: &str = "/usr/include";

/// A served disk as a file, until dropped.
struct FuseFile {
    nbdfuse: Child,
    path: PathBuf,
}

impl FuseFile {
    fn mount(server: &Server) -> FuseFile {
        let path = server.scratch.path("disk.img");
        std::fs::write(&path, "").expect("a mount point can be made");
        let mut command = Command::new("nbdfuse");
        command.arg(&path).arg(server.uri()).stdin(Stdio::null());
        let nbdfuse = command.spawn().expect("nbdfuse is installed");
        let file = FuseFile { nbdfuse, path };
        eventually("nbdfuse's file", || {
            std::fs::metadata(&file.path).is_ok_and(|status| status.len() > 0)
        });
        file
    }
}

impl Drop for FuseFile {
    fn drop(&mut self) {
        undo(tool("fusermount3").arg("-u").arg(&self.path));
        if let Err(error) = self.nbdfuse.wait() {
            eprintln!("nbdfuse: {error}");
        }
    }
}

#[test]
fn ext4_keeps_a_source_tree() {
    let tools = ["nbdfuse", "fusermount3", "losetup", "mkfs.ext4", "e2fsck", "mount", "diff"];
    let possible = needs(&tools) && needs_root();
    if !possible || !needs_device("/dev/fuse") || !needs_device("/dev/loop-control") {
        return;
    }
    let server = Server::of_size("512M");
    let file = FuseFile::mount(&server);
    {
        let disk = Loop::attach(&file.path);
        succeed(tool("mkfs.ext4").args(["-q", &disk.device]));
        let mount = Mount::of(&disk.device, server.scratch.path("mnt"));
        succeed(tool("cp").args(["--archive", TREE]).arg(&mount.directory));
    }
    assert!(server.figure("orig_data_size") > 0, "the tree reached the disk: {}", server.stat());
    // Another loop device: nothing that is compared comes from the caches of the first.
    let disk = Loop::attach(&file.path);
    succeed(tool("e2fsck").args(["-f", "-n", &disk.device]));
    {
        let mount = Mount::of(&disk.device, server.scratch.path("mnt"));
        let copy = mount.directory.join("include");
        succeed(tool("diff").args(["--recursive", "--no-dereference", TREE]).arg(copy));
    }
    server.check();
}
