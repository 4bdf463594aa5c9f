//! Mounts and unmounts: directly if this process may, and otherwise through `fusermount3`.
//!
//! What happens depends on what is at the directory when a server starts:
//!
//! | found | done |
//! |---|---|
//! | an empty directory | mounted over |
//! | nothing | the directory is made (0755), and is not removed later |
//! | not even a parent directory | `ServeError::NoParent`, because the path may be mistyped |
//! | a mount of a killed server | it is unmounted, and the directory is mounted again |
//! | a mount of a running server | `ServeError::InUse` |
//! | anything else | `ServeError::NotEmpty` or the system's error; it is left alone |
//!
//! Invariant: dropping a mount unmounts it, lazily if it is in use. A mount that was not made here
//! is never unmounted, except that of a killed server. So a mount that another one covers stays.
//! One that was moved is unmounted where it is now. The system uses the numbers of mounts and of
//! file systems again, so a mount counts as this one only while its connection is open.
//!
//! Locks: none.

use super::mountinfo::{self, Mounted};
use crate::terms::{ServeError, shell};
use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use std::ffi::CString;
use std::fmt;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The kernel's device for file systems in user space.
const DEVICE: &str = "/dev/fuse";
/// A set-user-ID program of the package fuse3 that mounts for other users.
const TOOL: &str = "fusermount3";
/// The type of our mounts in the list of mounts.
const KIND: &str = "fuse.ramfold";

/// A directory over which this process has mounted.
#[derive(Debug)]
pub(crate) struct Mount {
    point: PathBuf,
    /// The mount as the system lists it. `None` if it lists no mounts.
    listed: Option<Mounted>,
    /// The connection, which tells whether the file system is still there.
    device: OwnedFd,
}

/// Why a mount was not removed.
#[derive(Debug)]
#[non_exhaustive]
pub enum UnmountError {
    /// A file of it is open, or a process is in a directory of it.
    Busy,
    /// This mount is over it, or over a directory above it.
    Covered(Mounted),
    /// The system refused for another reason.
    Failed(io::Error),
}

impl fmt::Display for UnmountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("it is in use"),
            Self::Covered(cover) => {
                let (kind, at) = (&cover.kind, shell::word(&cover.point));
                write!(f, "another mount is over it ({kind}); unmount that first: umount {at}")
            }
            Self::Failed(source) => source.fmt(f),
        }
    }
}

impl std::error::Error for UnmountError {}

impl Mount {
    /// Mounts over a directory, and gives the connection to the kernel.
    pub(crate) fn new(directory: &Path) -> Result<(Self, OwnedFd), ServeError> {
        let point = prepare(directory)?;
        let device = match mount_directly(&point) {
            Err(Errno::NOENT | Errno::NODEV | Errno::NXIO) => return Err(ServeError::NoFuse),
            // The tool may mount, and may open the device.
            Err(Errno::PERM | Errno::ACCESS) => mount_by_tool(&point)?,
            other => other.map_err(|errno| cannot(&point, errno.into()))?,
        };
        let listed = mountinfo::at(&point).filter(|found| found.kind == KIND);
        match device.try_clone() {
            Ok(own) => Ok((Self { point, listed, device: own }, device)),
            Err(error) => {
                // The first failure is told.
                let _ = unmount(&point, true);
                Err(cannot(&point, error))
            }
        }
    }

    /// Where it is, without symbolic links.
    pub(crate) fn point(&self) -> &Path {
        &self.point
    }

    /// The device number of the files on it.
    pub(crate) fn device_number(&self) -> Option<(u32, u32)> {
        self.listed.as_ref().map(|listed| listed.device)
    }

    /// Unmounts it if it is not in use.
    pub(crate) fn unmount(&self) -> Result<(), UnmountError> {
        self.undo(false)
    }

    /// Takes it out of the directory tree now. Open files stay usable.
    pub(crate) fn unmount_lazily(&self) -> Result<(), UnmountError> {
        self.undo(true)
    }

    /// Where else the file system is mounted, as by `mount --bind`.
    pub(crate) fn elsewhere(&self) -> Vec<PathBuf> {
        let Some(ours) = &self.listed else { return Vec::new() };
        let all = mountinfo::all().into_iter();
        let others = all.filter(|other| other.device == ours.device && other.id != ours.id);
        others.map(|other| other.point).collect()
    }

    fn undo(&self, lazily: bool) -> Result<(), UnmountError> {
        let Some(listed) = &self.listed else {
            // What is listed there now was not listed after this mount was made, so it is another.
            let is_listed = mountinfo::at(&self.point).is_some();
            return if is_listed { Ok(()) } else { unmount(&self.point, lazily) };
        };
        let again = || self.now(listed).map_err(UnmountError::Failed);
        let Some(found) = again()? else { return Ok(()) };
        if let Some(cover) = mountinfo::cover(&found).map_err(UnmountError::Failed)? {
            return Err(UnmountError::Covered(cover));
        }
        let outcome = unmount(&found.point, lazily);
        // Another process may have been faster.
        outcome.or_else(|why| if matches!(again(), Ok(None)) { Ok(()) } else { Err(why) })
    }

    /// The mount as it is now. `None` if it is gone.
    fn now(&self, listed: &Mounted) -> io::Result<Option<Mounted>> {
        let found = mountinfo::again(listed)?;
        // The numbers of a file system that is gone may be another one's, so this is asked after
        // the list was read. One that the kernel has cut off is dead, and is still there.
        let is_cut_off = |found: &Mounted| {
            found == listed && fs::symlink_metadata(&self.point).is_err_and(|error| is_dead(&error))
        };
        Ok(found.filter(|found| self.is_open() || is_cut_off(found)))
    }

    /// Whether the file system is there. As long as it is, no other one has its device number.
    fn is_open(&self) -> bool {
        let mut device = [PollFd::new(&self.device, PollFlags::IN)];
        let polled = poll(&mut device, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        polled.is_ok() && !device[0].revents().contains(PollFlags::ERR)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Errors are ignored. A caller that wants them calls `unmount` before.
        if self.unmount().is_err() {
            let _ = self.unmount_lazily();
        }
    }
}

/// Makes room for a mount, as the table above says, and gives the path without symbolic links.
fn prepare(directory: &Path) -> Result<PathBuf, ServeError> {
    let failed = |source| cannot(directory, source);
    let made = DirBuilder::new().mode(0o755).create(directory);
    if made.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        && !directory
            .parent()
            .is_some_and(|parent| parent.as_os_str().is_empty() || parent.exists())
    {
        return Err(ServeError::NoParent(directory.to_owned()));
    }
    let directory = real_path(directory).map_err(failed)?;
    match fs::symlink_metadata(&directory) {
        Err(error) if is_dead(&error) => {
            unmount(&directory, true).map_err(|_| ServeError::Dead(directory.clone()))?;
        }
        Err(error) => return Err(failed(made.err().unwrap_or(error))),
        Ok(found) if !found.is_dir() => return Err(failed(Errno::NOTDIR.into())),
        Ok(_) => {}
    }
    if mountinfo::at(&directory).is_some_and(|found| found.kind == KIND) {
        return Err(ServeError::InUse(directory));
    }
    let empty = fs::read_dir(&directory).map_err(failed)?.next().is_none();
    if empty { Ok(directory) } else { Err(ServeError::NotEmpty(directory)) }
}

/// Whether the server of a mount is gone, or is just being found to be gone.
fn is_dead(error: &io::Error) -> bool {
    matches!(errno_of(error), Errno::NOTCONN | Errno::CONNABORTED)
}

/// The path without symbolic links. The file system that is mounted at its end is not asked.
fn real_path(path: &Path) -> io::Result<PathBuf> {
    if fs::read_link(path).is_ok() {
        return fs::canonicalize(path);
    }
    let path = std::path::absolute(path)?;
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => Ok(fs::canonicalize(parent)?.join(name)),
        _ => fs::canonicalize(path), // the root, or a path that ends with `..`
    }
}

/// Mounts without a tool, as root or as root of a user namespace.
fn mount_directly(point: &Path) -> Result<OwnedFd, Errno> {
    let file = OpenOptions::new().read(true).write(true).open(DEVICE);
    let device = OwnedFd::from(file.map_err(|error| errno_of(&error))?);
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    // The kernel checks the modes of files, as it does in sysfs.
    let data = format!(
        "fd={},rootmode=40000,user_id={uid},group_id={gid},allow_other,default_permissions",
        device.as_raw_fd()
    );
    let data = CString::new(data).map_err(|_| Errno::INVAL)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount("ramfold", point, KIND, flags, data.as_c_str())?;
    Ok(device)
}

/// Has the tool mount. It sends the connection over a socket that is its standard input.
fn mount_by_tool(point: &Path) -> Result<OwnedFd, ServeError> {
    let failed = |source| cannot(point, source);
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    let mut tool = Command::new(TOOL);
    tool.args(["-o", "fsname=ramfold,subtype=ramfold,nosuid,nodev,default_permissions", "--"]);
    tool.arg(point).env("_FUSE_COMMFD", "0").stdin(Stdio::from(OwnedFd::from(theirs)));
    let child = tool.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    // The command holds our copy of the socket's other end, which would keep the socket open.
    drop(tool);
    let child = child.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => ServeError::NoFusermount,
        _ => failed(error),
    })?;
    let device = receive_device(&ours);
    let output = child.wait_with_output().map_err(failed)?;
    let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    device.ok_or_else(|| failed(io::Error::other(format!("{TOOL}: {said}"))))
}

/// The descriptor that comes with one byte. `None` if the socket is closed without one.
fn receive_device(socket: &UnixStream) -> Option<OwnedFd> {
    let (mut byte, mut space) = ([0], [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))]);
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let (mut parts, flags) = ([IoSliceMut::new(&mut byte)], RecvFlags::CMSG_CLOEXEC);
    rustix::io::retry_on_intr(|| rustix::net::recvmsg(socket, &mut parts, &mut control, flags))
        .ok()?;
    control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    })
}

fn unmount(point: &Path, lazily: bool) -> Result<(), UnmountError> {
    let flags = if lazily { UnmountFlags::DETACH } else { UnmountFlags::NOFOLLOW };
    match rustix::mount::unmount(point, flags) {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(UnmountError::Busy),
        Err(Errno::PERM) => unmount_by_tool(point, lazily),
        Err(errno) => Err(UnmountError::Failed(errno.into())),
    }
}

fn unmount_by_tool(point: &Path, lazily: bool) -> Result<(), UnmountError> {
    let how = if lazily { "-uz" } else { "-u" };
    let output = Command::new(TOOL).arg(how).arg("--").arg(point).output();
    let output = output.map_err(UnmountError::Failed)?;
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(()),
        false if said.contains("busy") => Err(UnmountError::Busy),
        false => Err(UnmountError::Failed(io::Error::other(said.trim().replace('\n', "; ")))),
    }
}

fn errno_of(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

fn cannot(path: &Path, source: io::Error) -> ServeError {
    ServeError::Mount { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that ended unmounted the tree of the next one, which had got its numbers.
    #[test]
    fn a_mount_with_the_numbers_of_one_that_is_gone_is_another() {
        if !rustix::process::geteuid().is_root() || fs::metadata(DEVICE).is_err() {
            println!("skipped: needs root and {DEVICE}");
            return;
        }
        let [gone, next] = ["gone", "next"].map(|name| {
            std::env::temp_dir().join(format!("ramfold-{name}-{}", std::process::id()))
        });
        let (mut old, _old_device) = Mount::new(&gone).unwrap();
        old.unmount().unwrap();
        let (new, _new_device) = Mount::new(&next).unwrap();
        // Which numbers the system takes depends on what else is mounted at the time.
        old.listed = new.listed.clone();
        old.unmount_lazily().unwrap();
        assert_eq!(mountinfo::at(&next), new.listed, "it stays");
        new.unmount().unwrap();
        assert_eq!(mountinfo::at(&next), None);
        [gone, next].iter().for_each(|path| fs::remove_dir(path).unwrap());
    }
}
