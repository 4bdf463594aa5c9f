//! What is mounted where, read from `/proc/self/mountinfo`.
//!
//! ```text
//!   36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
//!   id parent dev root point options [tags..] - type source options
//! ```
//!
//! Invariant: no mounted file system is asked, because a dead one would not answer. Locks: none.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    /// Its number, which no other mount has while it is mounted.
    pub id: u64,
    /// The number of the file system's device, as `stat` gives it for its files.
    pub device: (u32, u32),
    /// The directory that is mounted over.
    pub point: PathBuf,
    /// The file system's type, with its subtype.
    pub kind: String,
    /// What is mounted: a device's path, or any other text.
    pub source: PathBuf,
}

/// All mounts that this process sees. A mount on top of another comes after it. None if the system
/// does not tell.
pub fn all() -> Vec<Mounted> {
    told().unwrap_or_default()
}

/// This mount as it is now, wherever it was moved to and whatever is mounted over it.
///
/// # Errors
///
/// The system's, if it does not tell of mounts. That says nothing of this one.
pub fn again(mounted: &Mounted) -> io::Result<Option<Mounted>> {
    let is_it = |found: &Mounted| found.id == mounted.id && found.device == mounted.device;
    Ok(told()?.into_iter().find(is_it))
}

fn told() -> io::Result<Vec<Mounted>> {
    let text = fs::read("/proc/self/mountinfo")?;
    Ok(text.split(|&byte| byte == b'\n').filter_map(parse).collect())
}

/// The topmost mount at a path.
pub fn at(point: &Path) -> Option<Mounted> {
    all().into_iter().rfind(|mounted| mounted.point == point)
}

fn parse(line: &[u8]) -> Option<Mounted> {
    let mut fields = line.split(|&byte| byte == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let (major, minor) = std::str::from_utf8(fields.nth(1)?).ok()?.split_once(':')?;
    let device = (major.parse().ok()?, minor.parse().ok()?);
    let point = path(fields.nth(1)?);
    let mut after = fields.skip_while(|&field| field != b"-").skip(1);
    let kind = String::from_utf8_lossy(after.next()?).into_owned();
    Some(Mounted { id, device, point, kind, source: path(after.next()?) })
}

/// Reads a path, in which space, tab, newline and backslash are written as three octal digits.
fn path(field: &[u8]) -> PathBuf {
    let (mut bytes, mut rest) = (Vec::with_capacity(field.len()), field);
    while let [first, tail @ ..] = rest {
        match tail {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..] if *first == b'\\' => {
                bytes.push((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'));
                rest = tail;
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_with_and_without_tags() {
        let plain = "36 35 98:0 / /mnt rw - ext3 /dev/root rw";
        let tagged = r"37 35 0:43 / /a\040b\134c rw master:1 shared:2 - fuse.ramfold ramfold rw";
        let expected = |id, device, point: &str, kind: &str, source: &str| Mounted {
            id,
            device,
            point: point.into(),
            kind: kind.into(),
            source: source.into(),
        };
        assert_eq!(
            parse(plain.as_bytes()),
            Some(expected(36, (98, 0), "/mnt", "ext3", "/dev/root"))
        );
        let found = parse(tagged.as_bytes());
        assert_eq!(found, Some(expected(37, (0, 43), r"/a b\c", "fuse.ramfold", "ramfold")));
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"36 35 98:0 / /mnt rw"), None);
    }

    #[test]
    fn the_root_is_mounted() {
        assert!(at(Path::new("/")).is_some() || all().is_empty());
    }
}
