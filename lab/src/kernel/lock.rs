//! The lock that keeps two labs apart, and what its holder has to give back: the holder does, or,
//! when it was killed outright, the next lab.
//!
//! ```text
//!   empty --take, note--> what to give back, of this boot --given back: clear--> empty
//!                               |
//!                               +-- holder killed; take: left() says what
//! ```
//!
//! Lock: an advisory one on the file, which goes with the process, however that ends. A child that
//! has not yet executed its program has the file too, for a moment. So the lock is given up by
//! a call of its own.

use serde_json::{Value, json};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

/// Where root alone makes files: what a note says is done as root.
const LOCK_FILE: &str = "/run/ramfold-lab.lock";
/// What a file of an earlier boot says is no longer so.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// Held as long as any clone is there.
#[derive(Clone)]
pub(super) struct Lock(Arc<Held>);

struct Held(File);

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

impl Lock {
    pub(super) fn take() -> Result<Lock, String> {
        Lock::of(Path::new(LOCK_FILE))
    }

    fn of(path: &Path) -> Result<Lock, String> {
        const OWNER_ONLY: u32 = 0o600;
        let cannot = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(OWNER_ONLY);
        let file = options.open(path).map_err(|error| cannot(&error))?;
        match file.try_lock() {
            Ok(()) => Ok(Lock(Arc::new(Held(file)))),
            Err(fs::TryLockError::WouldBlock) => Err("another lab is measuring it".into()),
            Err(error) => Err(cannot(&error)),
        }
    }

    fn file(&self) -> &File {
        &self.0.0
    }

    /// Says what is to be given back, in place of what was said before.
    pub(super) fn note(&self, held: &Value) -> io::Result<()> {
        let line = format!("{}\n", json!({ "boot": boot()?, "held": held }));
        // Whoever is killed between the two leaves a whole line, and rubbish after it.
        self.file().write_all_at(line.as_bytes(), 0)?;
        self.file().set_len(line.len() as u64)
    }

    pub(super) fn clear(&self) -> Result<(), String> {
        self.file().set_len(0).map_err(|error| format!("{LOCK_FILE}: {error}"))
    }

    /// What an earlier holder has not given back.
    pub(super) fn left(&self) -> Option<Value> {
        let mut text = vec![0; usize::try_from(self.file().metadata().ok()?.len()).ok()?];
        self.file().read_exact_at(&mut text, 0).ok()?;
        let line = text.split(|byte| *byte == b'\n').next()?;
        let mut note: Value = serde_json::from_slice(line).ok()?;
        (note["boot"] == boot().ok()?).then(|| note["held"].take())
    }
}

fn boot() -> io::Result<String> {
    Ok(fs::read_to_string(BOOT)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::{Cleanup, PrivateDirectory};

    #[test]
    fn what_is_noted_is_left_until_it_is_cleared() {
        let scratch = PrivateDirectory::new(&Cleanup::default()).unwrap();
        let path = scratch.path().join("lock");
        let lock = Lock::of(&path).unwrap();
        assert_eq!(lock.left(), None);
        lock.note(&json!({ "a long": "note, with much in it" })).unwrap();
        lock.note(&json!({ "zram": 0 })).unwrap();
        assert_eq!(Lock::of(&path).err().unwrap(), "another lab is measuring it");
        // As a child has it for as long as it has not executed its program.
        let with_a_child = lock.file().try_clone().unwrap();
        drop(lock);
        let next = Lock::of(&path).unwrap();
        assert_eq!(next.left(), Some(json!({ "zram": 0 })));
        next.clear().unwrap();
        assert_eq!(next.left(), None);
        drop(with_a_child);
    }

    #[test]
    fn rubbish_and_other_boots_are_nothing() {
        let scratch = PrivateDirectory::new(&Cleanup::default()).unwrap();
        let path = scratch.path().join("lock");
        let lock = Lock::of(&path).unwrap();
        let left = |text: &str| {
            fs::write(&path, text).unwrap();
            lock.left()
        };
        assert_eq!(left("{\"boot\": \"another\", \"held\": 1}\n"), None);
        assert_eq!(left("{\"boot\": "), None);
        let of_this = json!({ "boot": boot().unwrap(), "held": 1 });
        assert_eq!(left(&format!("{of_this}\n of the longer note before\n")), Some(json!(1)));
    }
}
