//! A file that is made or replaced as a whole: it is written beside its place, and then renamed.
//!
//! ```text
//!   check     a new file beside PATH can be made; it is removed at once
//!   write     .ramfold-PID-0 --written--> renamed to PATH        the old file stays until then
//!   PATH is a pipe or a device            written to directly
//! ```
//!
//! Invariant: at PATH there is the old content or the new one, and never a part of it. The content
//! may hold secrets, so a new file is its owner's alone. Locks: none.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use super::failure::Failure;

/// How many names are tried for a file that is to replace another.
const NAMES: u32 = 100;

/// Where something is written.
enum Place {
    /// A file, which is made or replaced as a whole.
    File { target: PathBuf, replaced: Option<Metadata> },
    /// Something else, such as /dev/stdout, which is written to directly.
    Stream,
}

impl Place {
    /// The place of a path. A link to a file stays a link.
    fn of(path: &Path) -> io::Result<Place> {
        match fs::metadata(path) {
            Ok(there) if there.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
            Ok(there) if !there.is_file() => Ok(Place::Stream),
            Ok(there) => Ok(Place::File { target: fs::canonicalize(path)?, replaced: Some(there) }),
            Err(_) => Ok(Place::File { target: path.to_owned(), replaced: None }),
        }
    }
}

/// Whether a path is no file and cannot become one: a pipe, a device.
pub(crate) fn is_stream(path: &Path) -> bool {
    matches!(Place::of(path), Ok(Place::Stream))
}

/// Checks before the work whether a file can be made there. The file is removed at once, so that an
/// interrupted command leaves nothing.
pub(crate) fn check(path: &Path) -> Result<(), Failure> {
    let checked = Place::of(path).and_then(|place| match place {
        Place::File { target, .. } => fs::remove_file(new_beside(&target)?.1),
        // Opening a pipe would wait for its reader.
        Place::Stream => Ok(()),
    });
    checked.map_err(|error| Failure::about(path.display(), error))
}

/// Writes the content as a whole or not at all. An old file stays until the new one is written.
/// Only the owner can read a new file. A file that replaces another takes over its owner and mode.
pub(crate) fn write(path: &Path, content: &[u8]) -> Result<(), Failure> {
    let failed = |error| Failure::about(path.display(), error);
    let (target, replaced) = match Place::of(path).map_err(failed)? {
        Place::File { target, replaced } => (target, replaced),
        Place::Stream => {
            let file = OpenOptions::new().write(true).open(path);
            return file.and_then(|mut file| file.write_all(content)).map_err(failed);
        }
    };
    let (mut file, beside) = new_beside(&target).map_err(failed)?;
    replaced.iter().for_each(|before| inherit(&file, before));
    file.write_all(content).and_then(|()| fs::rename(&beside, &target)).map_err(|error| {
        // Only the first failure is told.
        let _ = fs::remove_file(&beside);
        failed(error)
    })
}

/// Gives a new file the owner and the mode of the file that it replaces. If the owner cannot be
/// kept, the mode is not kept either, because other users than before could read it.
fn inherit(file: &File, before: &Metadata) {
    if fchown(file, Some(before.uid()), Some(before.gid())).is_ok() {
        // If this fails, the file stays closed to others.
        let _ = file.set_permissions(Permissions::from_mode(before.mode() & 0o777));
    }
}

/// A new file in the same directory. It must not exist before, not even as a link, because others
/// may write there too.
fn new_beside(target: &Path) -> io::Result<(File, PathBuf)> {
    let mut names = (0..NAMES).map(|number| format!(".ramfold-{}-{number}", std::process::id()));
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let made = names.find_map(|name| {
        let path = target.with_file_name(name);
        match options.open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
            opened => Some(opened.map(|file| (file, path))),
        }
    });
    made.unwrap_or_else(|| Err(io::ErrorKind::AlreadyExists.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another user who may write to the directory could have made it, to redirect our bytes.
    #[test]
    fn what_has_the_name_of_the_new_file_is_neither_followed_nor_written() {
        let directory = std::env::temp_dir().join(format!("ramfold-beside-{}", std::process::id()));
        fs::create_dir(&directory).expect("a directory");
        let victim = directory.join("victim");
        fs::write(&victim, "precious").expect("room");
        let planted = directory.join(format!(".ramfold-{}-0", std::process::id()));
        std::os::unix::fs::symlink(&victim, planted).expect("a link");
        let target = directory.join("n".repeat(250));
        write(&target, b"content").expect("another name is free");
        assert_eq!(fs::read(&target).expect("written"), b"content");
        let kind = fs::symlink_metadata(&target).expect("there");
        assert!(kind.is_file() && kind.mode() & 0o777 == 0o600);
        assert_eq!(fs::read(&victim).expect("there"), b"precious");
        assert_eq!(fs::read_dir(&directory).expect("there").count(), 3, "nothing is left over");
        fs::remove_dir_all(&directory).expect("ours");
    }

    #[test]
    fn what_is_replaced_stays_for_whom_it_was() {
        let directory = std::env::temp_dir().join(format!("ramfold-mode-{}", std::process::id()));
        fs::create_dir(&directory).expect("a directory");
        let target = directory.join("dictionary");
        fs::write(&target, "before").expect("room");
        for mode in [0o644, 0o600, 0o440] {
            fs::set_permissions(&target, Permissions::from_mode(mode)).expect("ours");
            check(&target).expect("it can be replaced");
            write(&target, b"content").expect("room");
            assert_eq!(fs::metadata(&target).expect("there").mode() & 0o777, mode);
        }
        assert_eq!(fs::read_dir(&directory).expect("there").count(), 1, "nothing is left over");
        fs::remove_dir_all(&directory).expect("ours");
    }

    #[test]
    fn what_is_no_file_is_written_to_and_not_replaced() {
        let null = Path::new("/dev/null");
        assert!(is_stream(null) && !is_stream(Path::new("/nonexistent/file")));
        check(null).expect("a device");
        write(null, b"content").expect("a device");
        assert!(is_stream(null), "it is there still");
    }
}
