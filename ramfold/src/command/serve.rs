//! `ramfold serve`: makes a device, opens the doors to it, and ends them.
//!
//! ```text
//!   signals watched -> devices -> NBD server -> control socket -> mount -> "serving ..." -> signal
//!                                                                                             |
//!   exit <- "... are gone" <- control socket, NBD server stopped <- unmounted <---------------'
//! ```
//!
//! Invariant: signals are watched before there is a socket. So a signal that comes early does not
//! leave one behind. [`ending`] says when a server ends, and what further signals do.
//!
//! Locks: those of `ending` and of the board in `watch`.

mod answers;
mod document;
mod doors;
mod ending;
mod episodes;
mod log;
mod notice;
mod page_types;
mod relief;
mod tree;
mod watch;

use std::fmt::Display;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use codec::{Algorithm, Codec};
use host::{PAGE_SIZE, limits};
use serve::control::Handler;
use serve::fuse::Fuse;
use serve::{Server, ServerConfig, notify, shell};
use zram::study::Study;
use zram::{
    Attribute, AttributeError, Density, Device, DeviceDefaults, Devices, Opened, TiersConfig,
};
use zsmalloc::{Memory, MemoryConfig};

use crate::line::Failure;
use crate::line::size::{count, human};
use crate::line::{args, choices};
use answers::{Answers, Seen};
use doors::Doors;
use ending::Ending;
use log::{Log, Voice};
use relief::Relief;
use watch::Watch;

/// A limit above this share of the available memory gets a warning. The kernel kills a process that
/// touches memory past a control group's limit.
const LIMIT_WARN_PERCENT: u64 = 80;

/// So many bytes of a backing file are looked at. The first superblock of a file system is within
/// them (btrfs at 64 KiB, ZFS within 256 KiB).
const HEAD_BYTES: u64 = 256 << 10; // 256 KiB
/// The largest dictionary in bytes, as for `algorithm_params`.
const DICTIONARY_MAX: u64 = 16 << 20; // 16 MiB
/// Addresses for all disks of a tree together, unless the first is larger.
const TREE_ROOM: u64 = 8 << 40; // 8 TiB

/// Serves until SIGINT, SIGTERM or SIGHUP, or until the mount is gone and there is no other door.
pub(super) fn run(args: args::Serve) -> Result<(), Failure> {
    // Called before there are threads. If it fails, the heap only keeps more freed memory.
    let _ = host::bound_heap();
    let log = Log::start(Voice::of(&args))?;
    let outcome = serve(&args, &log);
    log.finish();
    outcome
}

fn serve(args: &args::Serve, log: &Log) -> Result<(), Failure> {
    let ending = Ending::watch(log)?;
    let watch = Watch::start(log, Relief::new(host::Pressure::find()))?;
    let limit = memory_limit(args.memory_limit)?;
    let doors = Doors::choose(args, log)?;
    let devices = Arc::new(devices(args, limit, log)?);
    let device = first_device(&devices, args, log)?;
    warn_of_limit(device.mem_limit(), log);
    let start = || Nbd::start(&devices, &device, doors.config(args, watch.observer()));
    let nbd = doors.nbd.then(start).transpose()?;
    let server = nbd.as_ref().map(|nbd| &nbd.server);
    server.map(Arc::clone).into_iter().for_each(|server| ending.at_last(move || server.shut()));
    let mount = |directory| tree::mount(directory, &devices, log);
    let tree = args.fuse.as_deref().map(mount).transpose()?;
    let seen = Seen { board: watch.board(), relieved: watch.relieved() };
    let answers = Answers::new(Arc::clone(&devices), server.cloned(), tree.clone(), seen);
    let handler: Arc<Handler> = Arc::new(move |request| answers.answer(request));
    let (control, target) = doors.open_control(&handler, &watch.observer(), log)?;
    let control = control.map(Arc::new);
    control.clone().into_iter().for_each(|control| ending.at_last(move || control.shut()));
    tree.as_ref().map(|tree| ending.watch_mount(tree)).transpose()?;
    watch.devices(&devices, &target);
    announce(args, &device, server, tree.as_deref(), log);
    ending.wait(tree.as_deref(), server.is_some());
    // The server ends whether a service manager listens or not.
    let _ = notify::stopping();
    nbd.iter().for_each(|nbd| nbd.server.stop());
    control.iter().for_each(|control| control.stop());
    tree.iter().for_each(|tree| tree.wait());
    log.mention(farewell(&args.name, &devices));
    Ok(())
}

/// The NBD server of all devices. While it runs, the first is neither reset nor removed.
struct Nbd {
    server: Arc<Server>,
    _opened: Opened,
}

impl Nbd {
    fn start(
        devices: &Arc<Devices>,
        first: &Arc<Device>,
        config: ServerConfig,
    ) -> Result<Nbd, Failure> {
        let opened = first.open().map_err(refusal)?.held_by("the NBD server");
        if opened.disk().is_none() {
            return Err(Failure::about(first.name(), "it has no size"));
        }
        let server = Server::start_devices(Arc::clone(devices), config)?;
        Ok(Nbd { server: Arc::new(server), _opened: opened })
    }
}

/// The memory limit that was asked for, or else the default.
fn memory_limit(asked: Option<u64>) -> Result<u64, Failure> {
    let system = limits::memory_available();
    let Some(limit) = asked else {
        let least = PAGE_SIZE as u64;
        return system.default_limit.filter(|&bytes| bytes >= least).ok_or_else(|| {
            let why = "no memory is available, or the system does not say how much";
            Failure::Failed(format!("{why}; give --memory-limit"))
        });
    };
    if limit < PAGE_SIZE as u64 {
        return Err(Failure::Usage("--memory-limit: a page takes 4K, so that is the least".into()));
    }
    Ok(limit)
}

/// Warns if the limit is close to the available memory, however it was set. 0 means no limit.
fn warn_of_limit(limit: u64, log: &Log) {
    let bytes = if limit == 0 { u64::MAX } else { limit };
    let available = limits::memory_available().to_be_had();
    if let Some(available) = available.filter(|&available| is_close(bytes, available)) {
        let limit = match limit {
            0 => "no memory limit".to_owned(),
            _ => format!("the memory limit of {}", human(limit)),
        };
        log.complain(format!(
            "warning: {limit} is more than {LIMIT_WARN_PERCENT} % of the {} available",
            human(available)
        ));
    }
}

const fn is_close(limit: u64, available: u64) -> bool {
    limit > available / 100 * LIMIT_WARN_PERCENT
}

/// Warns if the cells would take too much. They do not count in the limit, and there are 8 bytes
/// for each page of a fully written disk.
fn warn_of_table(disksize: u64, limit: u64, log: &Log) {
    let table = disksize / PAGE_SIZE as u64 * 8;
    let available = limits::memory_available().to_be_had();
    let is_the_table =
        |&bytes: &u64| is_close(limit.saturating_add(table), bytes) && !is_close(limit, bytes);
    if let Some(available) = available.filter(is_the_table) {
        log.complain(format!(
            "warning: once all of --size {} is written its slot table takes {}; with the memory \
             limit of {} that is more than {LIMIT_WARN_PERCENT} % of the {} available",
            human(disksize),
            human(table),
            human(limit),
            human(available)
        ));
    }
}

/// The algorithm with its dictionary, if there is one.
fn algorithm(args: &args::Serve) -> Result<Codec, Failure> {
    let algorithm = args.algorithm.clone().unwrap_or(Codec::new(Algorithm::Lz4));
    let Some(path) = &args.dictionary else { return Ok(algorithm) };
    args::check_takes_dictionary(&algorithm)?;
    let failed = |why: &dyn Display| Failure::about(path.display(), why);
    // Looked at before it is opened. Opening a pipe waits for its other end, and reading a file of
    // /proc, which has no length, may wait for more.
    match fs::metadata(path).map_err(|error| failed(&error))? {
        status if !status.is_file() => return Err(failed(&"it is not a file")),
        status if status.len() == 0 => return Err(failed(&"it is empty")),
        _ => {}
    }
    let file = File::open(path).map_err(|error| failed(&error))?;
    let mut content = Vec::new();
    let read = file.take(DICTIONARY_MAX + 1).read_to_end(&mut content);
    read.map_err(|error| failed(&error))?;
    if content.len() as u64 > DICTIONARY_MAX {
        return Err(failed(&"more than 16M, too large for a dictionary"));
    }
    let codec = algorithm.with_dictionary(&content);
    codec.map_err(|error| failed(&error))
}

fn devices(args: &args::Serve, mem_limit: u64, log: &Log) -> Result<Devices, Failure> {
    warn_of_table(args.size.unwrap_or(0), mem_limit, log);
    let config = MemoryConfig { expected_bytes: mem_limit, ..MemoryConfig::for_disk(room(args)) };
    let memory = Memory::with_room_for(config, mem_limit)?;
    if memory.limit_max().is_some() {
        log.complain(
            "warning: the system refuses addresses for more than --memory-limit (see `ulimit -v`): \
             it cannot be raised while this server runs",
        );
    }
    let defaults = DeviceDefaults {
        algorithm: algorithm(args)?,
        chain_order: args.chain_order,
        rule: args.rule,
        study: Study { design: args.design, free: args.free, ..Study::default() },
        mem_limit,
        memory_target: args.memory_target,
        tiers: tiers(args, log)?,
        track_ages: args.track_ages,
        read_only: args.read_only,
    };
    Ok(Devices::new(memory, defaults))
}

/// The tiers that were asked for, unless something else chooses the algorithms.
fn tiers(args: &args::Serve, log: &Log) -> Result<Option<TiersConfig>, Failure> {
    let auto = args.writeback == choices::Writeback::Auto;
    if auto && (args.backing.is_none() || args.density == Density::Fast) {
        let why = "--writeback auto needs --backing, and --density balanced or dense";
        return Err(Failure::Usage(why.into()));
    }
    if args.density == Density::Fast {
        return Ok(None);
    }
    let chosen =
        [(args.algorithm.is_some(), "--algorithm"), (args.dictionary.is_some(), "--dictionary")];
    if let Some((_, option)) = chosen.into_iter().find(|(given, _)| *given) {
        log.complain(format!(
            "warning: {option} turns --density {} off: every page stays as it is written",
            args.density
        ));
        return Ok(None);
    }
    Ok(Some(TiersConfig {
        age: Duration::from_secs(args.tier_age.into()),
        cpu_percent: args.tier_cpu,
        write_back: auto,
        ..TiersConfig::new(args.density)
    }))
}

/// Bytes of all disks together. Addresses are reserved for them.
fn room(args: &args::Serve) -> u64 {
    let asked = args.size.unwrap_or(0);
    // Devices that are added later through the tree get their sizes then.
    if args.fuse.is_some() { asked.max(TREE_ROOM) } else { asked }
}

/// The device that was asked for, with its size if it was given one.
fn first_device(devices: &Devices, args: &args::Serve, log: &Log) -> Result<Arc<Device>, Failure> {
    let id = devices.add_named(&args.name).map_err(refusal)?;
    let device = devices.get(id).ok_or_else(|| Failure::about(&args.name, "it is gone"))?;
    if let Some(path) = &args.backing {
        warn_of_content(path, log);
        let path = std::path::absolute(path).map_err(|error| Failure::about("--backing", error))?;
        let set = device.store(Attribute::BackingDev, path.as_os_str().as_bytes());
        set.map_err(|error| {
            // The message names the option that was typed, and not the attribute.
            let (told, name) = (error.to_string(), Attribute::BackingDev.name());
            let why = told.strip_prefix(name).and_then(|rest| rest.strip_prefix(": "));
            Failure::about("--backing", why.unwrap_or(&told))
        })?;
    }
    for change in &args.set {
        change.apply(devices).map_err(|error| Failure::about("--set", error))?;
    }
    if let Some(size) = args.size {
        device.store(Attribute::Disksize, size.to_string().as_bytes()).map_err(refusal)?;
    }
    Ok(device)
}

/// Warns if a backing file has content, because it will be overwritten.
fn warn_of_content(path: &Path, log: &Log) {
    // Anything else is refused later, and so is a file without a length. Reading them might wait.
    let may_be_read = |status: fs::Metadata| {
        status.file_type().is_block_device() || status.is_file() && status.len() > 0
    };
    if !fs::metadata(path).is_ok_and(may_be_read) {
        return;
    }
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head));
    if read.is_ok() && head.iter().any(|&byte| byte != 0) {
        log.complain(format!(
            "warning: --backing {} is not empty; what it holds is overwritten",
            path.display()
        ));
    }
}

fn refusal(error: AttributeError) -> Failure {
    Failure::Failed(error.to_string())
}

/// Tells people and the service manager where it serves.
fn announce(
    args: &args::Serve,
    device: &Device,
    server: Option<&Arc<Server>>,
    tree: Option<&Fuse>,
    log: &Log,
) {
    let name = &args.name;
    if let Some(server) = server {
        log.mention(announcement(name, &server.uris()));
    }
    if let Some(tree) = tree {
        log.mention(tree_announcement(name, tree.directory(), device.disk().is_some()));
    }
    let size = device.disk().map_or("no size yet".to_owned(), |disk| {
        let size = disk.config().disksize;
        format!("{} for clients to fill{}", human(size), rounded(args.size, size))
    });
    let limit = match device.mem_limit() {
        0 => "no limit of memory".to_owned(),
        bytes => format!("at most {} of memory", human(bytes)),
    };
    log.mention(format!("{name}: {size}, {limit}"));
    if let Err(error) = notify::ready() {
        log.complain(format!("the service manager cannot be told: {error}"));
    }
}

/// A note if the size is not the one that was asked for.
fn rounded(asked: Option<u64>, size: u64) -> String {
    let other = asked.filter(|&asked| asked != size);
    other.map_or_else(String::new, |asked| {
        format!(" (--size: {}, rounded up to whole pages)", count(asked, "byte"))
    })
}

/// Where it serves, and a command to paste that shows the export.
fn announcement(name: &str, uris: &[String]) -> String {
    let example = uris.first().map_or("", String::as_str);
    format!("{name}: serving {}; try: nbdinfo '{example}'", uris.join(" and "))
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

fn farewell(name: &str, devices: &Devices) -> String {
    let disks = devices.list().into_iter().filter_map(|device| device.disk());
    let bytes: u64 = disks.map(|disk| disk.stat().orig_data_size).sum();
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
        assert_eq!(rounded(Some(1), 4096), " (--size: 1 byte, rounded up to whole pages)");
    }

    #[test]
    fn a_limit_near_what_there_is_is_close() {
        assert!(!is_close(80, 100), "exactly the share");
        assert!(is_close(81, 100));
        assert!(is_close(1, 0), "nothing to be had");
    }

    #[test]
    fn a_limit_asked_for_is_taken() {
        assert_eq!(memory_limit(Some(1 << 20)).unwrap(), 1 << 20);
    }
}
