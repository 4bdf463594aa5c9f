//! `ramfold umount`: unmounts a disk, and waits until its server has given everything back.
//!
//! ```text
//!   server runs       unmounted; the server sees it and ends by itself
//!   server was killed unmounted; loop device, tree and place are removed here
//! ```
//!
//! Invariant: if the directory is in use, its users are named and nothing changes. What is removed
//! is of the disk that was judged, and never of one that has its name since.
//!
//! Locks: that of `place`, while what a killed server has left is removed.

use std::fmt::Display;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use disk::loops_over;
use serve::fuse::mounted_at;
use serve::runtime;

use super::place::{self, CONTROL, PIDFILE, Place, Record};
use super::target::{resolve, unmount};
use super::tools;
use super::way::Way;
use crate::line::Failure;
use crate::line::mounting::Umount;
use crate::line::output::patiently;

/// How long a server may take to end. It frees what is stored meanwhile.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it is looked whether it has ended.
const LOOK: Duration = Duration::from_millis(20);

pub(crate) fn umount(args: &Umount) -> Result<(), Failure> {
    let about = |why: &dyn Display| Failure::about(args.directory.display(), why);
    let directory = resolve(&args.directory).map_err(|error| about(&error))?;
    let place = place::over(&directory)
        .ok_or_else(|| about(&"no disk of ramfold mount is there that belongs to this user"))?;
    let Some(record) = place.record() else {
        let why = "it is being mounted or unmounted, or its server was killed meanwhile";
        return Err(Failure::about(place_of(&place), why));
    };
    if record.is_stopped() {
        let pid = record.pid;
        let why = format!("its server is stopped (SIGSTOP); kill -CONT {pid} and try again");
        return Err(Failure::about(directory.display(), why));
    }
    if is_ours(&place, &record, &directory) {
        unmount(&directory, record.way, false)
            .map_err(|stays| Failure::about(directory.display(), stays))?;
    }
    if patiently(|| wait_for_end(&record)) {
        return clear(&place, &record, &directory);
    }
    let (pid, said) = (record.pid, last_words(&place));
    let why = format!("unmounted, but its server (pid {pid}) has not ended{said}");
    Err(Failure::about(directory.display(), why))
}

fn place_of(place: &Place) -> String {
    place.tree().parent().unwrap_or(Path::new("")).display().to_string()
}

/// Whether what is mounted at the directory is the disk's.
fn is_ours(place: &Place, record: &Record, directory: &Path) -> bool {
    let Some(mounted) = mounted_at(directory) else { return false };
    let loops = || loops_over(&place.disk());
    let device = mounted.source.file_name().unwrap_or_default().to_string_lossy().into_owned();
    match record.way {
        // The tree of a killed server may be gone, but its loop device still has the path.
        Way::Loop => loops().contains(&device),
        Way::Fuse2fs => mounted.kind.starts_with("fuse") && mounted.source == place.disk(),
    }
}

/// Waits until the server has ended. False if it takes too long.
fn wait_for_end(record: &Record) -> bool {
    let until = Instant::now() + PATIENCE;
    while record.is_alive() && Instant::now() < until {
        thread::sleep(LOOK);
    }
    !record.is_alive()
}

/// The last line of the log of a server.
fn last_words(place: &Place) -> String {
    let text = fs::read_to_string(place.log()).unwrap_or_default();
    text.lines().next_back().map_or_else(String::new, |line| format!("; it says: {line}"))
}

/// Removes what a killed server has left. If it ended by itself, nothing is there, or a new disk of
/// the same name, which stays.
pub(super) fn clear(place: &Place, record: &Record, directory: &Path) -> Result<(), Failure> {
    let held = place.hold(record).map_err(|error| Failure::about(place_of(place), error))?;
    let Some(_held) = held else { return Ok(()) };
    for device in loops_over(&place.disk()) {
        tools::run("losetup", ["-d", &format!("/dev/{device}")])?;
    }
    if mounted_at(&place.tree()).is_some() {
        unmount(&place.tree(), record.way, true)
            .map_err(|stays| Failure::about(place.tree().display(), stays))?;
    }
    if record.made {
        // Something may be in it by now, which is not ours to remove.
        let _ = fs::remove_dir(directory);
    }
    let sockets = runtime::sockets(&runtime::directory(), &place.name());
    let controls = sockets.map(|(_, control)| control).into_iter().chain(place.noted(CONTROL));
    for control in controls {
        // A socket that cannot be removed is left for the next server of that name.
        let _ = runtime::clear_abandoned(&control);
    }
    if let Some(pidfile) = place.noted(PIDFILE) {
        let is_its =
            fs::read_to_string(&pidfile).is_ok_and(|it| it.trim() == record.pid.to_string());
        // It is no harm if it stays: its number is of nobody.
        let _ = is_its.then(|| fs::remove_file(&pidfile));
    }
    place.remove().map_err(|error| Failure::about(place_of(place), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another process may clear a place, and make it for a new disk, after this one has judged it.
    #[test]
    fn a_place_that_a_new_disk_has_taken_is_left_alone() {
        let (name, target) =
            (format!("test-taken-{}", std::process::id()), Path::new("/nonexistent/taken"));
        let new = Record::of_this_process(Way::Loop, false);
        let place = Place::make(&name, target, &new).unwrap().expect("the name is free");
        let judged = Record { started: new.started + 1, ..new.clone() };
        clear(&place, &judged, target).unwrap();
        assert_eq!(place.record(), Some(new.clone()));
        clear(&place, &new, target).unwrap();
        assert_eq!(place.record(), None, "the one that was judged goes");
    }
}
