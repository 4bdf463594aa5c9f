//! Where a mounted disk keeps what belongs to it, and what is known of it from outside.
//!
//! ```text
//!   /run/ramfold/mounts/NAME/     or, without the right to make it, in the runtime directory
//!       tree/        the mounted tree that `serve --fuse` has, with NAME/disk in it
//!       target       a link to the directory over which the file system is mounted
//!       record       the server: pid, start, how it mounts, whether it made the directory
//!       log          what a server in the background says
//!       pidfile      links to what the server has elsewhere, if it was asked for
//!       control
//! ```
//!
//! A process is known by its number and its start, because numbers are used again.
//!
//! Invariant: a place is its owner's alone, and goes with its disk. After a server that was killed,
//! `ramfold umount` removes it, and so does the next disk of the same name.
//!
//! Locks: [`Lock`], which other processes take too. It is on the directory `mounts`. A thread holds
//! it while it makes a place with its record, or removes a place. So what is taken apart is never
//! a new disk's, and a place without a record is that of a process which was killed meanwhile.

use std::fs::{self, DirBuilder, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::geteuid;
use serde_json::{Value, json};
use serve::fuse::mounted_at;
use serve::runtime::{self, SYSTEM};

use super::way::Way;
use crate::line::Failure;
use crate::line::output::patiently;

const MOUNTS: &str = "mounts";
/// Names of links to what a server has elsewhere.
pub(super) const PIDFILE: &str = "pidfile";
pub(super) const CONTROL: &str = "control";
/// How often it is tried to make a place.
const TRIES: u32 = 10;
/// For so long another process may take a place apart.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it is looked whether it still does.
const LOOK: Duration = Duration::from_millis(10);

/// The directory of one disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    folder: PathBuf,
}

/// What is known of a disk from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    /// The server's process, and its start in clock ticks.
    pub(super) pid: u32,
    pub(super) started: u64,
    pub(super) way: Way,
    /// Whether the directory was made for the mount.
    pub(super) made: bool,
}

fn is_busy<T>(outcome: &io::Result<T>) -> bool {
    outcome.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::ResourceBusy)
}

/// Makes a place after another disk of that directory has come or ended.
fn once_settled(
    target: &Path,
    try_make: impl Fn() -> Result<io::Result<Place>, Failure>,
) -> Result<io::Result<Place>, Failure> {
    let until = Instant::now() + PATIENCE;
    let mut outcome = try_make()?;
    while is_busy(&outcome) {
        let is_mounted = mounted_at(target).is_some();
        if is_mounted || Instant::now() > until {
            let why =
                if is_mounted { "is mounted there already" } else { "neither comes nor ends" };
            return Err(Failure::about(target.display(), format!("another disk {why}")));
        }
        thread::sleep(LOOK);
        outcome = try_make()?;
    }
    Ok(outcome)
}

impl Place {
    /// Its files, in the order in which they are removed. Without a record it is unfinished.
    const FILES: [&str; 5] = ["record", "target", "log", PIDFILE, CONTROL];

    /// Makes the place of a disk over `target`. `None` if the name is taken.
    pub(super) fn make(
        name: &str,
        target: &Path,
        record: &Record,
    ) -> Result<Option<Place>, Failure> {
        let try_make = || Place::try_make(name, target, record);
        let mut outcome = try_make()?;
        if is_busy(&outcome) {
            outcome = patiently(|| once_settled(target, try_make))?;
        }
        for _ in 1..TRIES {
            // The last disk that ended meanwhile has removed the directory above.
            if !outcome.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
                break;
            }
            outcome = try_make()?;
        }
        match outcome {
            Ok(place) => Ok(Some(place)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
            Err(error) => Err(Failure::about(base()?.join(name).display(), error)),
        }
    }

    fn try_make(name: &str, target: &Path, record: &Record) -> Result<io::Result<Place>, Failure> {
        let base = base()?;
        let place = Place { folder: base.join(name) };
        let make = |_lock| {
            if over(target).is_some_and(|other| other.is_served_here()) {
                return Err(io::ErrorKind::ResourceBusy.into());
            }
            if place.is_unfinished() {
                // If something else is in it, the name is taken. The directory above may be gone
                // with it, and then this is tried once more.
                place.remove().map_err(|_| io::ErrorKind::AlreadyExists)?;
            }
            DirBuilder::new().mode(0o700).create(&place.folder)?;
            place.write(target, record).inspect_err(|_| drop(place.remove()))
        };
        Ok(Lock::of(&base).and_then(make).map(|()| place))
    }

    /// Whether its server lives.
    fn is_served(&self) -> bool {
        self.record().is_some_and(|record| record.is_alive())
    }

    /// Whether its server lives, in this process's mount namespace as far as that is known.
    fn is_served_here(&self) -> bool {
        let space = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt"));
        let is_same = |pid: u32| match (space(&pid.to_string()), space("self")) {
            (Ok(other), Ok(own)) => other == own,
            _ => true,
        };
        self.record().is_some_and(|record| record.is_alive() && is_same(record.pid))
    }

    /// Whether a process was killed while it made this place or removed it. The lock is held.
    fn is_unfinished(&self) -> bool {
        let is_there = fs::symlink_metadata(&self.folder).is_ok();
        is_there && self.record().is_none() && mounted_at(&self.tree()).is_none()
    }

    /// Keeps others from making a place, if this one is still that of a disk that was judged.
    /// `None` if it is gone, or another disk has taken it.
    pub(super) fn hold(&self, judged: &Record) -> io::Result<Option<Lock>> {
        match Lock::of(self.folder.parent().unwrap_or(Path::new("/"))) {
            Ok(lock) => Ok((self.record().as_ref() == Some(judged)).then_some(lock)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The place of a name, whether there is one or not.
    pub(super) fn called(name: &str) -> Result<Place, Failure> {
        Ok(Place { folder: base()?.join(name) })
    }

    /// The name of the disk.
    pub(super) fn name(&self) -> String {
        self.folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    pub(super) fn tree(&self) -> PathBuf {
        self.folder.join("tree")
    }

    /// The disk as a file.
    pub(super) fn disk(&self) -> PathBuf {
        self.tree().join(self.name()).join("disk")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// The directory over which the file system is mounted.
    pub(super) fn target(&self) -> Option<PathBuf> {
        self.noted("target")
    }

    /// Notes where the server has a file elsewhere, under one of the names of such files.
    pub(super) fn note(&self, name: &str, path: &Path) -> io::Result<()> {
        symlink(std::path::absolute(path)?, self.folder.join(name))
    }

    /// Where that file is, if one was noted.
    pub(super) fn noted(&self, name: &str) -> Option<PathBuf> {
        fs::read_link(self.folder.join(name)).ok()
    }

    /// Notes what is known of the disk.
    fn write(&self, target: &Path, record: &Record) -> io::Result<()> {
        let text = json!({
            "pid": record.pid,
            "started": record.started,
            "way": record.way.name(),
            "made": record.made,
        });
        symlink(target, self.folder.join("target"))?;
        fs::write(self.folder.join("record"), format!("{text}\n"))
    }

    /// What is known of the disk. `None` if its server was killed while it noted it.
    pub(super) fn record(&self) -> Option<Record> {
        let text = fs::read_to_string(self.folder.join("record")).ok()?;
        let value: Value = serde_json::from_str(&text).ok()?;
        Some(Record {
            pid: value["pid"].as_u64()?.try_into().ok()?,
            started: value["started"].as_u64()?,
            way: Way::from_name(value["way"].as_str()?)?,
            made: value["made"].as_bool()?,
        })
    }

    /// Removes the place of this process.
    pub(super) fn leave(&self) -> io::Result<()> {
        let _lock = Lock::of(self.folder.parent().unwrap_or(Path::new("/")))?;
        self.remove()
    }

    /// Removes the place. The lock is held. If something is still mounted over the tree, the place
    /// stays as it is.
    pub(super) fn remove(&self) -> io::Result<()> {
        match fs::remove_dir(self.tree()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        for file in Place::FILES {
            // A place that is not complete has not all of them.
            let _ = fs::remove_file(self.folder.join(file));
        }
        fs::remove_dir(&self.folder)?;
        // The directory above goes with the last place. Then only this one fails.
        let above = self.folder.parent().map(fs::remove_dir);
        if above.is_some_and(|gone| gone.is_ok()) && self.folder.starts_with(SYSTEM) {
            let _ = fs::remove_dir(SYSTEM);
        }
        Ok(())
    }

    /// Opens the log of a server in the background.
    pub(super) fn open_log(&self) -> io::Result<fs::File> {
        OpenOptions::new().append(true).create(true).mode(0o600).open(self.log())
    }
}

/// The lock on the directory of all places. While it is held, no place is made.
#[derive(Debug)]
pub(super) struct Lock {
    _directory: fs::File,
}

impl Lock {
    fn of(base: &Path) -> io::Result<Lock> {
        let until = Instant::now() + PATIENCE;
        loop {
            let directory = fs::File::open(base)?;
            match directory.try_lock() {
                // The last place takes the directory with it, and the next one makes another.
                Ok(()) if is_at(&directory, base)? => return Ok(Lock { _directory: directory }),
                Err(TryLockError::Error(error)) => return Err(error),
                _ if Instant::now() < until => thread::sleep(LOOK),
                _ => {
                    let why = format!("another process keeps {} locked", base.display());
                    return Err(io::Error::new(io::ErrorKind::TimedOut, why));
                }
            }
        }
    }
}

/// Whether a directory that is open is the one at a path.
fn is_at(directory: &fs::File, path: &Path) -> io::Result<bool> {
    let (open, found) = (directory.metadata()?, fs::metadata(path)?);
    Ok((open.dev(), open.ino()) == (found.dev(), found.ino()))
}

impl Record {
    /// What is known at the start: this process is the server.
    pub(super) fn of_this_process(way: Way, made: bool) -> Record {
        let pid = std::process::id();
        Record { pid, started: start_of(pid).unwrap_or(0), way, made }
    }

    /// Whether the server runs.
    pub(super) fn is_alive(&self) -> bool {
        start_of(self.pid) == Some(self.started)
    }

    /// Whether the server is stopped by a signal or a debugger. It answers no request then.
    pub(super) fn is_stopped(&self) -> bool {
        self.is_alive() && matches!(state_of(self.pid), Some('T' | 't'))
    }
}

/// The place of this user whose disk is mounted over a directory. Servers that were killed may have
/// left others, so one that lives comes first.
pub(super) fn over(target: &Path) -> Option<Place> {
    let bases = [Path::new(SYSTEM).join(MOUNTS), runtime::directory().join(MOUNTS)];
    let private = bases.iter().filter(|base| runtime::is_private(base));
    let entries = private.flat_map(|base| fs::read_dir(base).into_iter().flatten().flatten());
    let places = entries.map(|entry| Place { folder: entry.path() });
    let places = places.filter(|place| place.target().as_deref() == Some(target));
    places.min_by_key(|place| !place.is_served())
}

/// The directory of all places, which is made. Root has one that outlives a login.
fn base() -> Result<PathBuf, Failure> {
    let make = |base: &Path| {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(base);
        made.is_ok() && runtime::is_private(base)
    };
    let system = Path::new(SYSTEM).join(MOUNTS);
    if geteuid().is_root() && make(&system) {
        return Ok(system);
    }
    let own = runtime::prepare()?.join(MOUNTS);
    match make(&own) {
        true => Ok(own),
        false => Err(Failure::about(own.display(), "it cannot be made, or is open to others")),
    }
}

/// The fields of `/proc/PID/stat` after the name, which may have any character in it.
fn fields_of(pid: u32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit_once(") ")?.1.split_ascii_whitespace().map(str::to_owned).collect())
}

fn state_of(pid: u32) -> Option<char> {
    fields_of(pid)?.first()?.chars().next()
}

/// The start of a process. `None` if it has ended, even if its parent has not waited for it yet.
fn start_of(pid: u32) -> Option<u64> {
    /// Field 22 of all, counted from the state, which is the third.
    const START: usize = 19;
    let fields = fields_of(pid)?;
    let ended = matches!(fields.first().map(String::as_str), Some("Z" | "X"));
    fields.get(START).filter(|_| !ended)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_place_tells_what_was_noted_until_it_is_removed() {
        let name = format!("test-{}", std::process::id());
        let target = Path::new("/nonexistent/a b");
        let record = Record::of_this_process(Way::Fuse2fs, true);
        let make = |target| Place::make(&name, target, &record).unwrap();
        let place = make(target).expect("the name is free");
        assert_eq!(make(Path::new("/nonexistent/other")), None, "now it is taken");
        let busy = Place::try_make("another", target, &record).unwrap();
        assert_eq!(busy.map_err(|error| error.kind()), Err(io::ErrorKind::ResourceBusy));
        assert_eq!((place.record(), place.name()), (Some(record.clone()), name.clone()));
        assert_eq!(over(target), Some(place.clone()));
        assert!(record.is_alive() && !record.is_stopped());
        let other = Record { started: record.started + 1, ..record.clone() };
        assert!(!other.is_alive(), "the number again");
        place.leave().unwrap();
        assert_eq!((over(target), place.record()), (None, None));
    }

    /// The name of such a place was once taken for ever.
    #[test]
    fn a_place_of_a_process_that_was_killed_meanwhile_is_made_anew() {
        let name = format!("test-unfinished-{}", std::process::id());
        let (target, record) =
            (Path::new("/nonexistent/unfinished"), Record::of_this_process(Way::Loop, false));
        let make = || Place::make(&name, target, &record).unwrap();
        let place = make().expect("the name is free");
        for removed in 1..Place::FILES.len() {
            let left = &Place::FILES[..removed];
            // Not every disk has all of them.
            left.iter().for_each(|file| drop(fs::remove_file(place.folder.join(file))));
            fs::create_dir(place.tree()).unwrap();
            assert_eq!(make(), Some(place.clone()), "{left:?}");
            assert_eq!(place.record(), Some(record.clone()));
        }
        place.leave().unwrap();
    }

    #[test]
    fn no_place_is_made_while_one_is_taken_apart() {
        let [dead, next] = ["dead", "next"].map(|it| format!("test-{it}-{}", std::process::id()));
        let record = Record::of_this_process(Way::Loop, false);
        let make = |name: &String| {
            let target = Path::new("/nonexistent").join(name);
            Place::make(name, &target, &record).unwrap().expect("the name is free")
        };
        let place = make(&dead);
        let lock = place.hold(&record).unwrap().expect("it is the one");
        let is_free = AtomicBool::new(false);
        thread::scope(|scope| {
            let making = scope.spawn(|| {
                let made = make(&next);
                assert!(is_free.load(Ordering::SeqCst), "it was made before");
                made
            });
            // Long enough for a thread that does not wait.
            thread::sleep(Duration::from_millis(50));
            is_free.store(true, Ordering::SeqCst);
            drop(lock);
            making.join().unwrap().leave().unwrap();
        });
        place.leave().unwrap();
        assert!(place.hold(&record).unwrap().is_none(), "it is gone");
    }
}
