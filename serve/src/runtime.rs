//! The runtime directory: where sockets lie that were given no place of their own.
//!
//! ```text
//!   $XDG_RUNTIME_DIR/ramfold/     or, without one,  TMPDIR/ramfold-UID/
//!       NAME.sock   speaks NBD
//!       NAME.ctl    speaks control
//! ```
//!
//! Invariant: the directory is used only while it is a directory, ours, and closed to others;
//! in a temporary directory anyone could have made it.

use crate::door;
use crate::error::ServeError;
use std::env;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// How a server's NBD socket ends.
pub const SOCKET_SUFFIX: &str = ".sock";
/// How a server's control socket ends, here and elsewhere.
pub const CONTROL_SUFFIX: &str = ".ctl";

/// Bytes of a socket's path, at most: the system's `sun_path` has 108, and the last is a zero. The
/// system would do without it, and clients would not.
pub const SOCKET_PATH_MAX: usize = 107;

/// Where the runtime directory is or would be.
pub fn directory() -> PathBuf {
    match env::var_os("XDG_RUNTIME_DIR") {
        Some(base) if Path::new(&base).is_absolute() => Path::new(&base).join("ramfold"),
        _ => env::temp_dir().join(format!("ramfold-{}", uid())),
    }
}

/// Makes the runtime directory, or makes sure that it can be trusted.
pub fn prepare() -> Result<PathBuf, ServeError> {
    let path = directory();
    let failed = |source| ServeError::Unix { path: path.clone(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(failed)?;
    if is_private(&path) { Ok(path) } else { Err(ServeError::NotPrivate(path)) }
}

/// Whether a directory is ours and closed to others. A symbolic link is not.
pub(crate) fn is_private(path: &Path) -> bool {
    fs::symlink_metadata(path)
        .is_ok_and(|found| found.is_dir() && found.uid() == uid() && found.mode() & 0o077 == 0)
}

/// The sockets of a server of this name in a directory: NBD and control. `None` if the name
/// cannot be a file's.
pub fn sockets(directory: &Path, name: &str) -> Option<(PathBuf, PathBuf)> {
    if name.is_empty() || name.starts_with('.') || name.contains(['/', '\0']) {
        return None;
    }
    let at = |suffix| directory.join(format!("{name}{suffix}"));
    Some((at(SOCKET_SUFFIX), at(CONTROL_SUFFIX)))
}

/// The control socket that belongs to an NBD socket placed by `--unix`.
pub fn control_beside(socket: &Path) -> PathBuf {
    let mut path = socket.as_os_str().to_owned();
    path.push(CONTROL_SUFFIX);
    PathBuf::from(path)
}

/// Removes a socket whose server was killed; false where there is none, or somebody listens.
///
/// # Errors
///
/// [`ServeError`] where it is there and cannot be removed.
pub fn clear_abandoned(path: &Path) -> Result<bool, ServeError> {
    door::clear_abandoned(path)
}

fn uid() -> u32 {
    rustix::process::getuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_name_that_would_leave_the_directory_has_no_sockets() {
        let directory = Path::new("/run");
        for name in ["", ".", "..", "../x", "a/b", "a\0b", ".hidden"] {
            assert_eq!(sockets(directory, name), None, "{name:?}");
        }
        let (nbd, control) = sockets(directory, "zram0").unwrap();
        assert_eq!(nbd, Path::new("/run/zram0.sock"));
        assert_eq!(control, Path::new("/run/zram0.ctl"));
        assert_eq!(control_beside(Path::new("/a/b.sock")), Path::new("/a/b.sock.ctl"));
    }

    #[test]
    fn only_a_closed_directory_of_ours_is_private() {
        let base = env::temp_dir().join(format!("serve-private-{}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&base).unwrap();
        assert!(is_private(&base));
        let link = base.join("link");
        symlink(&base, &link).unwrap();
        assert!(!is_private(&link), "a link may lead anywhere later");
        fs::set_permissions(&base, fs::Permissions::from_mode(0o750)).unwrap();
        assert!(!is_private(&base), "the group can look in");
        fs::remove_dir_all(&base).unwrap();
    }
}
