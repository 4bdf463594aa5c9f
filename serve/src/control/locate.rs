//! Finds the control socket that a person means.
//!
//! | TARGET | control socket |
//! |---|---|
//! | `nbd+unix:///NAME?socket=PATH` | as for PATH |
//! | PATH of a control socket, `*.ctl` | PATH |
//! | PATH of an NBD socket | `PATH.ctl`; for a `NAME.sock` without one, `NAME.ctl` beside it |
//! | NAME | `NAME.ctl` in the runtime directory, or in that of services |
//!
//! A TARGET with a `/` in it is a path. Any other TARGET is a path if no server has that name but a
//! file does.
//!
//! Invariant: a name is looked up only in a directory that is private to this user. In a temporary
//! directory anyone may make one of the right name.
//!
//! Lock: that of `door`, while a socket is removed.

use super::ControlError;
use crate::doors::runtime::{self, CONTROL_SUFFIX, SOCKET_SUFFIX};
use crate::doors::{clear_abandoned, knock};
use crate::terms::uri;
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// A running server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Running {
    /// Its device's name.
    pub name: String,
    /// Its control socket.
    pub control: PathBuf,
}

/// The control socket that TARGET means. It exists, but only a `call` shows whether a server
/// listens.
///
/// # Errors
///
/// [`ControlError::NoSuchTarget`] or [`ControlError::BadTarget`].
pub fn locate(target: &str) -> Result<PathBuf, ControlError> {
    locate_in(&runtime::directories(), target)
}

/// The running servers of this user, sorted by name. Of those with one name, the one that the name
/// leads to is the first.
pub fn list() -> Vec<Running> {
    list_in(&runtime::directories())
}

/// Removes the sockets of servers that were killed, and gives the names of those servers.
pub fn clear_killed() -> Vec<String> {
    clear_killed_in(&runtime::directories())
}

fn clear_killed_in(directories: &[PathBuf]) -> Vec<String> {
    let mut killed = found_in(directories);
    // A socket that cannot be removed is left for the next server of that name.
    killed.retain(|server| clear_abandoned(&server.control).unwrap_or(false));
    for server in &killed {
        let nbd = server.control.with_extension(&SOCKET_SUFFIX[1..]);
        let _ = clear_abandoned(&nbd);
    }
    killed.into_iter().map(|server| server.name).collect()
}

fn locate_in(directories: &[PathBuf], target: &str) -> Result<PathBuf, ControlError> {
    let wrong = |hint: String| ControlError::NoSuchTarget { target: target.to_owned(), hint };
    let never =
        |hint: &str| ControlError::BadTarget { target: target.to_owned(), hint: hint.into() };
    if uri::is_unix(target) {
        let socket =
            uri::socket_of(target).ok_or_else(|| never("the address has no socket=PATH in it"))?;
        return beside(&socket).map_err(wrong);
    }
    if target.starts_with("nbd://") || target.starts_with("nbds://") {
        return Err(never(
            "there is no control over TCP; give the server's name, which ramfold stat lists",
        ));
    }
    let private = directories.iter().filter(|directory| runtime::is_private(directory));
    let named = private.filter_map(|directory| Some(runtime::sockets(directory, target)?.1));
    if let Some(control) = named.into_iter().find(|control| is_socket(control)) {
        return Ok(control);
    }
    if !target.contains('/') && !Path::new(target).exists() {
        let known = known_names(directories);
        let why = format!("no server of this name runs ({known}), and there is no such file");
        return Err(wrong(why));
    }
    beside(Path::new(target)).map_err(wrong)
}

/// The control socket that belongs to a path, or what is wrong with the path.
fn beside(path: &Path) -> Result<PathBuf, String> {
    if is_socket(path) && has_suffix(path, CONTROL_SUFFIX) {
        return Ok(path.to_owned());
    }
    let mut candidates = vec![runtime::control_beside(path)];
    if has_suffix(path, SOCKET_SUFFIX) {
        candidates.push(path.with_extension(&CONTROL_SUFFIX[1..]));
    }
    if let Some(found) = candidates.iter().find(|candidate| is_socket(candidate)) {
        return Ok(found.clone());
    }
    Err(if let Err(error) = fs::metadata(path) {
        match error.kind() {
            io::ErrorKind::NotFound => "there is no such socket".into(),
            // It may exist, but not for this user.
            _ => error.to_string(),
        }
    } else if is_socket(path) {
        format!("no control socket belongs to it ({} is missing)", candidates[0].display())
    } else {
        "it is not a socket; give the socket, the address or the name of a server".into()
    })
}

fn list_in(directories: &[PathBuf]) -> Vec<Running> {
    let mut running = found_in(directories);
    running.retain(|server| match knock(&server.control) {
        Ok(_) => true,
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    });
    running
}

/// Control sockets in private directories, whether a server listens or not.
fn found_in(directories: &[PathBuf]) -> Vec<Running> {
    let private = directories.iter().filter(|directory| runtime::is_private(directory));
    let entries = private.flat_map(|it| fs::read_dir(it).into_iter().flatten().flatten());
    let mut found: Vec<Running> = entries
        .filter_map(|entry| {
            let name = entry.file_name().to_str()?.strip_suffix(CONTROL_SUFFIX)?.to_owned();
            Some(Running { name, control: entry.path() })
        })
        .filter(|server| is_socket(&server.control))
        .collect();
    // The order of the directories stays, because `locate` looks there in that order.
    found.sort_by(|one, other| one.name.cmp(&other.name));
    found
}

fn known_names(directories: &[PathBuf]) -> String {
    let names: Vec<String> = list_in(directories).into_iter().map(|server| server.name).collect();
    if names.is_empty() { "none does".into() } else { format!("running: {}", names.join(", ")) }
}

fn is_socket(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.file_type().is_socket())
}

fn has_suffix(path: &Path, suffix: &str) -> bool {
    path.as_os_str().as_encoded_bytes().ends_with(suffix.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
    use std::os::unix::net::UnixListener;
    use std::slice;

    /// A directory of one test, which is removed at the end.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("serve-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
            Self(path)
        }

        fn listen(&self, name: &str) -> (PathBuf, UnixListener) {
            let path = self.0.join(name);
            let listener = UnixListener::bind(&path).unwrap();
            (path, listener)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn every_form_of_target_leads_to_its_control_socket() {
        let scratch = Scratch::new("forms");
        let (named, _keep1) = scratch.listen("zram0.ctl");
        let (nbd, _keep2) = scratch.listen("zram0.sock");
        let (placed, _keep3) = scratch.listen("other.sock.ctl");
        let other = scratch.0.join("other.sock").display().to_string();
        let rows = [
            ("zram0".to_owned(), &named),
            (named.display().to_string(), &named),
            (nbd.display().to_string(), &named),
            (uri::unix("zram0", &nbd, None), &named),
            (other, &placed),
        ];
        for (target, expected) in rows {
            let found = locate_in(slice::from_ref(&scratch.0), &target)
                .unwrap_or_else(|e| panic!("{target}: {e}"));
            assert_eq!(&found, expected, "{target}");
        }
    }

    #[test]
    fn services_are_found_after_the_own_servers() {
        let (own, services) = (Scratch::new("own"), Scratch::new("a-service"));
        let directories = [own.0.clone(), services.0.clone()];
        let (disk, _keep1) = own.listen("disk.ctl");
        let (_, _keep2) = services.listen("disk.ctl");
        let (other, _keep3) = services.listen("other.ctl");
        assert_eq!(locate_in(&directories, "disk").unwrap(), disk);
        assert_eq!(locate_in(&directories, "other").unwrap(), other);
        let list = list_in(&directories);
        let names: Vec<&str> = list.iter().map(|it| &*it.name).collect();
        assert_eq!(names, ["disk", "disk", "other"]);
        assert_eq!(list[0].control, disk, "the first is the one that the name leads to");
        fs::set_permissions(&services.0, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(locate_in(&directories, "other").is_err(), "anybody could be there");
    }

    #[test]
    fn a_wrong_target_says_what_would_be_right() {
        let scratch = Scratch::new("wrong");
        let (_, _keep) = scratch.listen("zram7.ctl");
        let (lonely, _keep) = scratch.listen("lonely.sock");
        let file = scratch.0.join("file");
        fs::write(&file, "").unwrap();
        let rows = [
            ("zram9".to_owned(), "running: zram7"),
            ("nbd://localhost/zram7".to_owned(), "no control over TCP"),
            ("nbd+unix:///zram7".to_owned(), "socket=PATH"),
            ("/nonexistent/x.sock".to_owned(), "no such socket"),
            (lonely.display().to_string(), "no control socket belongs to it"),
            (file.display().to_string(), "not a socket"),
        ];
        for (target, words) in rows {
            let error =
                locate_in(slice::from_ref(&scratch.0), &target).expect_err(&target).to_string();
            assert!(error.contains(words), "{target}: {error:?} does not say {words:?}");
            assert_eq!(error.lines().count(), 1);
        }
    }

    #[test]
    fn only_servers_that_listen_are_listed() {
        let scratch = Scratch::new("list");
        let (control, _keep) = scratch.listen("alive.ctl");
        drop(scratch.listen("stale.ctl"));
        fs::write(scratch.0.join("file.ctl"), "").unwrap();
        assert_eq!(
            list_in(slice::from_ref(&scratch.0)),
            [Running { name: "alive".into(), control }]
        );
        assert_eq!(list_in(&["/nonexistent".into()]), []);
    }

    #[test]
    fn what_killed_servers_left_is_named_once_and_removed() {
        let scratch = Scratch::new("killed");
        let (alive, _keep) = scratch.listen("alive.ctl");
        for name in ["dead.ctl", "dead.sock"] {
            drop(scratch.listen(name));
        }
        fs::write(scratch.0.join("file.ctl"), "").unwrap();
        assert_eq!(clear_killed_in(slice::from_ref(&scratch.0)), ["dead"]);
        assert!(!scratch.0.join("dead.sock").exists(), "its NBD socket is removed as well");
        assert_eq!(clear_killed_in(slice::from_ref(&scratch.0)), [""; 0], "it is gone");
        assert!(alive.exists() && scratch.0.join("file.ctl").exists(), "the others are left alone");
    }
}
