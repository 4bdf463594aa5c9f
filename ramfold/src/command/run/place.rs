//! Where the library and the board of a run lie, a directory of the run's own, and its pages: a
//! directory of the user's.
//!
//! ```text
//!   $XDG_RUNTIME_DIR/ramfold/run-PID/    or, if programs cannot be loaded from there,
//!   TMPDIR/ramfold-UID/run-PID/          or /dev/shm
//!       libramfold_inside.so
//!       board
//!       about      who started the run, and what
//! ```
//!
//! Invariant: the directory goes with the last process of the run. A run that was killed leaves it,
//! and the next `ramfold run` or `ramfold stat` removes it. Files for pages have no name, and go by
//! themselves.
//!
//! Locks: none.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use inside::board::{self, BACKING_LEN, Board};
use rustix::fs::{StatVfsMountFlags, statfs, statvfs};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::about::About;
use super::found::{self, BOARD, LIBRARY_NAME, PREFIX};
use crate::line::Failure;
use crate::line::size::count;

/// The library that was built with this command.
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libramfold_inside.so"));

const PRELOAD: &str = "LD_PRELOAD";

/// `TMPFS_MAGIC` of `linux/magic.h`.
const TMPFS: i64 = 0x0102_1994;

/// The directory of a run.
pub(super) struct Place {
    directory: PathBuf,
    library: PathBuf,
    board: PathBuf,
    about: About,
}

impl Place {
    /// Makes the directory of a run of these words, and writes the library.
    pub(super) fn prepare(words: &[OsString]) -> Result<Place, Failure> {
        if LIBRARY.is_empty() {
            let why = "this command was built for a machine on which programs cannot fold yet; \
                       64-bit Intel and AMD can";
            return Err(Failure::Failed(why.to_owned()));
        }
        if getrlimit(Resource::Fsize).current.is_some_and(|most| most < LIBRARY.len() as u64) {
            // The system would end this command, which writes more.
            let why =
                "files may not be as long as the library, which is written to one (ulimit -f)";
            return Err(Failure::Failed(why.to_owned()));
        }
        let mut refused = Vec::new();
        let about = About::new(words);
        for base in found::bases() {
            if let Err(error) = make(&base) {
                refused.push(format!("{}: {error}", base.display()));
                continue;
            }
            if !serve::runtime::is_private(&base) {
                refused.push(format!("{}: not a directory of this user alone", base.display()));
                continue;
            }
            match Place::within(&base, &about) {
                Ok(place) => return Ok(place),
                Err(why) => refused.push(format!("{}: {why}", base.display())),
            }
        }
        Err(Failure::Failed(format!("no place for the library: {}", refused.join("; "))))
    }

    fn within(base: &Path, about: &About) -> Result<Place, String> {
        let text = |error: io::Error| error.to_string();
        let flags = statvfs(base).map_err(|error| error.to_string())?.f_flag;
        if flags.contains(StatVfsMountFlags::NOEXEC) {
            return Err("nothing can be executed from there".to_owned());
        }
        found::remove_abandoned(base);
        let directory = base.join(format!("{PREFIX}{}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&directory).map_err(text)?;
        let (library, board) = (directory.join(LIBRARY_NAME), directory.join(BOARD));
        let place = Place { directory, library, board, about: about.clone() };
        place.about.write(&place.directory).map_err(text)?;
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

    /// Has the loader put the library into a program, before whatever else is preloaded. A run in
    /// another one takes its program out of that: two libraries in one process would wait for each
    /// other.
    pub(super) fn put_into(&self, program: &mut Command) {
        let others = std::env::var_os(PRELOAD).unwrap_or_default();
        let mut value = self.library.as_os_str().to_owned();
        for other in others_of(&others) {
            value.push(OsStr::new(":"));
            value.push(OsStr::from_bytes(other));
        }
        program.env(PRELOAD, value).env(board::VARIABLE, &self.board);
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
        if found::is_used(&self.directory) {
            let ended = About { ended: true, ..self.about.clone() };
            // If it cannot be written, the run is taken for one that was killed.
            let _ = ended.write(&self.directory);
        } else {
            let _ = fs::remove_dir_all(&self.directory);
        }
    }
}

/// What else is preloaded: the loader takes colons and spaces between names.
fn others_of(preloaded: &OsStr) -> impl Iterator<Item = &[u8]> {
    let is_ours = |name: &[u8]| Path::new(OsStr::from_bytes(name)).ends_with(LIBRARY_NAME);
    let names = preloaded.as_bytes().split(|byte| matches!(byte, b':' | b' '));
    names.filter(move |name| !name.is_empty() && !is_ours(name))
}

/// Makes a base that is missing. The runtime directory's parent may be missing too.
fn make(base: &Path) -> io::Result<()> {
    let is_runtime = base == serve::runtime::directory();
    match DirBuilder::new().recursive(is_runtime).mode(0o700).create(base) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// The directory for pages that was asked for.
pub(super) struct Backing {
    path: PathBuf,
}

impl Backing {
    /// A directory in which pages can be kept.
    pub(super) fn of(given: &Path) -> Result<Backing, Failure> {
        let refused =
            |why: String| Failure::Failed(format!("--backing {}: {why}", given.display()));
        // The program may change its directory.
        let path = given.canonicalize().map_err(|error| refused(error.to_string()))?;
        if !path.is_dir() {
            return Err(refused("not a directory".to_owned()));
        }
        if path.as_os_str().len() >= BACKING_LEN {
            let why = format!("its whole path is longer than {} bytes", BACKING_LEN - 1);
            return Err(refused(why));
        }
        inside::can_back(&path).map_err(|error| refused(why_not(&error)))?;
        Ok(Backing { path })
    }

    /// Why it saves nothing, if that is so.
    pub(super) fn warning(&self) -> Option<String> {
        let is_memory = statfs(&self.path).is_ok_and(|system| system.f_type == TMPFS);
        let given = self.path.display();
        is_memory.then(|| format!("--backing {given} is in memory (tmpfs), so pages there take it"))
    }

    /// Tells the processes of the run.
    pub(super) fn tell(&self, board: &Board) {
        // Its length was looked at.
        board.set_backing(&self.path);
    }

    /// What pages that do not fit become.
    pub(super) fn explain(&self) -> String {
        format!("pages that do not fit go to files without a name in {}", self.path.display())
    }

    /// What the disk refused, as a line.
    pub(super) fn refused(&self, pages: u64, errno: u64) -> Option<String> {
        let reason = io::Error::from_raw_os_error(i32::try_from(errno).unwrap_or(0));
        let reason = Errno::from_io_error(&reason).map_or_else(String::new, |_| reason.to_string());
        let times = count(pages, "page");
        let path = self.path.display();
        (pages > 0).then(|| format!("{path} refused {times}, which stayed in memory: {reason}"))
    }
}

fn why_not(error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        Some(Errno::OPNOTSUPP | Errno::ISDIR) => {
            "its file system has no files without a name (O_TMPFILE)".to_owned()
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_in_a_run_takes_the_other_library_out() {
        let others = |text: &str| {
            let all =
                others_of(OsStr::new(text)).map(|it| String::from_utf8_lossy(it).into_owned());
            all.collect::<Vec<_>>()
        };
        let ours = "/tmp/ramfold-0/run-7/libramfold_inside.so";
        assert_eq!(others(&format!("{ours}:/a.so {ours} /b.so")), ["/a.so", "/b.so"]);
        assert_eq!(others("/xlibramfold_inside.so"), ["/xlibramfold_inside.so"]);
        assert_eq!(others(""), [""; 0]);
    }

    #[test]
    fn what_is_refused_is_told_with_the_reason() {
        let backing = Backing { path: "/disk".into() };
        assert_eq!(backing.refused(0, 0), None);
        let line = backing.refused(7, 28).expect("a line");
        assert!(
            line.starts_with("/disk refused 7 pages, which stayed in memory: No space"),
            "{line}"
        );
    }

    #[test]
    fn a_directory_without_such_files_is_refused_in_words() {
        let proc = Backing::of(Path::new("/proc"));
        let Err(Failure::Failed(line)) = proc else { panic!("no files can be made there") };
        assert!(line.starts_with("--backing /proc: "), "{line}");
        assert!(why_not(&Errno::OPNOTSUPP.into()).contains("O_TMPFILE"));
        assert!(why_not(&Errno::ISDIR.into()).contains("O_TMPFILE"));
    }
}
