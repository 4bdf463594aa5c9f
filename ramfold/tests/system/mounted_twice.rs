//! `ramfold mount` and `umount` where a directory or a disk is wanted twice.
//!
//! Claims: of several mounts over one directory one succeeds. A disk that is covered, or mounted
//! elsewhere too, stays, and `umount` says at once where. What a killed server had goes, and the
//! directory that the next one judged stays.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use crate::rig::{Scratch, Space, Spot, eventually, needs_mount, refusal, signal, succeed, tool};

/// A mount of a test, which goes also if the test fails.
struct Gone(PathBuf);

impl Drop for Gone {
    fn drop(&mut self) {
        let _ = tool("umount").args(["--lazy", "--quiet"]).arg(&self.0).output();
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn of_several_mounts_over_one_directory_one_succeeds() {
    if !needs_mount(&["mkfs.ext4"]) {
        return;
    }
    let _space = Space::Mount.enter();
    let spot = Spot::new("raced");
    for _ in 0..3 {
        let start = |_| {
            let mut mount = spot.ramfold("mount");
            mount.args(["--size", "16M"]).stdout(Stdio::null()).stderr(Stdio::piped());
            mount.spawn().expect("it starts")
        };
        let all: Vec<Child> = (0..3).map(start).collect();
        let all = all.into_iter().map(|child| child.wait_with_output().expect("it ends"));
        let (good, refused): (Vec<Output>, Vec<Output>) = all.partition(|it| it.status.success());
        let texts: Vec<String> = refused.iter().map(said).collect();
        assert_eq!(good.len(), 1, "{texts:?}");
        let is_told = |it: &String| it.contains("is mounted there already");
        assert!(texts.iter().all(is_told), "{texts:?}");
        succeed(&mut spot.ramfold("umount"));
        spot.is_gone();
    }
}

#[test]
fn what_covers_a_disk_and_where_else_it_is_are_told_at_once() {
    if !needs_mount(&["mkfs.ext4"]) {
        return;
    }
    let _space = Space::Mount.enter();
    let spot = Spot::new("doubled");
    let mut double = spot.ramfold("mount");
    let refused = refusal(double.args(["--size", "64M", "--options", "loop"]));
    assert!(refused.contains("--options may not have loop"), "{refused}");
    spot.is_gone();
    spot.mount(&["--size", "64M"]);
    let other = spot.scratch.path("other");
    fs::create_dir(&other).expect("a directory");
    let _other = Gone(other.clone());
    succeed(tool("mount").args(["-t", "tmpfs", "none"]).arg(spot.directory()));
    let refused = refusal(&mut spot.ramfold("umount"));
    assert!(refused.contains("another mount is over it (tmpfs)"), "{refused}");
    succeed(tool("umount").arg(spot.directory()));
    succeed(tool("mount").arg("--bind").arg(spot.directory()).arg(&other));
    fs::write(other.join("file"), "both").expect("room");
    let refused = refusal(&mut spot.ramfold("umount"));
    assert!(refused.contains(&format!("mounted at {} too", other.display())), "{refused}");
    assert_eq!(fs::read_to_string(other.join("file")).expect("it is served"), "both");
    let refused = refusal(&mut spot.ramfold("umount"));
    assert!(refused.contains(&format!("mounted at {} now", other.display())), "{refused}");
    succeed(tool("umount").arg(&other));
    eventually("its end", || !spot.place().exists());
    spot.is_gone();
}

#[test]
fn a_process_that_has_a_disk_in_another_name_space_is_named() {
    if !needs_mount(&["mkfs.ext4", "unshare"]) {
        return;
    }
    let _space = Space::Alone.enter();
    let spot = Spot::new("elsewhere");
    spot.mount(&["--size", "64M"]);
    let mut holder = Command::new("unshare");
    holder.args(["--mount", "--propagation", "private", "sleep", "300"]);
    let mut holder = holder.spawn().expect("it starts");
    let name = format!("/proc/{}/comm", holder.id());
    eventually("its namespace", || fs::read_to_string(&name).is_ok_and(|it| it == "sleep\n"));
    let refused = spot.ramfold("umount").output().expect("it starts");
    holder.kill().expect("it runs");
    holder.wait().expect("it ends");
    let expected = format!("sleep (pid {}) has it in another mount namespace", holder.id());
    assert!(said(&refused).contains(&expected), "{refused:?}");
    eventually("its end", || !spot.place().exists());
    spot.is_gone();
}

/// The first disk's directory was made for it.
#[test]
fn the_next_disk_has_the_directory_of_a_killed_server() {
    if !needs_mount(&["mkfs.ext4"]) {
        return;
    }
    let _space = Space::Mount.enter();
    let spot = Spot::new("again");
    spot.mount(&["--size", "64M"]);
    let server = spot.server();
    signal(server, "KILL");
    let process = format!("/proc/{server}/fd");
    eventually("its end", || !fs::read_dir(&process).is_ok_and(|mut fds| fds.next().is_some()));
    succeed(tool("umount").arg(spot.directory()));
    spot.mount(&["--size", "64M"]);
    fs::write(spot.directory().join("file"), "new").expect("room");
    succeed(&mut spot.ramfold("umount"));
    let _ = fs::remove_dir(spot.directory());
    spot.is_gone();
}

/// Where mounts spread, a mount appears at a second place by itself, and goes from there too.
#[test]
fn a_mount_that_spreads_comes_and_goes_at_both_places() {
    if !needs_mount(&["mkfs.ext4"]) {
        return;
    }
    let _space = Space::Mount.enter();
    let spot = Spot::new("spread");
    let (base, peer) = (spot.scratch.path(""), Scratch::new());
    let _gone = [peer.path(""), base.clone()].map(Gone);
    succeed(tool("mount").arg("--bind").arg(&base).arg(&base));
    succeed(tool("mount").arg("--make-shared").arg(&base));
    succeed(tool("mount").arg("--bind").arg(&base).arg(peer.path("")));
    spot.mount(&["--size", "64M"]);
    fs::write(spot.directory().join("file"), "there").expect("room");
    let name = spot.directory().file_name().expect("a name").to_owned();
    let other = peer.path("").join(name).join("file");
    assert_eq!(fs::read_to_string(&other).expect("it has spread"), "there");
    succeed(&mut spot.ramfold("umount"));
    assert!(!other.exists());
    succeed(tool("umount").arg(peer.path("")));
    spot.is_gone();
}
