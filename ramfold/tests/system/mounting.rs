//! Mounting the tree, ending it, and what must not wait for what.
//!
//! Claims: a single signal does not end a mount that is in use, and its users are named. The mount
//! of a killed server is replaced. Figures can be read while every request for data stands still.
//! No device can be made to wait for itself.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::thread;

use crate::rig::{
    Loop, Mount, Nbd, Process, Scratch, Space, Stopped, Tree, by_io_uring_too, errno, eventually,
    needs_device, needs_tree, noise, ramfold, refusal, succeed, tool,
};

/// CAP_SYS_RESOURCE.
pub(crate) const SYS_RESOURCE: u32 = 24;
const EBUSY: i32 = 16;
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

/// One size is given by an option, one as an attribute, one not at all.
#[test]
fn the_command_that_is_announced_is_the_next_one() {
    if !needs_tree(&[]) {
        return;
    }
    let sized: [&[&str]; 3] = [&["--size", "1M"], &["--set", "disksize=1M"], &[]];
    for (arguments, command) in sized.into_iter().zip(["losetup", "losetup", "echo 1G"]) {
        let tree = Tree::with(arguments);
        eventually(command, || tree.process.said().contains(&format!("try: {command}")));
    }
}

#[test]
fn a_third_signal_ends_at_once() {
    if !needs_tree(&[]) {
        return;
    }
    let scratch = Scratch::new();
    let socket = scratch.path("disk.sock");
    let mut tree = Tree::with(&["--size", "1M", "--unix", socket.to_str().unwrap()]);
    let file = File::open(tree.disk()).unwrap();
    for said in ["is in use", "unmounted lazily"] {
        tree.process.signal("TERM");
        eventually(said, || tree.process.said().contains(said));
    }
    tree.process.signal("TERM");
    assert_eq!(tree.process.wait().code(), Some(1));
    assert!(file.read_at(&mut [0; 4096], 0).is_err(), "nobody is there to answer");
    let left: Vec<_> = fs::read_dir(scratch.path("")).unwrap().flatten().collect();
    assert!(left.is_empty(), "neither socket is left: {left:?}");
}

/// A shell that has ended left the disk open in a child, and losetup in a loop device.
#[test]
fn who_has_ended_is_not_said_to_use_a_disk() {
    if !needs_tree(&["losetup"]) || !needs_device("/dev/loop-control") {
        return;
    }
    let tree = Tree::with(&["--size", "1M"]);
    let said = |words: &str| {
        assert_eq!(errno(tree.try_write("zram0/reset", "1")), EBUSY);
        eventually(words, || tree.process.said().contains(words));
    };
    let disk = Loop::direct(&tree.disk());
    said(&format!("in use by {};", &disk.device["/dev/".len()..]));
    drop(disk);
    let script = "exec 3<\"$0\"; sleep 300 >/dev/null 2>&1 & echo $!";
    let child = succeed(tool("sh").args(["-c", script]).arg(tree.disk()));
    said("opened before it ended;");
    tree.process.signal("TERM");
    eventually("the refusal", || tree.process.said().contains("opened before it ended; not stop"));
    succeed(tool("sh").arg("-c").arg(format!("kill {child}")));
    tree.write("zram0/reset", "1");
}

/// A server used to leave a mount that nobody answered if a step failed after it had mounted.
#[test]
fn a_server_that_does_not_start_leaves_no_mount() {
    if !needs_tree(&[]) {
        return;
    }
    let scratch = Scratch::new();
    let directory = scratch.path("tree");
    let control = scratch.path("no/x.ctl");
    let metrics = format!("unix:{}", scratch.path("no/metrics").display());
    for (option, value) in [
        ("--pidfile", "/nonexistent/p"),
        ("--pidfile", "/dev/null"),
        ("--control", control.to_str().unwrap()),
        ("--metrics", &metrics),
    ] {
        let serve = Tree::command(&scratch, &directory, &["--size", "1M", option, value]);
        let mut command = tool("env");
        command.envs(serve.get_envs().filter_map(|(name, value)| Some((name, value?))));
        refusal(command.arg(serve.get_program()).args(serve.get_args()));
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let _ = tool("umount").args(["--quiet", "--lazy"]).arg(&directory).output();
        assert!(!mounts.contains(directory.to_str().unwrap()), "{option} {value}: {mounts}");
    }
}

#[test]
fn a_directory_is_made_but_not_its_parents() {
    if !needs_tree(&[]) {
        return;
    }
    let scratch = Scratch::new();
    let below = scratch.path("not there/tree");
    let mut serve = ramfold(&["serve", "--size", "1M", "--fuse"]);
    let line = refusal(serve.arg(&below).env("XDG_RUNTIME_DIR", scratch.path("run")));
    assert!(line.contains("there is no directory to make it in; mkdir -p '/"), "{line}");
    assert!(!scratch.path("not there").exists(), "a path that is mistyped is not made");
    fs::create_dir(scratch.path("not there")).unwrap();
    let mut tree = Process::start(&mut Tree::command(&scratch, &below, &[]), "mounted at");
    eventually("what to paste", || tree.said().contains("/not there/tree/zram0/disksize'\n"));
    tree.signal("TERM");
    assert!(tree.wait().success(), "{}", tree.said());
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

    let disk = OpenOptions::new().read(true).open(tree.disk()).unwrap();
    thread::scope(|scope| {
        let stopped = Stopped::new(below.process.pid());
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
        // If the system does not say, they may be about to.
        eventually("every reader to wait", || waiting().is_none_or(|n| n >= readers.len()));
        for _ in 0..100 {
            assert_eq!(tree.read("zram0/initstate"), "1\n");
            assert_eq!(tree.read("zram0/mm_stat").split_ascii_whitespace().count(), 9);
            assert_eq!(fs::metadata(tree.disk()).unwrap().len(), 4 << 20);
        }
        assert!(readers.iter().all(|reader| !reader.is_finished()), "they still wait");
        drop(stopped);
        let expected = noise(1, 4 << 20);
        for (page, reader) in expected.chunks(4096).zip(readers) {
            assert!(reader.join().unwrap() == page);
        }
    });
    tree.check();
}

/// Threads of this process that are reading; `None` if this test may not look at them.
fn waiting() -> Option<usize> {
    const PREAD64: &str = if cfg!(target_arch = "x86_64") { "17 " } else { "67 " };
    let call = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("syscall")).ok();
    let threads = fs::read_dir("/proc/self/task").ok()?.flatten();
    let calls: Vec<String> = threads.filter_map(call).collect();
    let reading = calls.iter().filter(|call| call.starts_with(PREAD64)).count();
    (!calls.is_empty()).then_some(reading)
}

#[test]
fn threads_that_serve_never_wait_for_memory_to_be_written_out() {
    if !needs_tree(&[]) || !needs_capability(SYS_RESOURCE) {
        return;
    }
    assert_flushes(Tree::new().process.pid());
}

/// Threads of this process that serve a tree have told the kernel.
#[track_caller]
pub(crate) fn assert_flushes(pid: u32) {
    // What prctl's PR_SET_IO_FLUSHER sets, as /proc/PID/stat shows it: no I/O to free memory.
    const MEMALLOC_NOIO: u64 = 0x80000;
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").flatten();
    let stat = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("stat"));
    let threads = threads.map(|thread| stat(thread).expect("it serves"));
    let serving: Vec<String> = threads.filter(|stat| stat.contains("(fuse")).collect();
    assert!(serving.len() >= 2, "one listens while another answers: {serving:?}");
    for stat in serving {
        let flags = stat.split_ascii_whitespace().nth(8).and_then(|flags| flags.parse().ok());
        let flags: u64 = flags.expect("a number");
        assert!(flags & MEMALLOC_NOIO != 0, "{stat}");
    }
}

/// May this process, being root, do what the capability of this number allows? Containers take
/// some away.
pub(crate) fn needs_capability(number: u32) -> bool {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let has = status.lines().find_map(|line| line.strip_prefix("CapEff:")).is_some_and(|bits| {
        u64::from_str_radix(bits.trim(), 16).is_ok_and(|bits| bits >> number & 1 == 1)
    });
    if !has {
        println!("skipped: needs capability {number}");
    }
    has
}

#[test]
fn a_disk_has_an_nbd_door_beside_the_tree() {
    if !needs_tree(&[]) {
        return;
    }
    let scratch = Scratch::new();
    let socket = scratch.path("disk.sock");
    let tree = Tree::with(&["--size", "1M", "--unix", socket.to_str().unwrap()]);
    let mut nbd = Nbd::connect(&socket);
    nbd.write(4096, b"over NBD").unwrap();
    let disk = OpenOptions::new().read(true).write(true).open(tree.disk()).unwrap();
    let mut bytes = [0; 8];
    disk.read_exact_at(&mut bytes, 4096).unwrap();
    assert_eq!(&bytes, b"over NBD");
    disk.write_all_at(b"a file's", 8192).unwrap();
    assert_eq!(nbd.read(8192, 8).unwrap(), b"a file's");
    drop(disk);
    assert_eq!(errno(tree.try_write("zram0/reset", "1")), EBUSY);
    eventually("the log to say who", || tree.process.said().contains("by the NBD server"));
}

#[test]
fn where_fuse_is_missing_it_says_what_to_do() {
    if !needs_tree(&["mount", "setpriv", "unshare"]) {
        return;
    }
    let _space = Space::Names.enter();
    let scratch = Scratch::new();
    let refused = |script: &str, arguments: &[&str]| {
        let directory = scratch.path("tree");
        let serve = Tree::command(&scratch, &directory, arguments);
        let mut command = tool("unshare");
        command.args(["--mount", "bash", "-c", script]).arg(serve.get_program());
        command.envs(serve.get_envs().filter_map(|(name, value)| Some((name, value?))));
        refusal(command.args(serve.get_args()))
    };
    let said = refused("mount -t tmpfs none /dev && exec \"$0\" \"$@\"", &[]);
    assert!(said.contains("there is no /dev/fuse"), "{said}");
    let said = refused(
        "PATH=/nonexistent exec /usr/bin/setpriv --bounding-set=-sys_admin \
         --inh-caps=-sys_admin \"$0\" \"$@\"",
        &[],
    );
    assert!(said.contains("fusermount3 (package fuse3) or root"), "{said}");
    let said = refused("exec \"$0\" \"$@\"", &["--tcp", "127.0.0.1:0"]);
    assert!(said.contains("--size"), "NBD has a size from the start: {said}");
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
    let refusals = || tree.process.said().matches("would wait for itself").count();
    eventually("the log to say why, six times", || refusals() == 6);
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
    let _space = Space::Names.enter();
    let scratch = Scratch::new();
    let (home, at) = (scratch.path(""), scratch.path("tree"));
    fs::create_dir(&at).unwrap();
    for path in [&home, &at] {
        std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    // The binary may lie where only root may look.
    fs::copy(crate::rig::BINARY, scratch.path("ramfold")).unwrap();
    // The device may be root's alone; in our own mount namespace any user may open it.
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

by_io_uring_too!(
    a_signal_unmounts_and_ends,
    a_mount_in_use_is_not_ended_by_one_signal,
    the_command_that_is_announced_is_the_next_one,
    a_third_signal_ends_at_once,
    who_has_ended_is_not_said_to_use_a_disk,
    a_server_that_does_not_start_leaves_no_mount,
    a_directory_is_made_but_not_its_parents,
    unmounting_from_outside_ends_the_server,
    a_mount_left_by_a_killed_server_is_replaced,
    a_directory_that_cannot_be_mounted_over_is_refused,
    numbers_wait_for_no_data,
    threads_that_serve_never_wait_for_memory_to_be_written_out,
    a_disk_has_an_nbd_door_beside_the_tree,
    a_path_that_leads_back_is_refused,
    who_is_not_root_mounts_through_fusermount3,
);
