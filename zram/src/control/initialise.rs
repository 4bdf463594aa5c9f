//! Getting a size, and losing it: `disksize`, `reset`.
//!
//! ```text
//!   disksize   codecs by priority -> Zram -> the limit as it is by then -> published
//!   reset      claimed -> the disk taken out, settings as after being added -> dropped, unclaimed
//! ```
//!
//! Invariant: a size that cannot be had leaves the device uninitialised; if it was for an
//! algorithm, all of them are forgotten, as in the kernel.

use std::sync::Arc;

use zsmalloc::PAGE_SIZE;

use super::claim::Claimed;
use super::errno::{AttributeError, Errno};
use super::life::Device;
use super::number::size;
use super::settings::{PRIMARY, Settings};
use crate::device::{Zram, ZramConfig};
use crate::error::ZramError;
use crate::stat::Stat;

/// Gives the device a size.
pub(crate) fn disksize(device: &Device, text: &str) -> Result<(), AttributeError> {
    let right = "a size: a whole number with K, M, G or T, as in 512M";
    // A number that does not fit wraps to nothing in the kernel, or is refused as nothing.
    let bytes = size(text).ok().filter(|&bytes| bytes > 0);
    let wrong = || AttributeError::invalid(format!("{:?} is not {right}", text.trim_end()));
    let bytes = bytes.and_then(|bytes| bytes.checked_next_multiple_of(PAGE_SIZE as u64));
    let bytes = bytes.ok_or_else(wrong)?;
    let _turn = device.turn()?;
    check_uninitialised(device)?;
    let disk = Arc::new(build(device, bytes)?);
    let mut state = device.state_mut();
    state.settings.forget_dictionaries();
    // Those that may have changed since the disk was begun.
    let settings = &state.settings;
    disk.set_mem_limit(settings.mem_limit);
    disk.set_writeback_limit(settings.writeback_limit);
    disk.enable_writeback_limit(settings.writeback_limit_enable);
    // Refused for 0 only, which is no setting.
    let _ = disk.set_writeback_batch_size(settings.writeback_batch_size);
    state.disk = Some(disk);
    Ok(())
}

/// What is fixed with the size can be set no more.
pub(crate) fn check_uninitialised(device: &Device) -> Result<(), AttributeError> {
    match device.state().disk {
        Some(_) => {
            let message = "the device is initialised already; reset it first";
            Err(AttributeError::busy(message))
        }
        None => Ok(()),
    }
}

/// The disk that the settings describe.
fn build(device: &Device, disksize: u64) -> Result<Zram, AttributeError> {
    let settings = device.state().settings.clone();
    let config = config(device, &settings, disksize).inspect_err(|_| {
        device.state_mut().settings.reset_algorithms(device.shared().defaults());
    })?;
    Zram::new(device.memory(), config).map_err(|error| refusal(&error))
}

fn config(
    device: &Device,
    settings: &Settings,
    disksize: u64,
) -> Result<ZramConfig, AttributeError> {
    let defaults = device.shared().defaults();
    let primary = settings.codec(PRIMARY)?;
    let recompression = [settings.codec(1)?, settings.codec(2)?, settings.codec(3)?];
    Ok(ZramConfig {
        algorithm: primary.unwrap_or_else(|| defaults.algorithm.clone()),
        recompression,
        backing: settings.backing.as_ref().map(|backing| Arc::clone(&backing.disk)),
        compressed_writeback: settings.compressed_writeback,
        track_ages: defaults.track_ages,
        read_only: defaults.read_only,
        chain_order: defaults.chain_order,
        rule: defaults.rule,
        design: defaults.design,
        mem_limit: settings.mem_limit,
        free: defaults.free,
        deferred: defaults.deferred,
        ..ZramConfig::new(device.name(), disksize)
    })
}

/// What a size would be refused for.
pub(crate) fn objection(device: &Device) -> Option<String> {
    let settings = device.state().settings.clone();
    config(device, &settings, PAGE_SIZE as u64).err().map(|error| error.to_string())
}

/// The figures of a device that has no size.
pub(crate) fn stat(device: &Device, settings: &Settings) -> Stat {
    let algorithm = settings.codec(PRIMARY).ok().flatten();
    Stat {
        name: device.name().into(),
        algorithm: algorithm.map_or_else(String::new, |codec| codec.to_string()),
        chain_order: device.shared().defaults().chain_order,
        mem_limit: settings.mem_limit,
        ..Stat::default()
    }
}

fn refusal(error: &ZramError) -> AttributeError {
    let errno = match error {
        ZramError::TooLarge { .. } | ZramError::Memory(_) => Errno::NoMemory,
        _ => Errno::Invalid,
    };
    AttributeError::new(errno, error.to_string())
}

/// Makes the device as it was when it was added.
pub(crate) fn reset(device: &Device) -> Result<(), AttributeError> {
    let claimed = device.claims().claim(device.name())?;
    reset_claimed(device, &claimed)
}

/// The same where nobody can open it.
pub(crate) fn reset_claimed(device: &Device, _claimed: &Claimed<'_>) -> Result<(), AttributeError> {
    let _turn = device.turn()?;
    let mut state = device.state_mut();
    state.settings.writeback_limit = state.writeback_limit();
    let disk = state.disk.take();
    state.settings.reset(device.shared().defaults());
    drop(state);
    // Outside of the lock: giving back what a disk stored takes a moment.
    drop(disk);
    Ok(())
}
