//! The devices that were asked for: their settings, their tiers, their backing device.
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
use zram::study::Study;
use zram::{Attribute, Density, Device, DeviceDefaults, Devices, TiersConfig};
use zsmalloc::{Memory, MemoryConfig};

use super::log::Log;
use super::{refusal, warn_of_table};
use crate::line::Failure;
use crate::line::{args, choices};

/// So many bytes of a backing file are looked at. The first superblock of a file system is within
/// them (btrfs at 64 KiB, ZFS within 256 KiB).
const HEAD_BYTES: u64 = 256 << 10; // 256 KiB

/// The largest dictionary in bytes, as for `algorithm_params`.
const DICTIONARY_MAX: u64 = 16 << 20; // 16 MiB
/// Addresses for all disks of a tree together, unless the first is larger.
const TREE_ROOM: u64 = 8 << 40; // 8 TiB

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
