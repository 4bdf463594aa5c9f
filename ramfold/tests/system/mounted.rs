//! `ramfold mount` and `umount`: a file system on a compressed disk by one command.
//!
//! Claims: a program is built on it. Nothing is left afterwards, whichever way it ended, and
//! nothing is left by a step that failed. A directory in use stays mounted, and its users are
//! named. A user without rights can have it too.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::rig::{
    BINARY, Process, Space, Spot, eventually, needs_mount, ramfold, refusal, signal, succeed, tool,
};

#[test]
fn a_program_is_built_on_ext4() {
    if needs_mount(&["mkfs.ext4", "cc"]) {
        builds("ext4", &[]);
    }
}

#[test]
fn a_program_is_built_on_btrfs() {
    if needs_mount(&["mkfs.btrfs", "cc"]) {
        builds("btrfs", &["--algorithm", "zstd:1", "--chain-order", "4"]);
    }
}

#[test]
fn a_program_is_built_on_xfs() {
    if needs_mount(&["mkfs.xfs", "cc"]) {
        builds("xfs", &["--memory-limit", "256M", "--options", "noatime"]);
    }
}

fn builds(fs: &str, options: &[&str]) {
    let _space = Space::Mount.enter();
    let spot = Spot::new(fs);
    let said = spot.mount(&[&["--size", "512M", "--fs", fs], options].concat());
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains(&format!("512.0 MiB of {fs}")), "{said}");
    let source = "#include <stdio.h>\nint main(void) { puts(\"folded\"); return 0; }\n";
    fs::write(spot.directory().join("main.c"), source).expect("room");
    let script = "cc -o program main.c && ./program && sync && rm program && fstrim .";
    let built = succeed(tool("sh").args(["-c", script]).current_dir(spot.directory()));
    assert_eq!(built, "folded\n");
    let mounts = fs::read_to_string("/proc/self/mounts").expect("there");
    let place = format!(" {} ", spot.directory().display());
    let line = mounts.lines().find(|line| line.contains(&place)).expect("it is mounted");
    let has = |option| line.split([' ', ',']).any(|word| word == option);
    assert_eq!((has("discard"), has("nobarrier")), (true, fs != "xfs"), "{line}");
    let stat = succeed(
        ramfold(&["stat", &spot.name, "--json"]).env("XDG_RUNTIME_DIR", spot.scratch.path("run")),
    );
    assert!(stat.contains("\"initstate\": 1"), "{stat}");
    succeed(&mut spot.ramfold("umount"));
    spot.is_gone();
}

/// The caller has a file open, a terminal's session and a directory, and gets none of them kept.
#[test]
fn a_server_in_the_background_holds_nothing_of_its_caller() {
    if !needs_mount(&["mkfs.ext4"]) {
        return;
    }
    let _space = Space::Mount.enter();
    let spot = Spot::new("apart");
    fs::write(spot.scratch.path("held"), "").expect("room");
    let script = "exec 9<held; \"$0\" mount \"$1\" --size 64M >said";
    let mut shell = tool("sh");
    shell.args(["-c", script, BINARY]).arg(spot.directory()).current_dir(spot.scratch.path(""));
    succeed(shell.env("XDG_RUNTIME_DIR", spot.scratch.path("run")));
    let process = PathBuf::from(format!("/proc/{}", spot.server()));
    let open = fs::read_dir(process.join("fd")).expect("it runs").flatten();
    let open: Vec<PathBuf> = open.filter_map(|fd| fs::read_link(fd.path()).ok()).collect();
    let of_caller = |path: &&PathBuf| path.ends_with("held") || path.ends_with("said");
    assert_eq!(open.iter().find(of_caller), None, "{open:?}");
    assert_eq!(fs::read_link(process.join("cwd")).expect("it runs"), Path::new("/"));
    let stat = fs::read_to_string(process.join("stat")).expect("it runs");
    let session = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(3));
    assert_eq!(session, Some(&*spot.server().to_string()), "a session of its own: {stat}");
    succeed(&mut spot.ramfold("umount"));
    spot.is_gone();
}

#[test]
fn a_directory_in_use_stays_and_its_users_are_named() {
    if !needs_mount(&["mkfs.ext4"]) {
        return;
    }
    let _space = Space::Mount.enter();
    let spot = Spot::new("used");
    spot.mount(&["--size", "64M"]);
    let mut user = Command::new("sleep").arg("300").current_dir(spot.directory()).spawn().unwrap();
    let open = fs::File::create(spot.directory().join("open")).expect("room");
    let said = refusal(&mut spot.ramfold("umount"));
    assert!(said.contains("in use by "), "{said}");
    assert!(said.contains(&format!("sleep (pid {})", user.id())), "{said}");
    assert!(said.contains(&format!("(pid {})", std::process::id())), "this test, too: {said}");
    signal(spot.server(), "TERM");
    let log = || fs::read_to_string(spot.place().join("log")).unwrap_or_default();
    eventually("the refusal", || log().contains("it stays mounted"));
    assert!(log().contains(&format!("sleep (pid {})", user.id())), "{}", log());
    fs::write(spot.directory().join("file"), "still there").expect("it is served");
    drop(open);
    user.kill().unwrap();
    user.wait().unwrap();
    eventually("the end that was asked for", || !spot.place().exists());
    spot.is_gone();
}

/// What the kernel uses holds a directory as a process does.
#[test]
fn a_loop_device_and_a_mount_in_it_hold_a_directory_and_are_named() {
    if !needs_mount(&["mkfs.ext4", "losetup"]) {
        return;
    }
    let _space = Space::Mount.enter();
    let spot = Spot::new("layered");
    spot.mount(&["--size", "64M"]);
    let (image, inner) = (spot.directory().join("image"), spot.directory().join("inner"));
    fs::File::create(&image).and_then(|file| file.set_len(1 << 20)).expect("room");
    fs::create_dir(&inner).expect("room");
    let device = succeed(tool("losetup").args(["--find", "--show"]).arg(&image));
    let device = device.trim();
    let mounted = tool("mount").args(["-t", "tmpfs", "none"]).arg(&inner).status();
    let both = spot.ramfold("umount").output().expect("it starts");
    let unmounted = tool("umount").arg(&inner).status();
    let one = spot.ramfold("umount").output().expect("it starts");
    // Before anything is judged: the device is seen in every namespace.
    succeed(tool("losetup").args(["--detach", device]));
    assert!(mounted.is_ok_and(|it| it.success()) && unmounted.is_ok_and(|it| it.success()));
    let name = device.trim_start_matches("/dev/");
    let [both, one] = [both, one].map(|it| String::from_utf8_lossy(&it.stderr).into_owned());
    assert!(both.contains(&format!("the mount at {}", inner.display())), "{both}");
    assert!(both.contains(name), "{name}: {both}");
    assert!(one.contains(name) && !one.contains("the mount at"), "{one}");
    succeed(&mut spot.ramfold("umount"));
    spot.is_gone();
}

/// The files have paths relative to a directory that the server leaves.
#[test]
fn scripts_find_the_server_by_its_files() {
    if !needs_mount(&["mkfs.ext4"]) {
        return;
    }
    let _space = Space::Mount.enter();
    let spot = Spot::new("found");
    let mut mount = spot.ramfold("mount");
    mount.args(["--size=64M", "--rule=fitted", "--pidfile=number", "--control=own.ctl"]);
    succeed(mount.current_dir(spot.scratch.path("")));
    let (pidfile, control) = (spot.scratch.path("number"), spot.scratch.path("own.ctl"));
    let number = fs::read_to_string(&pidfile).expect("it is mounted");
    assert_eq!(number, format!("{}\n", spot.server()));
    let stat = succeed(ramfold(&["stat", "--json"]).arg(&control));
    assert!(stat.contains("\"initstate\": 1"), "{stat}");
    succeed(&mut spot.ramfold("umount"));
    assert!(!pidfile.exists() && !control.exists(), "they end with the server");
    let refused = refusal(spot.ramfold("mount").args(["--size=64M", "--pidfile=/nonexistent/p"]));
    assert!(refused.contains("--pidfile /nonexistent/p"), "{refused}");
    for option in ["--pidfile", "--control"] {
        let hidden = spot.directory().join("its.ctl");
        let mut mount = spot.ramfold("mount");
        let refused = refusal(mount.args(["--size=64M", option]).arg(&hidden));
        assert!(refused.contains("would hide it"), "{refused}");
    }
    spot.is_gone();
}

/// A mount that is not at the top of its directory, or has moved, is there all the same.
#[test]
fn a_disk_that_is_covered_or_moved_goes_on() {
    if !needs_mount(&["mkfs.ext4"]) {
        return;
    }
    let _space = Space::Mount.enter();
    let spot = Spot::new("covered");
    spot.mount(&["--size", "64M"]);
    let file = spot.directory().join("file");
    fs::write(&file, "still there").expect("room");
    let there = || fs::read_to_string(&file).is_ok_and(|text| text == "still there");
    succeed(tool("mount").arg("--bind").arg(spot.directory()).arg(spot.directory()));
    // What the server does about the change it does within a moment.
    std::thread::sleep(Duration::from_secs(1));
    assert!(there());
    signal(spot.server(), "TERM");
    let log = || fs::read_to_string(spot.place().join("log")).unwrap_or_default();
    eventually("the refusal", || log().contains("another mount is over it"));
    assert!(there());
    let other = spot.scratch.path("other");
    fs::create_dir(&other).expect("a directory");
    succeed(tool("umount").arg(spot.directory()));
    eventually("the end that was asked for", || !spot.place().exists());
    spot.is_gone();
}

#[test]
fn a_link_may_lead_to_the_directory() {
    if !needs_mount(&["mkfs.ext4"]) {
        return;
    }
    let _space = Space::Mount.enter();
    let spot = Spot::new("linked");
    fs::create_dir(spot.directory()).expect("a directory");
    let link = spot.scratch.path("link");
    symlink(spot.directory(), &link).expect("a link");
    let mut words = ramfold(&["mount", "--size", "64M", "--name", &spot.name]);
    succeed(words.arg(link.join("")).env("XDG_RUNTIME_DIR", spot.scratch.path("run")));
    fs::write(spot.directory().join("file"), "on the disk").expect("room");
    succeed(&mut spot.ramfold("umount"));
    fs::remove_dir(spot.directory()).expect("it is empty, and was not made for the mount");
    spot.is_gone();
}

/// Where a container has no loop devices, root's files are root's.
#[test]
fn through_fuse2fs_files_have_their_rights() {
    if !needs_mount(&["fuse2fs", "mkfs.ext4", "setpriv", "unshare"]) {
        return;
    }
    let _space = Space::Mount.enter();
    let spot = Spot::new("rights");
    fs::set_permissions(spot.scratch.path(""), fs::Permissions::from_mode(0o755)).expect("ours");
    // In a namespace of its own, because the device is hidden from everybody who sees its mounts.
    let script = "mount --bind /dev/loop-control /dev/loop-control
mount -o remount,bind,nodev /dev/loop-control
\"$0\" mount \"$1\" --size 64M
echo \"of root\" > \"$1/secret\"
chmod 600 \"$1/secret\"
echo \"of all\" > \"$1/open\"
user() { setpriv --reuid=65534 --regid=65534 --clear-groups \"$@\"; }
user cat \"$1/open\"
! user cat \"$1/secret\" 2>&1
! user touch \"$1/new\" 2>&1
\"$0\" umount \"$1\"";
    let mut unshare = tool("unshare");
    unshare.args(["--mount", "sh", "-e", "-c", script, BINARY]).arg(spot.directory());
    let said = succeed(unshare.env("XDG_RUNTIME_DIR", spot.scratch.path("run")));
    assert!(said.contains("by fuse2fs") && said.contains("of all\n"), "{said}");
    assert!(!said.contains("of root"), "{said}");
    assert_eq!(said.matches("ermission denied").count(), 2, "{said}");
    spot.is_gone();
}

#[test]
fn after_a_kill_one_command_removes_everything() {
    if !needs_mount(&["mkfs.ext4"]) {
        return;
    }
    let _space = Space::Mount.enter();
    let spot = Spot::new("killed");
    let (pidfile, control) = (spot.scratch.path("number"), spot.scratch.path("own.ctl"));
    let [number, own] = [&pidfile, &control].map(|path| path.to_str().expect("text"));
    spot.mount(&["--size", "64M", "--pidfile", number, "--control", own]);
    fs::write(spot.directory().join("file"), vec![7; 1 << 20]).expect("room");
    signal(spot.server(), "KILL");
    let process = PathBuf::from(format!("/proc/{}/fd", spot.server()));
    eventually("its end", || !fs::read_dir(&process).is_ok_and(|mut fds| fds.next().is_some()));
    let said = refusal(spot.ramfold("mount").args(["--size", "64M"]));
    assert!(said.contains("ext4 is mounted there already"), "{said}");
    assert!(pidfile.exists() && control.exists());
    succeed(&mut spot.ramfold("umount"));
    assert!(!pidfile.exists() && !control.exists());
    spot.is_gone();
    let said = refusal(&mut spot.ramfold("umount"));
    assert!(said.contains("no disk of ramfold mount is there"), "{said}");
}

/// Somebody has unmounted by hand what a killed server left, and has mounted another disk there.
#[test]
fn of_a_dead_disk_and_a_living_one_the_living_one_is_unmounted() {
    if !needs_mount(&["mkfs.ext4"]) {
        return;
    }
    let _space = Space::Mount.enter();
    let spot = Spot::new("twice");
    // The names of the places decide which one is found first.
    let names = ["a", "b"].map(|name| format!("{name}-{}", spot.name));
    for (dead, living) in [(&names[0], &names[1]), (&names[1], &names[0])] {
        fs::create_dir(spot.directory()).expect("a directory");
        spot.mount(&["--size", "64M", "--name", dead]);
        let record = Path::new("/run/ramfold/mounts").join(dead).join("record");
        let text = fs::read_to_string(record).expect("it is mounted");
        let pid = text.split("\"pid\":").nth(1).and_then(|rest| rest.split(',').next());
        signal(pid.and_then(|pid| pid.parse().ok()).expect("a number"), "KILL");
        succeed(tool("umount").arg(spot.directory()));
        spot.mount(&["--size", "64M", "--name", living]);
        succeed(&mut spot.ramfold("umount"));
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("there");
        let point = spot.directory().display().to_string();
        assert!(!mounts.contains(&format!(" {point} ")), "{mounts}");
        succeed(&mut spot.ramfold("umount"));
        fs::remove_dir(spot.directory()).expect("it is empty");
    }
    spot.is_gone();
}

/// As administrators and systemd do it.
#[test]
fn umount_of_the_system_ends_the_server_too() {
    if !needs_mount(&["mkfs.ext4"]) {
        return;
    }
    let _space = Space::Mount.enter();
    let spot = Spot::new("plain");
    spot.mount(&["--size", "64M", "--quiet"]);
    let words = PathBuf::from(format!("/proc/{}/cmdline", spot.server()));
    succeed(tool("umount").arg(spot.directory()));
    // A process that has ended and was not waited for has no words.
    eventually("the server's end", || fs::read(&words).unwrap_or_default().is_empty());
    spot.is_gone();
}

#[test]
fn in_the_foreground_a_signal_unmounts() {
    if !needs_mount(&["mkfs.ext4"]) {
        return;
    }
    let _space = Space::Mount.enter();
    let spot = Spot::new("front");
    let mut command = Command::new(BINARY);
    command.env("XDG_RUNTIME_DIR", spot.scratch.path("run")).arg("mount").arg(spot.directory());
    let mut process = Process::start(command.args(["--size=64M", "--foreground"]), "of ext4");
    fs::write(spot.directory().join("file"), "content").expect("room");
    process.signal("INT");
    assert_eq!(process.wait().code(), Some(0), "{}", process.said());
    assert!(process.said().contains("unmounted; what it stored"), "{}", process.said());
    spot.is_gone();
}

#[test]
fn a_command_has_the_disk_and_gives_its_status() {
    if !needs_mount(&["mkfs.ext4"]) {
        return;
    }
    let _space = Space::Mount.enter();
    let spot = Spot::new("command");
    let run = |words: &[&str]| {
        let mut command = spot.ramfold("mount");
        command.args(["--size", "64M", "--"]).args(words).output().expect("it starts")
    };
    let script =
        format!("cd '{}' && echo content > file && cat file && exit 7", spot.directory().display());
    let output = run(&["sh", "-c", &script]);
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "content\n", "and nothing of ours");
    spot.is_gone();
    assert_eq!(run(&["no-such-program"]).status.code(), Some(127));
    spot.is_gone();
    let output = run(&[
        "sh",
        "-c",
        &format!("cd '{}'; sleep 300 >&- 2>&- & echo $!", spot.directory().display()),
    ]);
    let (said, pid) =
        (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    assert!(said.contains(&format!("in use by sleep (pid {})", pid.trim())), "{said}");
    assert!(said.contains("they lose it") && output.status.success(), "{output:?}");
    signal(pid.trim().parse().expect("a number"), "KILL");
    let file = |device: fs::DirEntry| fs::read_to_string(device.path().join("loop/backing_file"));
    eventually("the loop device to go with its last user", || {
        let blocks = fs::read_dir("/sys/block").expect("there").flatten();
        !blocks.filter_map(|block| file(block).ok()).any(|file| file.contains(&spot.name))
    });
    spot.is_gone();
}

/// The command that waits is killed, and its server notices.
#[test]
fn a_disk_of_a_command_ends_with_whoever_waits_for_it() {
    if !needs_mount(&["mkfs.ext4"]) {
        return;
    }
    let _space = Space::Mount.enter();
    let spot = Spot::new("tied");
    let mut command = Command::new(BINARY);
    command.env("XDG_RUNTIME_DIR", spot.scratch.path("run")).arg("mount").arg(spot.directory());
    command.args(["--size=64M", "--", "sh", "-c", "echo runs; exec sleep 2"]);
    let mut process = Process::start(command.stdin(Stdio::null()), "runs");
    process.kill();
    eventually("the server's end", || !spot.place().exists());
    assert!(!spot.directory().exists(), "it was made for the mount");
}

#[test]
fn a_step_that_fails_undoes_those_before_it() {
    if !needs_mount(&["mkfs.ext4", "mkfs.btrfs"]) {
        return;
    }
    let _space = Space::Mount.enter();
    let spot = Spot::new("undone");
    let missing = spot.scratch.path("bin");
    fs::create_dir(&missing).expect("room");
    let rows: [(&[&str], &str); 5] = [
        (&["--size", "1M", "--fs", "btrfs"], "mkfs.btrfs: ERROR"),
        (&["--size", "64M", "--options", "nonsense"], "mount: "),
        (&["--size", "64M", "--dictionary", "/nonexistent"], "/nonexistent: No such file"),
        (&["--size", "64M", "--backing", "/nonexistent/x"], "--backing: "),
        (&["--size", "banana"], "\"banana\" is not a size"),
    ];
    for (arguments, expected) in rows {
        let said = refusal(spot.ramfold("mount").args(arguments));
        assert!(said.contains(expected), "{arguments:?}: {said}");
        spot.is_gone();
    }
    fs::create_dir(spot.directory()).expect("room");
    fs::write(spot.directory().join("file"), "kept").expect("room");
    let said = refusal(spot.ramfold("mount").args(["--size", "64M"]));
    assert!(said.contains("it is not empty"), "{said}");
    assert_eq!(fs::read(spot.directory().join("file")).expect("kept"), b"kept");
    let refused = |path: &Path, expected: &str| {
        let said = refusal(ramfold(&["mount", "--size", "64M"]).arg(path));
        assert!(said.contains(expected), "{said}");
    };
    refused(&spot.directory().join("file"), "it is not a directory");
    refused(&spot.directory().join("a/b"), "its parent directory does not exist");
    refused(Path::new("/proc"), "proc is mounted there already");
    fs::remove_dir_all(spot.directory()).expect("ours");
    spot.is_gone();
}

/// Each block is a script, in a directory of its own.
#[test]
fn commands_of_the_document_work() {
    if !needs_mount(&["mkfs.ext4", "df"]) {
        return;
    }
    let _space = Space::Mount.enter();
    let document = include_str!("../../../docs/mount.md");
    let blocks = document.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let binaries = Path::new(BINARY).parent().expect("a file is in a directory").display();
    let mut count = 0;
    for block in blocks {
        let spot = Spot::new("document");
        let script = block.replace("/mnt/scratch", "scratch");
        let mut shell = tool("sh");
        shell.args(["-e", "-c", &format!("PATH={binaries}:$PATH; {script}")]);
        shell.env("XDG_RUNTIME_DIR", spot.scratch.path("run"));
        succeed(shell.current_dir(spot.scratch.path("")));
        let left: Vec<_> = fs::read_dir(spot.scratch.path("")).expect("there").flatten().collect();
        assert!(left.iter().all(|entry| entry.file_name() == "run"), "{left:?}");
        count += 1;
    }
    assert_eq!(count, 3, "blocks of docs/mount.md");
}
