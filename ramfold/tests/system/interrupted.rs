//! A mount that the command cannot hand over to its server in the background.
//!
//! Claims: the command says that it failed, and nothing stays mounted.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};

use crate::rig::{Scratch, Space, Spot, eventually, needs_mount, signal, succeed, tool};

/// A `mkfs.ext4` that waits before it does its work.
struct Slow(Scratch);

impl Slow {
    fn new() -> Slow {
        let scratch = Scratch::new();
        let find = "PATH=$PATH:/usr/sbin:/sbin; command -v mkfs.ext4";
        let real = succeed(tool("sh").args(["-c", find]));
        let script = "#!/bin/sh\nt=$(dirname $0)\ntouch $t/begun\nwhile [ -e $t/begun ] && \
                      [ ! -e $t/go ]; do sleep 0.02; done\nexec ";
        let path = scratch.path("mkfs.ext4");
        fs::write(&path, format!("{script}{} \"$@\"\n", real.trim())).expect("room");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("ours");
        Slow(scratch)
    }

    /// Mounts, up to the point where this waits.
    fn mount(&self, spot: &Spot) -> Child {
        let mut command = spot.ramfold("mount");
        let paths = std::env::var("PATH").unwrap_or_default();
        command.args(["--size", "64M"]);
        command.env("PATH", format!("{}:{paths}", self.0.path("").display()));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().expect("the built binary can be started");
        eventually("mkfs", || self.0.path("begun").exists());
        child
    }

    fn go_on(&self) {
        fs::write(self.0.path("go"), "").expect("room");
    }
}

/// The file system was mounted all the same.
#[test]
fn a_mount_that_is_interrupted_is_undone() {
    if !needs_mount(&["mkfs.ext4"]) {
        return;
    }
    let _space = Space::Mount.enter();
    for name in ["INT", "TERM"] {
        let (spot, slow) = (Spot::new("interrupted"), Slow::new());
        let mut command = slow.mount(&spot);
        signal(command.id(), name);
        assert_eq!(command.wait().expect("a child").code(), None, "SIG{name}");
        slow.go_on();
        // The server has its standard error until it ends.
        let output = command.wait_with_output().expect("a child");
        spot.is_gone();
        let (out, err) = (output.stdout, String::from_utf8_lossy(&output.stderr));
        assert!(out.is_empty() && err.contains("so nothing stays mounted"), "{err}");
    }
}

/// It was told as a success.
#[test]
fn a_server_that_cannot_go_on_is_a_failure() {
    if !needs_mount(&["mkfs.ext4"]) {
        return;
    }
    let _space = Space::Mount.enter();
    let (spot, slow) = (Spot::new("handed"), Slow::new());
    let command = slow.mount(&spot);
    // There it has no log.
    let log = spot.place().join("log");
    fs::create_dir(&log).expect("room");
    slow.go_on();
    let output = command.wait_with_output().expect("a child");
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{err}");
    assert!(err.contains("the server: Is a directory"), "{err}");
    fs::remove_dir(&log).expect("it is empty");
    // The rest of its place goes with the next disk.
    assert!(spot.place().exists());
    spot.mount(&["--size", "64M"]);
    succeed(&mut spot.ramfold("umount"));
    spot.is_gone();
}
