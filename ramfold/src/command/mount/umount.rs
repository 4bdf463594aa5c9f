//! `ramfold umount`: unmounts a disk, and waits until its server has given everything back.
//!
//! ```text
//!   server runs       unmounted; the server sees it and ends by itself
//!   server was killed unmounted; loop device, tree and place are removed here
//! ```
//!
//! Invariant: if the directory is in use, its users are named and it stays mounted. What is removed
//! is of the disk that was judged, and never of one that has its name since.
//!
//! Locks: that of `place`, while what a killed server has left is removed.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use disk::loops_over;
use serve::fuse::{Mounted, UnmountError, mounted_at, mounted_over, mounts};
use serve::runtime;

use super::place::{self, CONTROL, PIDFILE, Place, Record};
use super::target::{resolve, unmount};
use super::tools;
use super::users;
use super::way::Way;
use crate::line::Failure;
use crate::line::mounting::Umount;
use crate::line::output::patiently;

/// How long a server may take to end. It frees what is stored meanwhile.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it is looked whether it has ended.
const LOOK: Duration = Duration::from_millis(20);
/// How often it is looked whether other namespaces have the mount. A mount that spreads is gone
/// from there by then.
const ELSEWHERE: Duration = Duration::from_secs(2);

pub(crate) fn umount(args: &Umount) -> Result<(), Failure> {
    let about = |why: &dyn Display| Failure::about(args.directory.display(), why);
    let directory = resolve(&args.directory).map_err(|error| about(&error))?;
    let place = place::over(&directory)
        .ok_or_else(|| about(&"no disk of ramfold mount is there that belongs to this user"))?;
    let Some(record) = place.record() else {
        let why = "it is being mounted or unmounted, or its server was killed meanwhile, and the \
                   next ramfold mount of that name removes it";
        return Err(Failure::about(place_of(&place), why));
    };
    if record.is_stopped() {
        let pid = record.pid;
        let why = format!("its server is stopped (SIGSTOP); kill -CONT {pid} and try again");
        return Err(Failure::about(directory.display(), why));
    }
    let at = mounts_of(&place, &record);
    take_down(&place, &at, &record, &directory).map_err(|why| about(&why))?;
    let held = patiently(|| wait_for_end(&place, &record));
    if let Some(holder) = held {
        let why = format!("unmounted here, but {holder} has it in another mount namespace");
        return Err(about(&why));
    }
    if !record.is_alive() {
        return clear(&place, &record, Some(&directory));
    }
    let (pid, said) = (record.pid, last_words(&place));
    let why = format!("unmounted, but its server (pid {pid}) has not ended{said}");
    Err(Failure::about(directory.display(), why))
}

fn place_of(place: &Place) -> String {
    place.tree().parent().unwrap_or(Path::new("")).display().to_string()
}

/// Where this process sees the disk mounted.
fn mounts_of(place: &Place, record: &Record) -> Vec<Mounted> {
    let sources = sources(place, record);
    let mut all = mounts();
    all.retain(|it| sources.contains(&it.source));
    all
}

/// Unmounts the disk from the directory, if nothing covers it. If it is mounted nowhere, another
/// program was faster. A copy that spread from here has gone with it. A copy that stays has to be
/// unmounted too.
fn take_down(
    place: &Place,
    at: &[Mounted],
    record: &Record,
    directory: &Path,
) -> Result<(), String> {
    let Some(ours) = at.iter().find(|it| it.point == directory) else {
        return at.first().map_or(Ok(()), |other| {
            let other = other.point.display();
            Err(format!("it is mounted at {other} now; umount {other} ends it"))
        });
    };
    match mounted_over(ours) {
        Ok(Some(cover)) => return Err(UnmountError::Covered(cover).to_string()),
        Ok(None) => unmount(directory, record.way, false).map_err(|stays| stays.to_string())?,
        Err(error) => return Err(format!("the system does not tell of mounts: {error}")),
    }
    mounts_of(place, record).first().map_or(Ok(()), |other| {
        let other = other.point.display();
        Err(format!("unmounted here, but it is mounted at {other} too; umount {other} ends it"))
    })
}

/// What the disk is in lists of mounts. Nothing if its loop device is gone.
fn sources(place: &Place, record: &Record) -> Vec<PathBuf> {
    match record.way {
        Way::Loop => {
            loops_over(&place.disk()).iter().map(|it| Path::new("/dev").join(it)).collect()
        }
        Way::Fuse2fs => vec![place.disk()],
    }
}

/// Waits until the server has ended, or takes too long. Before that, a process may be found that
/// has the disk in another mount namespace: then the server cannot end.
fn wait_for_end(place: &Place, record: &Record) -> Option<String> {
    let begun = Instant::now();
    let mut look_elsewhere = begun + ELSEWHERE;
    while record.is_alive() && begun.elapsed() < PATIENCE {
        if Instant::now() > look_elsewhere {
            look_elsewhere += ELSEWHERE;
            if let Some(holder) = users::with_mount(&sources(place, record)) {
                return Some(holder);
            }
        }
        thread::sleep(LOOK);
    }
    None
}

/// The last line of the log of a server.
fn last_words(place: &Place) -> String {
    let text = fs::read_to_string(place.log()).unwrap_or_default();
    text.lines().next_back().map_or_else(String::new, |line| format!("; it says: {line}"))
}

/// Removes what a killed server has left. If it ended by itself, nothing is there, or a new disk of
/// the same name, which stays.
/// A directory that is given goes too, if it was made for the disk.
pub(super) fn clear(
    place: &Place,
    record: &Record,
    directory: Option<&Path>,
) -> Result<(), Failure> {
    let held = place.hold(record).map_err(|error| Failure::about(place_of(place), error))?;
    let Some(_held) = held else { return Ok(()) };
    for device in loops_over(&place.disk()) {
        tools::run("losetup", ["-d", &format!("/dev/{device}")])?;
    }
    if mounted_at(&place.tree()).is_some() {
        unmount(&place.tree(), record.way, true)
            .map_err(|stays| Failure::about(place.tree().display(), stays))?;
    }
    if let Some(made) = directory.filter(|_| record.made) {
        // Something may be in it by now, which is not ours to remove.
        let _ = fs::remove_dir(made);
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
        clear(&place, &judged, Some(target)).unwrap();
        assert_eq!(place.record(), Some(new.clone()));
        clear(&place, &new, Some(target)).unwrap();
        assert_eq!(place.record(), None, "the one that was judged goes");
    }
}
