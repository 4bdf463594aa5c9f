//! The devices that were asked for: their limits, settings, tiers and backing device.
//!
//! Invariant: what was typed is checked before a device has a size. Locks: those of the devices.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use codec::{Algorithm, Codec};
use disk::NbdDisk;
use host::{PAGE_SIZE, limits};
use zram::study::Study;
use zram::{Attribute, AttributeError, Density, Device, DeviceDefaults, Devices, TiersConfig};
use zsmalloc::{Memory, MemoryConfig};

use super::watch::Log;
use crate::line::Failure;
use crate::line::size::human;
use crate::line::{args, choices};

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

/// The memory limit of each device that was asked for, or else its share of the default.
pub(super) fn memory_limit(asked: Option<u64>, devices: u64) -> Result<u64, Failure> {
    let system = limits::memory_available();
    let Some(limit) = asked else {
        let least = PAGE_SIZE as u64;
        let share = system.default_limit.map(|bytes| bytes / devices);
        return share.filter(|&bytes| bytes >= least).ok_or_else(|| {
            let why = "no memory is available, or the system does not say how much";
            Failure::Failed(format!("{why}; give --memory-limit"))
        });
    };
    if limit < PAGE_SIZE as u64 {
        return Err(Failure::Usage("--memory-limit: a page takes 4K, so that is the least".into()));
    }
    Ok(limit)
}

/// Warns if a target is never reached, because writes fail at the limit before.
pub(super) fn warn_of_target(target: Option<u64>, limit: u64, log: &Log) {
    if let Some(target) = target.filter(|&target| limit != 0 && target > limit) {
        log.complain(format!(
            "warning: --memory-target of {} is above the limit of {}: writes fail at the limit \
             before anything is done for the target",
            human(target),
            human(limit)
        ));
    }
}

/// Warns if the limit is close to the available memory, however it was set. 0 means no limit.
pub(super) fn warn_of_limit(limit: u64, log: &Log) {
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
            "warning: once all of {} is written the slot table takes {}; with the memory \
             limit of {} that is more than {LIMIT_WARN_PERCENT} % of the {} available",
            human(disksize),
            human(table),
            human(limit),
            human(available)
        ));
    }
}

pub(super) fn refusal(error: AttributeError) -> Failure {
    Failure::Failed(error.to_string())
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

/// The devices, without any device yet. Each has `mem_limit`.
pub(super) fn make(args: &args::Serve, mem_limit: u64, log: &Log) -> Result<Devices, Failure> {
    let all = mem_limit.saturating_mul(args.export.len() as u64 + 1);
    warn_of_table(sizes(args), all, log);
    let config = MemoryConfig { expected_bytes: all, ..MemoryConfig::for_disk(room(args)) };
    let memory = Memory::with_room_for(config, all)?;
    if memory.limit_max().is_some() {
        log.complain(
            "warning: the system refuses addresses for more than --memory-limit (see `ulimit -v`): \
             it cannot be raised while this server runs",
        );
    }
    let defaults = DeviceDefaults {
        algorithm: algorithm(args)?,
        shuffle: args.shuffle == choices::Shuffle::Auto,
        chain_order: args.chain_order,
        rule: args.rule,
        study: Study { design: args.design, free: args.free, ..Study::default() },
        mem_limit,
        memory_target: args.memory_target,
        tiers: tiers(args, log)?,
        track_ages: args.track_ages,
        share_equal_pages: args.share_equal_pages,
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
    let asked = sizes(args);
    // Devices that are added later through the tree get their sizes then.
    if args.fuse.is_some() { asked.max(TREE_ROOM) } else { asked }
}

/// Bytes of all disks that were asked for.
fn sizes(args: &args::Serve) -> u64 {
    let exports = args.export.iter().map(|export| export.size);
    exports.fold(args.size.unwrap_or(0), u64::saturating_add)
}

/// The device that was asked for, with its size if it was given one.
pub(super) fn first(
    devices: &Devices,
    args: &args::Serve,
    log: &Log,
) -> Result<Arc<Device>, Failure> {
    let id = devices.add_named(&args.name).map_err(refusal)?;
    let device = devices.get(id).ok_or_else(|| Failure::about(&args.name, "it is gone"))?;
    if let Some(path) = &args.backing {
        let path = backing_path(path, log)?;
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

/// What is written to `backing_dev`: the address of a server as it was typed, or a whole path.
fn backing_path(typed: &Path, log: &Log) -> Result<PathBuf, Failure> {
    if typed.to_str().is_some_and(NbdDisk::is_address) {
        return Ok(typed.to_owned());
    }
    warn_of_content(typed, log);
    std::path::absolute(typed).map_err(|error| Failure::about("--backing", error))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_near_what_there_is_is_close() {
        assert!(!is_close(80, 100), "exactly the share");
        assert!(is_close(81, 100));
        assert!(is_close(1, 0), "nothing to be had");
    }

    #[test]
    fn a_limit_asked_for_is_taken() {
        assert_eq!(memory_limit(Some(1 << 20), 1).unwrap(), 1 << 20);
    }
}
