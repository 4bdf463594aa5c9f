//! Finds paths that lead back to our own mount. Serving a request there would take another request.
//!
//! ```text
//!   path --> file ----> mount, ours?                        refused
//!              |          '--> what is mounted: a device -.
//!              '-> block device <-------------------------'
//!                    |--> loop device: its backing file --> path, and so on
//!                    '--> partition, mapped device: those under it
//! ```
//!
//! A request that reads a backing device or a dictionary at such a path would wait for itself. File
//! systems that do not say what they lie on (overlays, networks) are not looked into.
//!
//! Invariant: at most `STEPS_MAX` steps are taken. A path that needs more is accepted. Locks: none.

use super::mountinfo;
use rustix::fs::{AtFlags, CWD, FileType, Statx, StatxFlags};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The most steps from a device to a file to a device, more than any real system has.
const STEPS_MAX: usize = 32;

/// A device's number.
pub(super) type DeviceNumber = (u32, u32);

/// Judges a path. The error says why it is refused. `ours` is the number of our file system.
pub(super) fn judge(path: &Path, ours: DeviceNumber) -> Result<(), String> {
    let mut ahead = vec![Place::File(path.to_owned())];
    for _ in 0..STEPS_MAX {
        let Some(place) = ahead.pop() else { break };
        match place {
            Place::File(file) => match look(&file) {
                Some(found) if found.file_system == ours => return Err(refusal(path)),
                Some(found) => ahead.extend(found.under()),
                None => {} // opening it will show what is wrong
            },
            Place::Device(number) => ahead.extend(under_device(&sysfs(number))),
        }
    }
    Ok(())
}

fn refusal(path: &Path) -> String {
    format!(
        "{} lies on a disk that is served here, and using it would wait for itself",
        path.display()
    )
}

/// Something on the way down.
enum Place {
    File(PathBuf),
    Device(DeviceNumber),
}

/// What the system says of a file.
struct Found {
    file_system: DeviceNumber,
    /// The device's number, if the file is a block device.
    device: Option<DeviceNumber>,
    mount: u64,
}

fn look(file: &Path) -> Option<Found> {
    let wanted = StatxFlags::TYPE | StatxFlags::MNT_ID;
    let found: Statx = rustix::fs::statx(CWD, file, AtFlags::STATX_DONT_SYNC, wanted).ok()?;
    let is_device = FileType::from_raw_mode(found.stx_mode.into()) == FileType::BlockDevice;
    Some(Found {
        file_system: (found.stx_dev_major, found.stx_dev_minor),
        device: is_device.then_some((found.stx_rdev_major, found.stx_rdev_minor)),
        mount: found.stx_mnt_id,
    })
}

impl Found {
    /// What a device or a file lies on.
    fn under(&self) -> Option<Place> {
        if let Some(number) = self.device {
            return Some(Place::Device(number));
        }
        let mounted = mountinfo::all().into_iter().find(|mounted| mounted.id == self.mount)?;
        mounted.source.starts_with("/dev").then_some(Place::File(mounted.source))
    }
}

fn sysfs((major, minor): DeviceNumber) -> PathBuf {
    PathBuf::from(format!("/sys/dev/block/{major}:{minor}"))
}

/// What a block device lies on, if the system says.
fn under_device(directory: &Path) -> Vec<Place> {
    let number = |directory: PathBuf| {
        let text = fs::read_to_string(directory.join("dev")).ok()?;
        let (major, minor) = text.trim_end().split_once(':')?;
        Some(Place::Device((major.parse().ok()?, minor.parse().ok()?)))
    };
    let mut under = Vec::new();
    if let Ok(file) = fs::read(directory.join("loop/backing_file")) {
        under.push(Place::File(OsStr::from_bytes(file.trim_ascii_end()).into()));
    }
    if directory.join("partition").exists() {
        under.extend(fs::canonicalize(directory.join("..")).ok().and_then(number));
    }
    let slaves = fs::read_dir(directory.join("slaves")).into_iter().flatten().flatten();
    under.extend(slaves.filter_map(|slave| number(slave.path())));
    under
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_on_the_file_system_itself_is_refused() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let own = look(here).expect("the source is there").file_system;
        let refused = judge(here, own).expect_err("it is on itself");
        assert!(refused.contains(env!("CARGO_MANIFEST_DIR")), "{refused}");
        assert_eq!(judge(here, (own.0, own.1 + 1_000_000)), Ok(()));
        assert_eq!(judge(Path::new("/nonexistent"), own), Ok(()), "opening it will say why");
    }
}
