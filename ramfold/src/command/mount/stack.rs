//! The file system on a served disk: made, mounted, and taken down in the reverse order.
//!
//! ```text
//!   tree/NAME/disk --losetup--> /dev/loop0 --mkfs, mount--> DIR      by the kernel
//!   tree/NAME/disk --mkfs--------------------fuse2fs------> DIR      by a program
//! ```
//!
//! After mounting, the loop device is told to go with its last user. So it ends with the mount,
//! by whatever means that ends.
//!
//! Invariant: if a step fails, those before it are undone. Locks: none.

use std::cell::RefCell;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{geteuid, getgid, getuid};
use serve::fuse::{Mounted, UnmountError, mounted_again, mounted_at, mounted_over, mounts};

use super::target::{Stays, unmount};
use super::tools;
use super::way::Way;
use crate::command::serve::Hints;
use crate::line::Failure;
use crate::line::mounting::{FileSystem, Mount};

/// How often it is looked whether fuse2fs has mounted.
const LOOK: Duration = Duration::from_millis(10);
/// The system tells of changed mounts. This is for a system that does not.
const LOOK_ANYWAY: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// How often it is looked where nothing can be waited for.
const LOOK_WITHOUT_A_LIST: Duration = Duration::from_secs(1);

/// Options of the mount. A flush of a loop device is a request like any other, and here there is
/// nothing to flush: what is written is in the store. So the file system is to ask for none.
const DISCARD: &str = "discard";
const DISCARD_NO_BARRIER: &str = "discard,nobarrier";

/// A file system on a disk.
pub(super) struct Stack {
    fs: FileSystem,
    way: Way,
    options: Option<String>,
    directory: PathBuf,
    /// What is mounted, once it is.
    standing: RefCell<Option<Standing>>,
}

struct Standing {
    mounted: Mounted,
    /// The program that serves the file system, if it is not the kernel.
    program: Option<Serving>,
}

/// A program that serves a file system. It does not outlive what it serves.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        // Both fail only if it has ended and was waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A loop device, which is detached if a later step fails.
struct Attached(String);

impl Drop for Attached {
    fn drop(&mut self) {
        // If it fails, the first failure is told, and `ramfold umount` tries again.
        let _ = tools::run("losetup", ["-d", &self.0]);
    }
}

impl Stack {
    pub(super) fn new(args: &Mount, way: Way, directory: &Path) -> Stack {
        Stack {
            fs: args.fs,
            way,
            options: args.options.clone(),
            directory: directory.to_owned(),
            standing: RefCell::new(None),
        }
    }

    /// Makes the file system on a disk and mounts it. `hints` is told when it is unmounted.
    pub(super) fn begin(&self, disk: &Path, hints: Hints) -> Result<(), Failure> {
        let program = match self.way {
            Way::Loop => self.mount_by_kernel(disk).map(|()| None)?,
            Way::Fuse2fs => self.mount_by_program(disk).map(Some)?,
        };
        let mounted = mounted_at(&self.directory).ok_or_else(|| {
            Failure::about(self.directory.display(), "it was unmounted at once by another program")
        })?;
        let watched = mounted.clone();
        self.standing.replace(Some(Standing { mounted, program }));
        let watch = move || {
            wait_until_gone(&watched);
            hints.changed();
        };
        let watching = host::thread::spawn("unmounted", watch);
        watching.map(drop).map_err(|error| {
            // The first failure is told.
            let _ = self.end(false);
            Failure::about("cannot start a thread", error)
        })
    }

    fn mount_by_kernel(&self, disk: &Path) -> Result<(), Failure> {
        let how = ["--find", "--show", "--direct-io=on", "--sector-size", "4096"];
        let words = how.iter().map(|word| word.as_ref()).chain([disk.as_os_str()]);
        let device = Attached(tools::run("losetup", words)?);
        self.make(Path::new(&device.0))?;
        let ours = match self.fs {
            FileSystem::Ext4 | FileSystem::Btrfs => DISCARD_NO_BARRIER,
            FileSystem::Xfs => DISCARD, // it has no such option
        };
        let options = match &self.options {
            Some(more) => format!("{ours},{more}"),
            None => ours.to_owned(),
        };
        let words = ["-t", self.fs.name(), "-o", &options, &device.0].map(AsRef::as_ref);
        tools::run("mount", words.into_iter().chain([self.directory.as_os_str()]))?;
        self.check_place(Path::new(&device.0))?;
        // Detaching a device in use has the kernel detach it when its last user is gone.
        drop(device);
        Ok(())
    }

    /// The directory was judged a moment ago. If another program has put a link in its place
    /// meanwhile, the disk is over some other directory, and goes from there.
    fn check_place(&self, device: &Path) -> Result<(), Failure> {
        let ours: Vec<Mounted> = mounts().into_iter().filter(|it| it.source == device).collect();
        // Where mounts spread, it is at other places too.
        if ours.iter().any(|it| it.point == self.directory) {
            return Ok(());
        }
        let Some(astray) = ours.first() else {
            // The first failure is told.
            let _ = unmount(&self.directory, self.way, false);
            let why = "another device was mounted than the disk's; --options may not have loop";
            return Err(Failure::about(self.directory.display(), why));
        };
        // The first failure is told.
        let _ = unmount(&astray.point, self.way, false);
        let why =
            format!("{} was mounted over instead, and is not any more", astray.point.display());
        Err(Failure::about(self.directory.display(), why))
    }

    fn mount_by_program(&self, disk: &Path) -> Result<Serving, Failure> {
        self.make(disk)?;
        let mut options = "rw,fakeroot".to_owned();
        // The owner of the mount is root. Others see it as they see any mount, with the rights that
        // its files give them: fuse2fs by itself would let them do what root may.
        options += if geteuid().is_root() { ",allow_other,default_permissions" } else { "" };
        options += &self.options.as_ref().map_or(String::new(), |more| format!(",{more}"));
        let mut program = tools::command("fuse2fs")?;
        program.arg("-f").args(["-o", &options]).arg(disk).arg(&self.directory);
        program.stdout(Stdio::null()).stderr(Stdio::piped());
        let started = program.spawn();
        let mut serving = Serving(started.map_err(|error| Failure::about("fuse2fs", error))?);
        while mounted_at(&self.directory).is_none() {
            let gone = serving.0.try_wait().map_err(|error| Failure::about("fuse2fs", error))?;
            if let Some(status) = gone {
                let mut said = Vec::new();
                let stream = serving.0.stderr.take();
                // What cannot be read is not told.
                let _ = stream.map(|mut stream| stream.read_to_end(&mut said));
                return Err(Failure::about("fuse2fs", tools::said(&said, &status.to_string())));
            }
            thread::sleep(LOOK);
        }
        // What it says later is for nobody.
        drop(serving.0.stderr.take());
        Ok(serving)
    }

    /// Makes the file system, without what a disk in memory has no use for: it is empty, and after
    /// a crash there is nothing to recover.
    fn make(&self, device: &Path) -> Result<(), Failure> {
        let owner = format!("root_owner={}:{},nodiscard", getuid().as_raw(), getgid().as_raw());
        let (program, how): (_, &[&str]) = match self.fs {
            FileSystem::Ext4 => {
                ("mkfs.ext4", &["-q", "-F", "-b", "4096", "-m", "0", "-O", "^has_journal", "-E"])
            }
            FileSystem::Btrfs => ("mkfs.btrfs", &["-q", "-K", "-m", "single"]),
            FileSystem::Xfs => ("mkfs.xfs", &["-q", "-K"]),
        };
        let owner = (self.fs == FileSystem::Ext4).then_some(&*owner);
        let words = how.iter().copied().chain(owner).map(AsRef::as_ref);
        tools::run(program, words.chain([device.as_os_str()])).map(drop)
    }

    /// Unmounts it. If it is in use, it stays, unless it is to go lazily.
    pub(super) fn end(&self, lazily: bool) -> Result<(), Stays> {
        let mut standing = self.standing.borrow_mut();
        let Some(ours) = &mut *standing else { return Ok(()) };
        if let Some(found) = mounted_again(&ours.mounted).map_err(untold)? {
            let outcome = take_down(&found, self.way, lazily);
            // Another program may have been faster.
            let is_there = || !matches!(mounted_again(&ours.mounted), Ok(None));
            outcome.or_else(|stays| if is_there() { Err(stays) } else { Ok(()) })?;
        }
        if let Some(program) = ours.program.as_mut().filter(|_| !lazily) {
            // It writes what is left to the disk, which is served meanwhile.
            let _ = program.0.wait();
        }
        *standing = None;
        Ok(())
    }
}

fn untold(error: io::Error) -> Stays {
    Stays::Failed(format!("the system does not tell of mounts: {error}"))
}

/// Unmounts a mount where it is now. What another mount covers stays.
fn take_down(found: &Mounted, way: Way, lazily: bool) -> Result<(), Stays> {
    if let Some(cover) = mounted_over(found).map_err(untold)? {
        return Err(Stays::Failed(UnmountError::Covered(cover).to_string()));
    }
    unmount(&found.point, way, lazily)
}

/// Waits until a mount is gone, wherever it was moved to. As long as the system does not tell, it
/// is there.
fn wait_until_gone(mounted: &Mounted) {
    let list = fs::File::open("/proc/self/mountinfo");
    while !matches!(mounted_again(mounted), Ok(None)) {
        match &list {
            Ok(list) => {
                let mut changed = [PollFd::new(list, PollFlags::PRI)];
                // The next look tells what happened, whatever the reason was to look.
                let _ = poll(&mut changed, Some(&LOOK_ANYWAY));
            }
            Err(_) => thread::sleep(LOOK_WITHOUT_A_LIST),
        }
    }
}
