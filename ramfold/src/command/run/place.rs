//! Where the library and the board of a run lie: a directory of the run's own.
//!
//! ```text
//!   $XDG_RUNTIME_DIR/ramfold/run-PID/    or, if programs cannot be loaded from there,
//!   TMPDIR/ramfold-UID/run-PID/          or /dev/shm
//!       libramfold_inside.so
//!       board
//! ```
//!
//! Invariant: the directory goes with the run. A run that was killed leaves it, and the next run
//! removes it.
//!
//! Locks: none.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{StatVfsMountFlags, statvfs};

use inside::board::Board;

use super::tree;
use crate::line::Failure;

/// The library that was built with this command.
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libramfold_inside.so"));
const NAME: &str = "libramfold_inside.so";
const PREFIX: &str = "run-";
const BOARD: &str = "board";

/// The directory of a run.
pub(super) struct Place {
    directory: PathBuf,
    library: PathBuf,
    board: PathBuf,
}

impl Place {
    /// Makes the directory and writes the library.
    pub(super) fn prepare() -> Result<Place, Failure> {
        if LIBRARY.is_empty() {
            let why = "this command was built for a machine on which programs cannot fold yet; \
                       64-bit Intel and AMD can";
            return Err(Failure::Failed(why.to_owned()));
        }
        let mut refused = Vec::new();
        for base in bases() {
            match Place::within(&base) {
                Ok(place) => return Ok(place),
                Err(why) => refused.push(format!("{}: {why}", base.display())),
            }
        }
        Err(Failure::Failed(format!("no place for the library: {}", refused.join("; "))))
    }

    fn within(base: &Path) -> Result<Place, String> {
        let text = |error: io::Error| error.to_string();
        let flags = statvfs(base).map_err(|error| error.to_string())?.f_flag;
        if flags.contains(StatVfsMountFlags::NOEXEC) {
            return Err("nothing can be executed from there".to_owned());
        }
        remove_abandoned(base);
        let directory = base.join(format!("{PREFIX}{}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&directory).map_err(text)?;
        let place =
            Place { library: directory.join(NAME), board: directory.join(BOARD), directory };
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o500).open(&place.library);
        file.and_then(|mut file| file.write_all(LIBRARY)).map_err(text)?;
        // What was written is what programs get.
        match fs::read(&place.library) {
            Ok(written) if written == LIBRARY => Ok(place),
            Ok(_) => Err("what was written there is not what is read".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    pub(super) fn library(&self) -> &Path {
        &self.library
    }

    pub(super) fn board(&self) -> &Path {
        &self.board
    }
}

impl Drop for Place {
    /// Processes that outlive the program need the library when they execute others.
    fn drop(&mut self) {
        if !is_used(&self.directory) {
            let _ = fs::remove_dir_all(&self.directory);
        }
    }
}

/// Whether processes of a run still live.
fn is_used(directory: &Path) -> bool {
    let Ok(board) = Board::open(&directory.join(BOARD)) else { return false };
    let pids = board.slots().iter().map(|slot| slot.owner.pid()).filter(|&pid| pid != 0);
    pids.into_iter().any(|pid| !tree::has_ended(pid as u32))
}

/// Directories of this user, the best first.
fn bases() -> impl Iterator<Item = PathBuf> {
    let runtime = serve::runtime::prepare().ok();
    let uid = rustix::process::getuid().as_raw();
    let private = move |parent: PathBuf| {
        let path = parent.join(format!("ramfold-{uid}"));
        let _ = DirBuilder::new().mode(0o700).create(&path);
        serve::runtime::is_private(&path).then_some(path)
    };
    let others = [std::env::temp_dir(), PathBuf::from("/dev/shm"), PathBuf::from("/var/tmp")];
    runtime.into_iter().chain(others.into_iter().filter_map(private))
}

/// Removes directories of runs that were killed.
fn remove_abandoned(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse::<u32>().ok());
        let over = |pid| !Path::new(&format!("/proc/{pid}")).exists();
        if pid.is_some_and(over) && !is_used(&entry.path()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
