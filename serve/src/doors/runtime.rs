//! The runtime directory: where the sockets of a server lie that was given no path.
//!
//! ```text
//!   $XDG_RUNTIME_DIR/ramfold/     or, without one,  TMPDIR/ramfold-UID/
//!       NAME.sock   speaks NBD
//!       NAME.ctl    speaks control
//!   /run/ramfold/                 the same of services, which root finds beside its own
//! ```
//!
//! Invariant: the directory is used only if it belongs to this user and is closed to others. In a
//! temporary directory anyone could have made it.
//!
//! Lock: that of `door`, while a socket is removed.

use super::door;
use crate::terms::ServeError;
pub use crate::terms::limits::SOCKET_PATH_MAX;
use std::env;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The end of the name of a server's NBD socket.
pub const SOCKET_SUFFIX: &str = ".sock";
/// The end of the name of a server's control socket, in this directory and elsewhere.
pub const CONTROL_SUFFIX: &str = ".ctl";

/// Where the runtime directory is or would be.
pub fn directory() -> PathBuf {
    match env::var_os("XDG_RUNTIME_DIR") {
        Some(base) if Path::new(&base).is_absolute() => Path::new(&base).join("ramfold"),
        _ => env::temp_dir().join(format!("ramfold-{}", uid())),
    }
}

/// The runtime directory of services. It stays when a user logs out.
pub const SYSTEM: &str = "/run/ramfold";

/// Where servers of this user are looked for: in the runtime directory, and among services.
pub fn directories() -> Vec<PathBuf> {
    let mut both = vec![directory(), PathBuf::from(SYSTEM)];
    both.dedup();
    both
}

/// Makes the runtime directory, or checks that it can be trusted.
///
/// # Errors
///
/// [`ServeError::Unix`] if it cannot be made, and [`ServeError::NotPrivate`] if it belongs to
/// another user or is open to others.
pub fn prepare() -> Result<PathBuf, ServeError> {
    let path = directory();
    let failed = |source| ServeError::Unix { path: path.clone(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(failed)?;
    if is_private(&path) { Ok(path) } else { Err(ServeError::NotPrivate(path)) }
}

/// Whether a path is a directory of this user and closed to others. A symbolic link is not.
pub fn is_private(path: &Path) -> bool {
    fs::symlink_metadata(path)
        .is_ok_and(|found| found.is_dir() && found.uid() == uid() && found.mode() & 0o077 == 0)
}

/// The NBD socket and the control socket of a server of this name in a directory. `None` if the
/// name cannot be the name of a file, or begins with a dot.
pub fn sockets(directory: &Path, name: &str) -> Option<(PathBuf, PathBuf)> {
    if name.is_empty() || name.starts_with('.') || name.contains(['/', '\0']) {
        return None;
    }
    let at = |suffix| directory.join(format!("{name}{suffix}"));
    Some((at(SOCKET_SUFFIX), at(CONTROL_SUFFIX)))
}

/// The control socket that belongs to an NBD socket at a path of the user's choice.
pub fn control_beside(socket: &Path) -> PathBuf {
    let mut path = socket.as_os_str().to_owned();
    path.push(CONTROL_SUFFIX);
    PathBuf::from(path)
}

/// Removes a socket whose server was killed. False if there is no socket, or if a server listens.
///
/// # Errors
///
/// [`ServeError::Unix`] if it cannot be removed, and [`ServeError::Busy`] if another process keeps
/// the directory locked.
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
