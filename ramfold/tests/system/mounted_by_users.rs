//! `ramfold mount` without the rights of root: through fuse2fs, or in a namespace.
//!
//! Claims: a user without rights has a disk by the same command, nothing is left of it, and what a
//! user cannot have is refused with the reason.

use std::fs;
use std::os::unix::fs::{chown, symlink};

use crate::rig::{BINARY, Scratch, Space, needs, needs_tree, succeed, tool};

/// A user without rights.
const NOBODY: u32 = 65534;

/// In a mount namespace of its own any user may open the device, as on a machine of its own.
fn as_nobody(scratch: &Scratch, script: &str) -> String {
    // By another process: one that this one starts meanwhile would have the copy open for writing.
    succeed(tool("cp").arg(BINARY).arg(scratch.path("ramfold")));
    chown(scratch.path(""), Some(NOBODY), Some(NOBODY)).expect("we are root");
    let enter = "set -e
cd \"$0\"
mknod --mode 666 fuse c 10 229
mount --bind fuse /dev/fuse
export XDG_RUNTIME_DIR=\"$0/run\"
exec setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all sh -e -c \"$1\"";
    let mut unshare = tool("unshare");
    succeed(unshare.args(["--mount", "bash", "-c", enter]).arg(scratch.path("")).arg(script))
}

fn needs_user(tools: &[&str]) -> bool {
    needs_tree(&["mknod", "mount", "setpriv", "unshare", "fuse2fs", "mkfs.ext4", "cc"])
        && needs(tools)
}

#[test]
fn who_is_not_root_mounts_through_fuse2fs() {
    if !needs_user(&["fusermount3"]) {
        return;
    }
    let _space = Space::Names.enter();
    let scratch = Scratch::new();
    let said = as_nobody(
        &scratch,
        "./ramfold mount mine --size 64M
printf 'int main(void) { return 0; }' > mine/main.c
cc -o mine/program mine/main.c && mine/program
(cd mine && exec sleep 300 >&- 2>&-) & user=$!
while [ \"$(readlink /proc/$user/cwd)\" != \"$PWD/mine\" ]; do sleep 0.1; done
! ./ramfold umount mine 2> refused
grep -q \"in use by .* (pid $user)\" refused
kill $user; wait $user || true
./ramfold umount mine
! test -e mine
./ramfold mount mine --size 64M --quiet
kill -9 $(sed 's/.*\"pid\":\\([0-9]*\\).*/\\1/' run/ramfold/mounts/mine/record)
./ramfold umount mine
! test -e mine
find run -mindepth 2
! grep -e mine /proc/self/mountinfo",
    );
    assert!(said.contains("64.0 MiB of ext4 by fuse2fs"), "{said}");
    assert_eq!(said.lines().count(), 1, "nothing is left: {said}");
}

/// Without fusermount3, the command becomes root of a namespace.
#[test]
fn without_fusermount_a_command_has_the_disk_in_a_name_space() {
    if !needs_user(&[]) {
        return;
    }
    let _space = Space::Names.enter();
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("bin")).expect("room");
    for program in ["sh", "fuse2fs", "mkfs.ext4", "umount", "unshare", "cat", "mkdir", "ls"] {
        let found =
            succeed(tool("sh").args(["-c", "PATH=$PATH:/sbin:/usr/sbin; command -v $0", program]));
        symlink(found.trim(), scratch.path("bin").join(program)).expect("room");
    }
    let said = as_nobody(
        &scratch,
        "export TMPDIR=$PWD/tmp PATH=$PWD/bin
mkdir tmp
status=0
./ramfold mount mine --size 64M -- sh -c 'echo inside > mine/a; cat mine/a; exit 6' || status=$?
echo $status
! ./ramfold mount mine --size 64M 2> refused
cat refused
ls tmp",
    );
    assert!(said.starts_with("inside\n6\n"), "{said}");
    assert!(said.contains("install the package fuse3, or give a command"), "{said}");
    assert_eq!(said.lines().count(), 3, "nothing is left: {said}");
    assert!(!scratch.path("mine").exists(), "it was made for the mount");
}

/// It is there, and `no_new_privs` keeps its rights from it.
#[test]
fn where_fusermount_gets_no_rights_a_command_has_the_disk_in_a_name_space() {
    if !needs_user(&["fusermount3"]) {
        return;
    }
    let _space = Space::Names.enter();
    let scratch = Scratch::new();
    let said = as_nobody(
        &scratch,
        "mount='setpriv --no-new-privs ./ramfold mount mine --size 64M'
$mount -- sh -c 'echo inside > mine/a; cat mine/a'
! $mount 2> refused
cat refused",
    );
    assert!(said.starts_with("inside\n"), "{said}");
    assert!(said.contains("takes fusermount3 with rights that no_new_privs keeps"), "{said}");
    assert_eq!(said.lines().count(), 2, "nothing is left: {said}");
    assert!(!scratch.path("mine").exists(), "it was made for the mount");
}

#[test]
fn without_root_other_file_systems_are_refused() {
    if !needs_user(&["fusermount3"]) {
        return;
    }
    let _space = Space::Names.enter();
    let scratch = Scratch::new();
    let said = as_nobody(
        &scratch,
        "! ./ramfold mount mine --size 640M --fs btrfs 2>&1
! test -e mine",
    );
    assert!(said.contains("--fs btrfs: loop devices need root"), "{said}");
}
