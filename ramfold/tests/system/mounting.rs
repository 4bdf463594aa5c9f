//! Mounting the tree, ending it, and what must not wait for what.
//!
//! Claims: a mount that is in use ends by no single signal, and whoever uses it is named; what a
//! killed server left is replaced; numbers can be read while every request for data stands still;
//! no device can be made to wait for itself.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::thread;

use crate::rig::{
    Loop, Mount, Process, Scratch, Tree, errno, eventually, needs_device, needs_tree, noise,
    refusal, succeed, tool,
};

const EINVAL: i32 = 22;
/// A user without rights.
const NOBODY: u32 = 65534;

#[test]
fn a_signal_unmounts_and_ends() {
    if !needs_tree(&[]) {
        return;
    }
    let mut tree = Tree::with(&["--size", "1M"]);
    fs::write(tree.disk(), noise(1, 8192)).unwrap();
    tree.process.signal("TERM");
    assert_eq!(tree.process.wait().code(), Some(0), "{}", tree.process.said());
    assert!(tree.process.said().contains("8192 stored bytes"), "{}", tree.process.said());
    assert_eq!(fs::read_dir(tree.directory()).unwrap().count(), 0, "unmounted");
}

#[test]
fn a_mount_in_use_is_not_ended_by_one_signal() {
    if !needs_tree(&["losetup"]) || !needs_device("/dev/loop-control") {
        return;
    }
    let mut tree = Tree::with(&["--size", "16M"]);
    let disk = Loop::direct(&tree.disk());
    let file = File::open(tree.disk()).unwrap();
    tree.process.signal("TERM");
    let (looped, own) = (&disk.device["/dev/".len()..], format!("(pid {})", std::process::id()));
    eventually("the refusal", || tree.process.said().contains("is in use"));
    let said = tree.process.said();
    assert!(said.contains(&format!("zram0 by {looped}")) && said.contains(&own), "{said}");
    assert!(!said.contains("by losetup"), "it has ended long ago: {said}");
    assert_eq!(tree.read("zram0/initstate"), "1\n", "it goes on");

    tree.process.signal("TERM");
    eventually("the lazy end", || tree.process.said().contains("unmounted lazily"));
    eventually("the mount to go", || fs::read_dir(tree.directory()).unwrap().count() == 0);
    file.read_exact_at(&mut [0; 4096], 0).expect("who has it open keeps it");
    assert!(!tree.process.has_ended());
    drop(file);
    drop(disk);
    assert_eq!(tree.process.wait().code(), Some(0), "{}", tree.process.said());
}

#[test]
fn a_third_signal_ends_at_once() {
    if !needs_tree(&[]) {
        return;
    }
    let mut tree = Tree::with(&["--size", "1M"]);
    let file = File::open(tree.disk()).unwrap();
    for said in ["is in use", "unmounted lazily"] {
        tree.process.signal("TERM");
        eventually(said, || tree.process.said().contains(said));
    }
    tree.process.signal("TERM");
    assert_eq!(tree.process.wait().code(), Some(1));
    assert!(file.read_at(&mut [0; 4096], 0).is_err(), "nobody is there to answer");
}

#[test]
fn unmounting_from_outside_ends_the_server() {
    if !needs_tree(&["umount"]) {
        return;
    }
    let mut tree = Tree::with(&["--size", "1M"]);
    succeed(tool("umount").arg(tree.directory()));
    assert_eq!(tree.process.wait().code(), Some(0), "{}", tree.process.said());
}

#[test]
fn a_mount_left_by_a_killed_server_is_replaced() {
    if !needs_tree(&[]) {
        return;
    }
    let mut tree = Tree::with(&["--size", "1M"]);
    tree.process.kill();
    assert!(fs::read_dir(tree.directory()).is_err(), "the mount is there, the server is not");
    tree.serve_again(&["--size", "2M"]);
    assert_eq!(tree.read("zram0/disksize"), "2097152\n");
}

#[test]
fn a_directory_that_cannot_be_mounted_over_is_refused() {
    if !needs_tree(&["timeout"]) {
        return;
    }
    let tree = Tree::with(&["--size", "1M"]);
    let scratch = Scratch::new();
    let file = scratch.path("file");
    fs::write(&file, "").unwrap();
    let rows = [
        (tree.directory(), "in use by a running server"),
        (tree.scratch.path("").as_path(), "not empty"),
        (file.as_path(), "Not a directory"),
        (&file.join("below"), "Not a directory"),
    ]
    .map(|(path, words)| (path.to_owned(), words));
    for (directory, words) in rows {
        let serve = Tree::command(&scratch, &directory, &[]);
        let mut command = tool("env");
        command.envs(serve.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let said = refusal(command.arg(serve.get_program()).args(serve.get_args()));
        assert!(said.contains(words), "{directory:?}: {said:?} does not say {words:?}");
    }
    assert_eq!(tree.read("zram0/initstate"), "1\n", "the one that runs goes on");
}

#[test]
fn numbers_wait_for_no_data() {
    if !needs_tree(&[]) {
        return;
    }
    // The backing device of the first is a disk of the second, which is stopped in its tracks.
    let below = Tree::with(&["--size", "8M"]);
    let tree = Tree::new();
    tree.write("zram0/backing_dev", &below.disk().display().to_string());
    tree.write("zram0/disksize", "4M");
    fs::write(tree.disk(), noise(1, 4 << 20)).unwrap();
    tree.write("zram0/idle", "all");
    tree.write("zram0/writeback", "idle");
    let written_back = tree.read("zram0/bd_stat");
    assert!(written_back.trim_start().starts_with("1024 "), "{written_back}");

    below.process.signal("STOP");
    let disk = OpenOptions::new().read(true).open(tree.disk()).unwrap();
    thread::scope(|scope| {
        let readers: Vec<_> = (0..32_u64)
            .map(|number| {
                let disk = &disk;
                scope.spawn(move || {
                    let mut page = vec![0; 4096];
                    disk.read_exact_at(&mut page, number * 4096).unwrap();
                    page
                })
            })
            .collect();
        eventually("every reader to wait", || waiting_in_fuse() >= readers.len());
        for _ in 0..100 {
            assert_eq!(tree.read("zram0/initstate"), "1\n");
            assert_eq!(tree.read("zram0/mm_stat").split_ascii_whitespace().count(), 9);
            assert_eq!(fs::metadata(tree.disk()).unwrap().len(), 4 << 20);
        }
        assert!(readers.iter().all(|reader| !reader.is_finished()), "they still wait");
        below.process.signal("CONT");
        let expected = noise(1, 4 << 20);
        for (page, reader) in expected.chunks(4096).zip(readers) {
            assert!(reader.join().unwrap() == page);
        }
    });
    tree.check();
}

/// Threads of this process that wait for an answer of a file system.
fn waiting_in_fuse() -> usize {
    let threads = fs::read_dir("/proc/self/task").expect("Linux").flatten();
    let waits = |thread: &fs::DirEntry| {
        let call = fs::read_to_string(thread.path().join("syscall")).unwrap_or_default();
        const PREAD64: &str = if cfg!(target_arch = "x86_64") { "17 " } else { "67 " };
        call.starts_with(PREAD64)
    };
    threads.filter(waits).count()
}

#[test]
fn a_path_that_leads_back_is_refused() {
    let tools = ["losetup", "mkfs.ext4", "mount"];
    if !needs_tree(&tools) || !needs_device("/dev/loop-control") {
        return;
    }
    let tree = Tree::with(&["--size", "64M"]);
    tree.read("zram-control/hot_add");
    let set = |path: &std::path::Path| {
        let text = path.display().to_string();
        tree.try_write("zram1/backing_dev", &text)
    };
    assert_eq!(errno(set(&tree.disk())), EINVAL, "a disk of its own");
    assert_eq!(errno(set(&tree.path("zram1/disk"))), EINVAL, "itself");
    let link = tree.scratch.path("link");
    std::os::unix::fs::symlink(tree.disk(), &link).unwrap();
    assert_eq!(errno(set(&link)), EINVAL, "by another name");
    let disk = Loop::direct(&tree.disk());
    assert_eq!(errno(set(disk.device.as_ref())), EINVAL, "a loop device over it");
    succeed(tool("mkfs.ext4").args(["-q", &disk.device]));
    let mount = Mount::of(&disk.device, tree.scratch.path("mnt"));
    let file = mount.directory.join("file");
    File::create(&file).unwrap().set_len(1 << 20).unwrap();
    assert_eq!(errno(set(&file)), EINVAL, "a file on a file system on it");
    let dictionary = format!("algo=lz4 dict={}", file.display());
    assert_eq!(errno(tree.try_write("zram1/algorithm_params", &dictionary)), EINVAL);
    let said = tree.process.said();
    assert_eq!(said.matches("would wait for itself").count(), 6, "{said}");
    let elsewhere = tree.scratch.large("backing");
    File::create(&elsewhere).unwrap().set_len(1 << 20).unwrap();
    set(&elsewhere).expect("a file elsewhere is welcome");
}

#[test]
fn who_is_not_root_mounts_through_fusermount3() {
    let tools = ["fusermount3", "mknod", "mount", "nsenter", "setpriv", "unshare"];
    if !needs_tree(&tools) {
        return;
    }
    let scratch = Scratch::new();
    let (home, at) = (scratch.path(""), scratch.path("tree"));
    fs::create_dir(&at).unwrap();
    for path in [&home, &at] {
        std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    // The binary may lie where only root may look.
    fs::copy(crate::rig::BINARY, scratch.path("ramfold")).unwrap();
    // The device may be root's alone; in a mount name space of our own it is everybody's.
    let script = "set -e
cd \"$0\"
mknod --mode 666 fuse c 10 229
mount --bind fuse /dev/fuse
exec setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all ./ramfold \"$@\"";
    let serve = Tree::command(&scratch, &at, &["--size", "1M"]);
    let mut command = Command::new("unshare");
    command.args(["--mount", "bash", "-c", script]).arg(&home).args(serve.get_args());
    command.envs(serve.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut process = Process::start(&mut command, "mounted at");
    let read = |user: u32| {
        let (target, user) = (process.pid().to_string(), user.to_string());
        let mut cat = tool("nsenter");
        cat.args(["--target", &target, "--mount", "setpriv", "--clear-groups"]);
        cat.args(["--reuid", &user, "--regid", &user]);
        cat.arg("cat").arg(at.join("zram0/initstate")).output().unwrap()
    };
    let found = read(NOBODY);
    assert_eq!(String::from_utf8_lossy(&found.stdout), "1\n", "{found:?}");
    assert!(!read(NOBODY - 1).status.success(), "it is the owner's alone");
    process.signal("TERM");
    assert_eq!(process.wait().code(), Some(0), "{}", process.said());
    assert!(process.said().contains("are gone"), "unmounted: {}", process.said());
}
