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
    /// The number of the mount on which its directory is.
    pub parent: u64,
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

/// The mount to which the path of this one leads instead: one over it, or over a directory above
/// it. None if the path leads to this one.
///
/// # Errors
///
/// The system's, if it does not tell of mounts.
pub fn cover(mounted: &Mounted) -> io::Result<Option<Mounted>> {
    Ok(cover_among(&told()?, mounted))
}

fn cover_among(all: &[Mounted], mounted: &Mounted) -> Option<Mounted> {
    let on = |id: u64| all.iter().filter(move |other| other.parent == id && other.id != id);
    let over = on(mounted.id).find(|other| other.point == mounted.point);
    let (mut found, mut lower) = (over, mounted);
    // A path that leads to `lower` passes its parent. A mount there at a shorter path comes first.
    // Each step goes up, and a list that is read while it changes ends all the same.
    for _ in 0..all.len() {
        let shorter =
            |other: &&Mounted| other.point != lower.point && lower.point.starts_with(&other.point);
        found = on(lower.parent).find(shorter).or(found);
        match all.iter().find(|other| other.id == lower.parent && other.id != lower.id) {
            Some(parent) => lower = parent,
            None => break,
        }
    }
    found.cloned()
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
    let parent = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let (major, minor) = std::str::from_utf8(fields.next()?).ok()?.split_once(':')?;
    let device = (major.parse().ok()?, minor.parse().ok()?);
    let point = path(fields.nth(1)?);
    let mut after = fields.skip_while(|&field| field != b"-").skip(1);
    let kind = String::from_utf8_lossy(after.next()?).into_owned();
    Some(Mounted { id, parent, device, point, kind, source: path(after.next()?) })
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
            parent: 35,
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
    fn what_a_path_leads_to_instead_is_found() {
        let at = |id, parent, point: &str| Mounted {
            id,
            parent,
            device: (0, 7),
            point: point.into(),
            kind: "tmpfs".into(),
            source: "none".into(),
        };
        let found = |all: &[Mounted], of: usize| cover_among(all, &all[of]).map(|cover| cover.id);
        let plain = [at(1, 0, "/"), at(2, 1, "/a"), at(3, 2, "/a/b"), at(4, 3, "/a/b/c")];
        for of in 0..plain.len() {
            assert_eq!(found(&plain, of), None, "what is in a directory of it covers nothing");
        }
        let stacked = [at(1, 0, "/"), at(2, 1, "/a"), at(3, 2, "/a"), at(4, 1, "/ab")];
        assert_eq!([0, 1, 2, 3].map(|of| found(&stacked, of)), [None, Some(3), None, None]);
        // The mount over /a hides what is below it. What is on it is not hidden by what is below.
        let above =
            [at(1, 0, "/"), at(2, 1, "/a/b"), at(3, 1, "/a"), at(4, 3, "/a/b"), at(5, 4, "/a/b")];
        assert_eq!([1, 2, 3, 4].map(|of| found(&above, of)), [Some(3), None, Some(5), None]);
        let looped = [at(1, 2, "/"), at(2, 1, "/")];
        assert_eq!(found(&looped, 0), Some(2), "a list that makes no sense ends");
    }

    #[test]
    fn the_root_is_mounted() {
        assert!(at(Path::new("/")).is_some() || all().is_empty());
    }
}
