//! `ramfold serve`: makes a device, opens the doors to it, and ends them.
//!
//! ```text
//!   signals watched -> devices -> NBD, vhost-user, ublk -> control -> mount -> "serving .."
//!                                                                                    |
//!   exit <- ".. are gone" <- control socket, the doors stopped <- unmounted <----- signal
//! ```
//!
//! Invariant: signals are watched before there is a socket. So a signal that comes early does not
//! leave one behind. [`ending`] says when a server ends, and what further signals do.
//!
//! Locks: those of `ending` and of the board in `watch`.

mod answers;
mod blocks;
mod captive;
mod devices;
mod document;
mod doors;
mod ending;
mod machines;
mod monitoring;
mod page_types;
mod pidfile;
mod watch;

use std::path::Path;
use std::sync::Arc;

use serve::control::Handler;
use serve::fuse::Fuse;
use serve::notify::{Beats, Manager};
use serve::{PassedSockets, Server, ServerConfig, shell};
use zram::{Device, Devices, Opened};

use crate::line::Failure;
use crate::line::args;
use crate::line::size::{count, human};
use answers::{Answers, Open, Seen};
use blocks::Blocks;
use captive::Captive;
use doors::Doors;
use ending::Ending;
pub(super) use ending::{Hints, Upper};
use machines::Machines;
use watch::{Log, Relief, Watch};

/// Serves until SIGINT, SIGTERM or SIGHUP, or until the mount is gone and there is no other door.
pub(super) fn run(args: &args::Serve) -> Result<(), Failure> {
    // Called before there are threads. If it fails, the heap only keeps more freed memory.
    let _ = host::bound_heap();
    // So are these, because they change the environment.
    let (passed, manager) = (PassedSockets::take()?, take_manager()?);
    if args.exit_with_parent {
        pidfile::follow_parent()?;
    }
    let is_guest = !passed.nbd.is_empty() || args.run.is_some();
    let log = Log::start(args, is_guest)?;
    let outcome = serve(args, Around { passed, manager, upper: None }, &log);
    log.finish();
    match outcome?.code {
        0 => Ok(()),
        code => Err(Failure::Ended(code)),
    }
}

/// The same with something that stands on the mount: until that is gone. It gives the number of
/// stored bytes that went with it.
pub(super) fn run_below(args: &args::Serve, upper: &Upper) -> Result<u64, Failure> {
    // Called before there are threads. If it fails, the heap only keeps more freed memory.
    let _ = host::bound_heap();
    let (passed, manager) = (PassedSockets::default(), take_manager()?);
    let log = Log::start(args, false)?;
    let outcome = serve(args, Around { passed, manager, upper: Some(upper) }, &log);
    log.finish();
    outcome.map(|ended| ended.bytes)
}

/// How a server ended.
struct Ended {
    /// Stored bytes that went with it.
    bytes: u64,
    /// The exit status of the command of `--run`; 0 without one.
    code: i32,
}

/// What a server finds around it.
struct Around<'a> {
    /// Sockets that were passed.
    passed: PassedSockets,
    /// The service manager that is told how the server is.
    manager: Option<Manager>,
    /// What stands on the mount.
    upper: Option<&'a Upper>,
}

fn serve(args: &args::Serve, around: Around<'_>, log: &Log) -> Result<Ended, Failure> {
    let ending = Ending::watch(log)?;
    let outcome = serve_until(args, around, &ending, log);
    // Whatever went wrong, nothing is left behind.
    ending.clean_up();
    outcome
}

fn serve_until(
    args: &args::Serve,
    Around { passed, manager, upper }: Around<'_>,
    ending: &Ending,
    log: &Log,
) -> Result<Ended, Failure> {
    let watch = Watch::start(log, Relief::new(host::Pressure::find()))?;
    let default = default_export(args)?;
    let private = args.run.as_ref().map(|_| captive::private_socket(ending)).transpose()?;
    let doors = Doors::choose(args, passed, private, log)?;
    let (devices, device) = make_devices(args, log)?;
    let start = || {
        let config = doors.config(args, default, watch.observer(), log)?;
        Nbd::start(&devices, &device, config)
    };
    let nbd = doors.nbd.then(start).transpose()?;
    let server = nbd.as_ref().map(|nbd| &nbd.server);
    server.map(Arc::clone).into_iter().for_each(|server| ending.at_last(move || server.shut()));
    let machines = Machines::start(args, &devices, &watch.observer())?;
    machines.shut_at_last(ending);
    let blocks = Blocks::start(args, &devices, &watch.observer())?;
    let mount = |directory| doors::mount(directory, args.fuse_io_uring, &devices, log);
    let tree = args.fuse.as_deref().map(mount).transpose()?;
    tree.iter().for_each(|tree| ending.unmount_at_last(tree));
    let seen = Seen { board: watch.board(), relieved: watch.relieved() };
    let open = Open { server: server.cloned(), tree: tree.clone(), machines, blocks };
    let answers = Arc::new(Answers::new(Arc::clone(&devices), open.clone(), seen));
    let asked = Arc::clone(&answers);
    let handler: Arc<Handler> = Arc::new(move |request| asked.answer(request));
    let (control, target) = doors.open_control(&handler, &watch.observer(), log)?;
    let metrics = monitoring::start(args, &handler, watch.observer(), log)?;
    metrics.clone().into_iter().for_each(|metrics| ending.at_last(move || metrics.shut()));
    let control = control.map(Arc::new);
    control.clone().into_iter().for_each(|control| ending.at_last(move || control.shut()));
    tree.as_ref().map(|tree| ending.watch_mount(tree)).transpose()?;
    watch.devices(&devices, &target);
    args.pidfile.as_deref().map(|path| pidfile::write(path, ending)).transpose()?;
    let upper = upper.zip(tree.as_deref());
    let built = upper.map_or(Ok(()), |(upper, tree)| ending.build(upper, tree));
    if built.is_ok() {
        announce(args, &devices, server, tree.as_deref(), log);
        open.machines.announce(log);
        open.blocks.announce(log);
    }
    let beats = manager.as_ref().filter(|_| built.is_ok());
    let beats = beats.and_then(|manager| tell(manager, answers, log));
    let captive = args.run.as_deref().map(|command| {
        let uris = server.map(|server| server.uris()).unwrap_or_default();
        Captive::start(command, &doors.variables(&uris, default), ending)
    });
    let captive = captive.transpose()?;
    let (in_use, told) = wait(ending, upper, built.is_ok(), &open);
    drop(beats);
    // The server ends whether the manager listens or not.
    let _ = manager.map(|manager| manager.stopping());
    let code = captive.map_or(Ok(0), |captive| captive.end(told));
    open.blocks.stop(log);
    nbd.iter().for_each(|nbd| nbd.server.stop());
    open.machines.stop(log);
    control.iter().for_each(|control| control.stop());
    metrics.iter().for_each(|metrics| metrics.stop());
    tree.iter().filter(|_| !in_use).for_each(|tree| ending.wait_until_closed(tree));
    let bytes = stored_bytes(&devices);
    log.mention(farewell(&args.name, bytes));
    built?;
    Ok(Ended { bytes, code: code? })
}

/// Waits until the server is to end. Gives whether what stands on the mount is still in use, and
/// whether a signal ended a server without a mount.
fn wait(
    ending: &Ending,
    upper: Option<(&Upper, &Fuse)>,
    is_built: bool,
    open: &Open,
) -> (bool, bool) {
    match upper {
        Some((upper, tree)) => {
            let in_use = is_built && !ending.wait_for(upper);
            ending.leave(tree);
            (in_use, false)
        }
        None if !open.blocks.is_empty() => (false, ending.wait_for_blocks(&open.blocks)),
        None => {
            let others = open.server.is_some() || !open.machines.is_empty();
            (false, ending.wait(open.tree.as_deref(), others))
        }
    }
}

/// All devices, and the first of them.
fn make_devices(args: &args::Serve, log: &Log) -> Result<(Arc<Devices>, Arc<Device>), Failure> {
    let count = args.export.len() as u64 + 1;
    let limit = devices::memory_limit(args.memory_limit, count)?;
    let devices = Arc::new(devices::make(args, limit, log)?);
    let device = devices::first(&devices, args, log)?;
    for export in &args.export {
        export.add_to(&devices).map_err(|error| Failure::about("--export", error))?;
    }
    devices::warn_of_limit(device.mem_limit().saturating_mul(count), log);
    devices::warn_of_target(args.memory_target, device.mem_limit(), log);
    Ok((devices, device))
}

/// The manager that the environment names, before there are threads.
fn take_manager() -> Result<Option<Manager>, Failure> {
    Manager::take().map_err(|error| Failure::about("the service manager cannot be told", error))
}

/// Tells the manager that the server is ready, and how it is from then on.
fn tell(manager: &Manager, answers: Arc<Answers>, log: &Log) -> Option<Beats> {
    let told = manager.ready(move || answers.line());
    told.map_err(|why| log.complain(format!("the service manager cannot be told: {why}"))).ok()
}

/// The name of the export that clients get who ask for none.
fn default_export(args: &args::Serve) -> Result<&str, Failure> {
    let names = || std::iter::once(&args.name).chain(args.export.iter().map(|one| &one.name));
    let asked = args.default_export.as_ref().unwrap_or(&args.name);
    if names().any(|name| name == asked) {
        return Ok(asked);
    }
    let known = names().map(String::as_str).collect::<Vec<_>>().join(", ");
    Err(Failure::Usage(format!("--default-export: {asked:?} is not one of the devices: {known}")))
}

/// The NBD server of all devices. While it runs, the first device and that of the default export
/// are neither reset nor removed.
struct Nbd {
    server: Arc<Server>,
    _opened: Vec<Opened>,
}

impl Nbd {
    fn start(
        devices: &Arc<Devices>,
        first: &Arc<Device>,
        config: ServerConfig,
    ) -> Result<Nbd, Failure> {
        let default = devices.find(&config.name).unwrap_or_else(|| Arc::clone(first));
        let open = |device: &Arc<Device>| {
            let opened = device.open().map_err(devices::refusal)?.held_by("the NBD server");
            let sizeless = || Failure::about(device.name(), "it has no size");
            opened.disk().map(|_| opened).ok_or_else(sizeless)
        };
        let mut opened = vec![open(first)?];
        if !Arc::ptr_eq(first, &default) {
            opened.push(open(&default)?);
        }
        let server = Server::start_devices(Arc::clone(devices), config)?;
        Ok(Nbd { server: Arc::new(server), _opened: opened })
    }
}

/// Tells people where it serves.
fn announce(
    args: &args::Serve,
    devices: &Devices,
    server: Option<&Arc<Server>>,
    tree: Option<&Fuse>,
    log: &Log,
) {
    let name = &args.name;
    if let Some(server) = server {
        let name = args.default_export.as_ref().unwrap_or(name);
        log.mention(announcement(name, &server.uris()));
    }
    if let Some(tree) = tree {
        let sized = devices.find(name).is_some_and(|device| device.disk().is_some());
        log.mention(tree_announcement(name, tree.directory(), sized));
    }
    let exports = args.export.iter().map(|export| (&export.name, Some(export.size)));
    for (name, asked) in std::iter::once((name, args.size)).chain(exports) {
        devices.find(name).iter().for_each(|device| log.mention(described(device, asked)));
    }
}

/// A device, with its size and its limit.
fn described(device: &Device, asked: Option<u64>) -> String {
    let size = device.disk().map_or("no size yet".to_owned(), |disk| {
        let size = disk.config().disksize;
        format!("{} for clients to fill{}", human(size), rounded(asked, size))
    });
    let limit = match device.mem_limit() {
        0 => "no limit of memory".to_owned(),
        bytes => format!("at most {} of memory", human(bytes)),
    };
    format!("{}: {size}, {limit}", device.name())
}

/// A note if the size is not the one that was asked for.
fn rounded(asked: Option<u64>, size: u64) -> String {
    let other = asked.filter(|&asked| asked != size);
    other.map_or_else(String::new, |asked| {
        let were = if asked == 1 { "was" } else { "were" };
        format!(" ({} {were} asked for, rounded up to whole pages)", count(asked, "byte"))
    })
}

/// Where it serves, and a command to paste that shows the export.
fn announcement(name: &str, uris: &[String]) -> String {
    match uris {
        [] => format!("{name}: serving an abstract socket, which has no NBD address"),
        [example, ..] => {
            format!("{name}: serving {}; try: nbdinfo '{example}'", uris.join(" and "))
        }
    }
}

/// Where the tree is mounted, and a command to paste.
fn tree_announcement(name: &str, directory: &Path, sized: bool) -> String {
    let file = |of_device: &str| shell::word(&directory.join(name).join(of_device));
    let example = if sized {
        format!("losetup --find --show --direct-io=on --sector-size 4096 {}", file("disk"))
    } else {
        format!("echo 1G > {}", file("disksize"))
    };
    format!("{name}: mounted at {}; try: {example}", directory.display())
}

fn stored_bytes(devices: &Devices) -> u64 {
    let disks = devices.list().into_iter().filter_map(|device| device.disk());
    disks.map(|disk| disk.stat().orig_data_size).sum()
}

/// What is gone at the end.
fn farewell(name: &str, bytes: u64) -> String {
    let (stored, are) = (count(bytes, "stored byte"), if bytes == 1 { "is" } else { "are" });
    format!("{name}: stopped; {stored} ({}) {are} gone", human(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_announcement_can_be_pasted() {
        let uris = ["nbd+unix:///a?socket=/s".to_owned(), "nbd://[::1]:1/a".to_owned()];
        assert_eq!(
            announcement("a", &uris),
            "a: serving nbd+unix:///a?socket=/s and nbd://[::1]:1/a; \
             try: nbdinfo 'nbd+unix:///a?socket=/s'"
        );
    }

    #[test]
    fn what_is_to_be_pasted_is_quoted() {
        let directory = Path::new("/run/a b");
        let sized = tree_announcement("x", directory, true);
        assert!(sized.ends_with("--sector-size 4096 '/run/a b/x/disk'"), "{sized}");
        let bare = tree_announcement("x", directory, false);
        assert!(bare.ends_with("try: echo 1G > '/run/a b/x/disksize'"), "{bare}");
    }

    #[test]
    fn a_size_that_was_rounded_is_told() {
        assert_eq!(rounded(Some(4096), 4096), "");
        assert_eq!(rounded(None, 4096), "", "an attribute says what it was set to");
        assert_eq!(rounded(Some(1), 4096), " (1 byte was asked for, rounded up to whole pages)");
    }
}
