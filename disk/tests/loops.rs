//! Loop devices and the files under them: if two processes want one, the second is refused.
//!
//! Claims
//! - The user of a file keeps others from a loop device over it, and from one over that device.
//! - The user of such a device keeps others from the file, by whatever name.
//! - An error names what is in use. When that is given up, the device or file can be opened.

use ramfold_disk::FileDisk;
use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A directory with a file of 1 MiB, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path =
            std::env::temp_dir().join(format!("ramfold-loops-{}-{name}", std::process::id()));
        fs::create_dir(&path).expect("a new directory");
        let scratch = Scratch(path);
        File::create(scratch.file()).and_then(|file| file.set_len(1 << 20)).expect("room");
        scratch
    }

    fn file(&self) -> PathBuf {
        self.0.join("file")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A loop device over a file or a device, until dropped.
struct Loop(PathBuf);

impl Loop {
    fn over(file: &Path) -> Loop {
        let losetup = losetup().args(["--find", "--show"]).arg(file).output().expect("it runs");
        let said = String::from_utf8_lossy(&losetup.stderr).into_owned();
        assert!(losetup.status.success(), "losetup over {}: {said}", file.display());
        Loop(String::from_utf8_lossy(&losetup.stdout).trim().into())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = losetup().arg("--detach").arg(&self.0).status();
    }
}

fn losetup() -> Command {
    let mut losetup = Command::new("losetup");
    let path = std::env::var("PATH").unwrap_or_default();
    losetup.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    losetup
}

/// One test runs at a time. A `losetup` that another test starts has copies of this test's files,
/// and with them their locks, until it executes.
static TURN: Mutex<()> = Mutex::new(());

/// The turn to test. Only root makes loop devices, and only if the machine has them. A container
/// may have none.
fn turn() -> Option<MutexGuard<'static, ()>> {
    let control = OpenOptions::new().read(true).write(true).open("/dev/loop-control").is_ok();
    let there = control && losetup().arg("--version").output().is_ok();
    if !there {
        println!("skipped: needs losetup and /dev/loop-control");
    }
    there.then(|| TURN.lock().unwrap_or_else(PoisonError::into_inner))
}

#[track_caller]
fn refused(path: &Path, read_only: bool, over: &Path) {
    let shown = path.display();
    let Err(error) = FileDisk::open(path, read_only) else { panic!("{shown} was taken twice") };
    assert_eq!(error.kind(), ErrorKind::ResourceBusy, "{shown}: {error}");
    let named = over.display().to_string();
    assert!(error.to_string().contains(&named), "{shown}: {error} does not name {named}");
}

fn taken(path: &Path) -> FileDisk {
    FileDisk::open(path, false).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A second server once took the file of the first through a loop device, and overwrote its pages.
#[test]
fn a_file_in_use_is_refused_through_a_loop_device() {
    let Some(_turn) = turn() else { return };
    let scratch = Scratch::new("file-first");
    let first = taken(&scratch.file());
    let device = Loop::over(&scratch.file());
    for read_only in [false, true] {
        refused(&device.0, read_only, &scratch.file());
    }
    let outer = Loop::over(&device.0);
    refused(&outer.0, false, &scratch.file());
    drop(first);
    drop(taken(&outer.0));
}

#[test]
fn a_file_under_a_loop_device_in_use_is_refused() {
    let Some(_turn) = turn() else { return };
    let scratch = Scratch::new("device-first");
    let (link, name) = (scratch.0.join("link"), scratch.0.join("name"));
    std::os::unix::fs::symlink(scratch.file(), &link).expect("a new link");
    fs::hard_link(scratch.file(), &name).expect("a new name");
    let device = Loop::over(&scratch.file());
    // No process has the device open, but it may be mounted.
    for path in [&scratch.file(), &link, &name] {
        refused(path, false, &device.0);
    }
    let first = taken(&device.0);
    // The lock refuses processes that only read as well. A loop device alone would let those in.
    for path in [&scratch.file(), &link, &name] {
        let error = FileDisk::open(path, true).expect_err("its bytes change");
        assert_eq!(error.kind(), ErrorKind::ResourceBusy, "{}: {error}", path.display());
    }
    drop(first);
    drop(FileDisk::open(&scratch.file(), true).expect("nobody writes to it"));
}

#[test]
fn a_loop_device_under_another_is_one_with_it() {
    let Some(_turn) = turn() else { return };
    let scratch = Scratch::new("over-one-another");
    let inner = Loop::over(&scratch.file());
    let outer = Loop::over(&inner.0);
    refused(&inner.0, false, &outer.0);
    let first = taken(&outer.0);
    assert!(FileDisk::open(&inner.0, true).is_err(), "the outer one's holder has it");
    drop(first);
    let first = FileDisk::open(&inner.0, true).expect("nobody else has it");
    refused(&outer.0, false, &inner.0);
    drop(first);
    // Two devices over one file.
    let sibling = Loop::over(&scratch.file());
    let first = taken(&outer.0);
    refused(&sibling.0, false, &scratch.file());
    drop(first);
    drop(taken(&sibling.0));
}

/// No process can tell which others have a file open if the file has no name any more.
#[test]
fn a_loop_device_whose_file_is_not_to_be_found_is_refused() {
    let Some(_turn) = turn() else { return };
    let scratch = Scratch::new("deleted");
    let device = Loop::over(&scratch.file());
    fs::remove_file(scratch.file()).expect("it is there");
    refused(&device.0, false, &scratch.file());
}
