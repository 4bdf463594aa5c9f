//! `ramfold mount`: a file system on a compressed disk, by one command; `ramfold umount` ends it.
//!
//! ```text
//!   ramfold mount DIR                 a server in the background, and the command returns
//!   ramfold mount --foreground DIR    this process serves until a signal
//!   ramfold mount DIR -- COMMAND      until COMMAND has ended, with its exit status
//!
//!   place -> server with its tree -> file system -> DIR        `stack`, by one `way` of two
//! ```
//!
//! Invariant: each step is undone if a later one fails. A directory in use stays mounted, and its
//! users are named. Locks: none.

mod place;
mod server;
mod stack;
mod target;
mod tools;
mod umount;
mod users;
mod way;

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::rc::Rc;

use clap::Parser;
use serve::control;

use super::run::program::{End, Program};
use super::serve::{Hints, Upper};
use crate::line::Failure;
use crate::line::args::{Command, Line, Serve};
use crate::line::mounting::Mount;
use crate::line::output::mention;
use crate::line::size::human;
use place::{Place, Record};
use server::{MOUNTED, SPACE, Server, Standing};
use stack::Stack;
use target::Target;
use way::Way;

pub(super) use umount::umount;

/// The name of a disk whose directory has none, as `/` has.
const NAMELESS: &str = "disk";
/// The most bytes of a name that is made up.
const NAME_MAX: usize = 40;

/// Mounts a disk.
pub(super) fn run(args: &Mount) -> Result<(), Failure> {
    match Standing::told() {
        Some(standing) => {
            server::leave_session();
            serve(args, standing)
        }
        None if args.foreground => serve(args, Standing::Foreground),
        None if args.command.is_empty() => Server::start(Standing::Background).map(drop),
        None if Way::needs_space() && std::env::var_os(SPACE).is_none() => run_in_space(),
        None => run_with(args),
    }
}

/// Runs the command while the disk is mounted, and ends as it ends.
fn run_with(args: &Mount) -> Result<(), Failure> {
    let server = Server::start(Standing::Tied)?;
    let outcome = Program::start(&args.command, |command| {
        command.env_remove(SPACE);
    });
    let outcome = outcome.and_then(Program::wait);
    server.end();
    outcome?.leave()
}

/// Runs this command once more as root of a namespace, where it may mount. The mounts are seen
/// there and nowhere else.
fn run_in_space() -> Result<(), Failure> {
    let directory = std::env::temp_dir().join(format!("ramfold-mount-{}", std::process::id()));
    let failed = |error| Failure::about(directory.display(), error);
    DirBuilder::new().mode(0o700).create(&directory).map_err(failed)?;
    let outcome = enter_space(&directory);
    // Everything in it is ours, and was unmounted with the namespace.
    let _ = fs::remove_dir_all(&directory);
    outcome?.leave()
}

fn enter_space(directory: &Path) -> Result<End, Failure> {
    let unshare = tools::command("unshare")?.get_program().to_owned();
    let program = std::env::current_exe().map_err(|error| Failure::about("ramfold", error))?;
    let how = ["--user", "--map-root-user", "--mount", "--"].map(Into::into);
    let words = [unshare].into_iter().chain(how).chain([program.into_os_string()]);
    let words: Vec<_> = words.chain(std::env::args_os().skip(1)).collect();
    let program = Program::start(&words, |command| {
        command.env(SPACE, directory);
    })?;
    program.wait()
}

/// Serves the disk until it is unmounted.
fn serve(args: &Mount, standing: Standing) -> Result<(), Failure> {
    let way = Way::choose(args.fs)?;
    let target = Target::judge(&args.directory)?;
    let bytes = serve_at(args, standing, way, &target)?;
    if standing == Standing::Foreground && !args.disk.quiet {
        let at = target.directory.display();
        mention(&format!("{at}: unmounted; what it stored ({}) is gone", human(bytes)));
    }
    Ok(())
}

fn serve_at(args: &Mount, standing: Standing, way: Way, target: &Target) -> Result<u64, Failure> {
    let record = Record::of_this_process(way, target.made);
    let place = take_place(args, &target.directory, &record)?;
    let served = target.make().and_then(|()| {
        let noted = note_files(args, &target.directory, &place);
        let served = noted.and_then(|()| serve_in(args, standing, way, target, &place));
        target.undo();
        served
    });
    // The last step, by which others see the end. If something of it is still mounted, the place
    // stays, and `ramfold umount` says what.
    let _ = place.leave();
    served
}

/// Notes what the server will have elsewhere. `umount` removes that if the server is killed.
fn note_files(args: &Mount, directory: &Path, place: &Place) -> Result<(), Failure> {
    let files = [(place::PIDFILE, &args.disk.pidfile), (place::CONTROL, &args.disk.control)];
    for (name, path) in files {
        let Some(path) = path else { continue };
        if is_within(path, directory) {
            let (path, at) = (path.display(), directory.display());
            let hidden = format!("--{name} {path}: the disk that is mounted at {at} would hide it");
            return Err(Failure::Usage(hidden));
        }
        place.note(name, path).map_err(|error| Failure::about(format!("--{name}"), error))?;
    }
    Ok(())
}

/// Whether a file that may not exist yet is in a directory or below it.
fn is_within(path: &Path, directory: &Path) -> bool {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    fs::canonicalize(parent.unwrap_or(Path::new("."))).is_ok_and(|it| it.starts_with(directory))
}

fn serve_in(
    args: &Mount,
    standing: Standing,
    way: Way,
    target: &Target,
    place: &Place,
) -> Result<u64, Failure> {
    let stack = Rc::new(Stack::new(args, way, &target.directory));
    let line = announcement(args, way, target, place);
    let (ending, disk, at) = (Rc::clone(&stack), place.disk(), target.directory.clone());
    let place_of_log = place.clone();
    let begin = move |_: &Path, hints: Hints| {
        if standing == Standing::Tied {
            let hints = hints.clone();
            let tied = move || {
                server::wait_for_caller();
                hints.abandoned();
            };
            let watching = host::thread::spawn("caller", tied);
            watching.map_err(|error| Failure::about("cannot start a thread", error))?;
        }
        stack.begin(&disk, hints)?;
        mention(&line);
        match standing {
            Standing::Foreground => Ok(()),
            _ => server::let_go(standing, &place_of_log).inspect_err(|_| {
                // The first failure is told. Nobody uses the disk yet, or loses it.
                if stack.end(false).is_err() {
                    let _ = stack.end(true);
                }
            }),
        }
    };
    let end =
        move |lazily| ending.end(lazily).map_err(|stays| format!("{}: {stays}", at.display()));
    let upper = Upper { begin: Box::new(begin), end: Box::new(end) };
    super::serve::run_below(&serve_args(args, place)?, &upper)
}

/// The line that is printed when the disk is mounted.
fn announcement(args: &Mount, way: Way, target: &Target, place: &Place) -> String {
    if args.disk.quiet {
        return MOUNTED.to_owned();
    }
    let by = match way {
        Way::Loop => "",
        Way::Fuse2fs => " by fuse2fs",
    };
    let (at, size, fs) = (target.directory.display(), human(args.size), args.fs.name());
    let name = place.name();
    format!(
        "{at}: {size} of {fs}{by}, compressed in memory; ramfold stat {name} shows what it takes"
    )
}

/// What `ramfold serve` would be given for this disk.
fn serve_args(args: &Mount, place: &Place) -> Result<Serve, Failure> {
    let words = args.serve_words(&place.name(), &place.tree());
    match Line::try_parse_from(words).map(|line| line.command) {
        Ok(Command::Serve(serve)) => Ok(*serve),
        Ok(_) => Err(Failure::Usage("a disk is served by ramfold serve".to_owned())),
        Err(error) => Err(Failure::Usage(error.to_string().replace('\n', " "))),
    }
}

/// Takes a place for the disk, under the name that was given or that of its directory.
fn take_place(args: &Mount, directory: &Path, record: &Record) -> Result<Place, Failure> {
    let place_called = |name: &str| place_called(name, directory, record);
    if let Some(name) = &args.disk.name {
        return place_called(name)?.ok_or_else(|| {
            Failure::about(format!("--name {name}"), "another mounted disk has this name")
        });
    }
    let name = name_of(directory);
    let is_served = control::list().iter().any(|running| running.name == name);
    if let Some(place) = (!is_served).then(|| place_called(&name)).transpose()?.flatten() {
        return Ok(place);
    }
    let name = format!("{name}-{}", std::process::id());
    place_called(&name)?.ok_or_else(|| Failure::about(name, "another mounted disk has this name"))
}

/// Makes the place of a name. One that a killed server has left is replaced.
fn place_called(name: &str, directory: &Path, new: &Record) -> Result<Option<Place>, Failure> {
    let make = || Place::make(name, directory, new);
    if let Some(place) = make()? {
        return Ok(Some(place));
    }
    let old = Place::called(name)?;
    let (Some(record), Some(target)) = (old.record(), old.target()) else { return Ok(None) };
    if record.is_alive() || serve::fuse::mounted_at(&target).is_some() {
        return Ok(None);
    }
    // The directory that was judged a moment ago stays, also if it was made for the old disk.
    umount::clear(&old, &record, Some(&*target).filter(|it| *it != directory))?;
    make()
}

/// A name for the disk of a directory: its last part, with nothing that a name may not have.
fn name_of(directory: &Path) -> String {
    let last = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_+".contains(c) { c } else { '-' };
    let name: String = last.chars().map(plain).take(NAME_MAX).collect();
    let name = name.trim_start_matches('-');
    let taken = ["", "zram-control", "buddyinfo", "pagetypeinfo"].contains(&name);
    if taken { NAMELESS.to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_called_as_its_directory_where_that_is_a_name() {
        let rows = [
            ("/mnt/build", "build"),
            ("/", "disk"),
            ("/mnt/a b", "a-b"),
            ("/mnt/.cache", "cache"),
            ("/mnt/x.sock", "x-sock"),
            ("/mnt/zram-control", "disk"),
        ];
        for (directory, name) in rows {
            assert_eq!(name_of(Path::new(directory)), name);
        }
    }
}
