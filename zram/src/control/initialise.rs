//! Getting a size, and losing it: `disksize`, `reset`. And what a disk is held at: `memory_target`.
//!
//! ```text
//!   disksize   codecs by priority -> Zram -> the limit as it is by then -> published
//!   reset      claimed -> the disk taken out, settings as when added -> dropped, unclaimed
//!   removal    as reset, and it stays claimed: this is noted before the turn is given up
//! ```
//!
//! Invariant: a size that is refused leaves the device uninitialised. If an algorithm was the
//! reason, all algorithms are forgotten, as in the kernel.
//!
//! Locks: the turn of the device, then its state. The state is given up before a disk is dropped,
//! because that takes a moment.

use std::sync::Arc;
use std::time::Duration;

use codec::Codec;

use super::claim::{Claimed, Turn};
use super::device::Device;
use super::settings::{PRIMARY, Settings};
use crate::attributes::values::{size_of, target_of};
use crate::attributes::{AttributeError, Errno};
use crate::device::Zram;
use crate::post::{Policy, PolicyConfig, Tiers};
use crate::terms::{PRIORITIES, ZramConfig, ZramError};

/// How long a thread usually looks at a disk that it has not opened, or at its pool.
const LOOK: Duration = Duration::from_millis(1);
/// The number of such times that are waited for. A disk that is kept longer, which should not
/// happen, ends later.
const LOOKS_MAX: u32 = 1000;

/// Gives the device a size.
pub(crate) fn disksize(device: &Device, text: &str) -> Result<(), AttributeError> {
    let bytes = size_of(text)?;
    let _turn = device.turn()?;
    device.check_uninitialised()?;
    let disk = Arc::new(build(device, bytes)?);
    let policy = policy(device, &disk)?;
    let tiers = tiers(device, &disk)?;
    let mut state = device.state_mut();
    state.settings.forget_dictionaries();
    // These settings may have changed since the disk was begun.
    let settings = &state.settings;
    disk.set_mem_limit(settings.mem_limit);
    disk.set_writeback_limit(settings.writeback_limit);
    disk.enable_writeback_limit(settings.writeback_limit_enable);
    // It refuses only 0, which no setting has.
    let _ = disk.set_writeback_batch_size(settings.batch_size());
    state.disk = Some(disk);
    (state.policy, state.tiers) = (policy, tiers);
    Ok(())
}

/// The tiers of a disk, if all devices have some and nobody chose its algorithms.
fn tiers(device: &Device, disk: &Arc<Zram>) -> Result<Option<Tiers>, AttributeError> {
    let chosen = device.state().settings.has_chosen_algorithms();
    let wanted = device.shared().defaults().tiers;
    let started = wanted.map(|config| Tiers::start(disk, config)).transpose();
    let tiers = started.map_err(|error| AttributeError::from_io("tiers", &error))?;
    match tiers {
        Some(tiers) if chosen => {
            tiers.turn_off("its algorithms were chosen");
            Ok(None)
        }
        tiers => Ok(tiers),
    }
}

/// The policy that holds a disk's memory at the device's target, if it has a target.
fn policy(device: &Device, disk: &Arc<Zram>) -> Result<Option<Policy>, AttributeError> {
    let bytes = device.state().settings.memory_target;
    if bytes == 0 { Ok(None) } else { hold(disk, bytes).map(Some) }
}

fn hold(disk: &Arc<Zram>, bytes: u64) -> Result<Policy, AttributeError> {
    let started = Policy::start(disk, PolicyConfig::new(bytes));
    started.map_err(|error| AttributeError::from_io("the memory target", &error))
}

/// Gives the device a target, another one, or none. A disk is held at it from now on.
pub(crate) fn memory_target(device: &Device, text: &str) -> Result<(), AttributeError> {
    let bytes = target_of(text)?;
    let _turn = device.turn()?;
    // Disk and policy stay as they are in this turn.
    let disk = device.disk();
    let begins = bytes > 0 && device.state().policy.is_none();
    let begun = disk.filter(|_| begins).map(|disk| hold(&disk, bytes)).transpose()?;
    let mut state = device.state_mut();
    let before = match &state.policy {
        Some(policy) if bytes > 0 => {
            let set = policy.set_target(bytes);
            set.map_err(|error| AttributeError::from_io("the memory target", &error))?;
            None
        }
        _ => std::mem::replace(&mut state.policy, begun),
    };
    state.settings.memory_target = bytes;
    drop(state);
    // Its thread may be at work, and is waited for. So this is done outside of the lock.
    drop(before);
    Ok(())
}

/// The disk that the settings describe.
fn build(device: &Device, disksize: u64) -> Result<Zram, AttributeError> {
    let settings = device.state().settings.clone();
    let config = config(device, &settings, disksize).inspect_err(|_| {
        device.state_mut().settings.reset_algorithms(device.shared().defaults());
    })?;
    Zram::new(device.memory(), config).map_err(|error| refusal(&error))
}

pub(super) fn config(
    device: &Device,
    settings: &Settings,
    disksize: u64,
) -> Result<ZramConfig, AttributeError> {
    let defaults = device.shared().defaults();
    let primary = settings.codec(PRIMARY)?;
    let mut recompression = [settings.codec(1)?, settings.codec(2)?, settings.codec(3)?];
    let learning = defaults.tiers.and_then(|tiers| tiers.density.learning_codec());
    if learning.is_some() && !settings.has_chosen_algorithms() {
        recompression[PRIORITIES - 2] = learning;
    }
    let primary = primary.unwrap_or_else(|| defaults.algorithm.clone());
    let shuffled = |codec: Codec| match defaults.shuffle {
        true => codec.with_sampled_shuffle(),
        false => codec,
    };
    Ok(ZramConfig {
        algorithm: shuffled(primary),
        recompression: recompression.map(|codec| codec.map(shuffled)),
        backing: settings.backing.as_ref().map(|backing| Arc::clone(&backing.disk)),
        compressed_writeback: settings.compressed_writeback,
        track_ages: defaults.notes_ages(),
        share_equal_pages: defaults.share_equal_pages,
        read_only: defaults.read_only,
        chain_order: settings.chain_order,
        rule: defaults.rule,
        mem_limit: settings.mem_limit,
        #[cfg(feature = "study")]
        study: defaults.study,
        ..ZramConfig::new(device.name(), disksize)
    })
}

fn refusal(error: &ZramError) -> AttributeError {
    let errno = match error {
        ZramError::TooLarge { .. } | ZramError::Memory(_) => Errno::NoMemory,
        _ => Errno::Invalid,
    };
    AttributeError::new(errno, error.to_string())
}

/// Resets the device to its state when it was added.
pub(crate) fn reset(device: &Device) -> Result<(), AttributeError> {
    let claimed = device.claims().claim(device.name())?;
    let turn = device.turn()?;
    clear(device, &claimed, &turn);
    Ok(())
}

/// Resets the device and removes it for good.
pub(crate) fn remove(device: &Device) -> Result<(), AttributeError> {
    let claimed = device.claims().claim(device.name())?;
    let turn = device.turn()?;
    clear(device, &claimed, &turn);
    claimed.for_good(&turn);
    Ok(())
}

/// Removes a device for good that has no size. False if it has one, or is in use.
pub(crate) fn remove_sizeless(device: &Device) -> bool {
    let Ok(claimed) = device.claims().claim(device.name()) else { return false };
    let Ok(turn) = device.turn() else { return false };
    if device.disk().is_some() {
        return false;
    }
    clear(device, &claimed, &turn);
    claimed.for_good(&turn);
    true
}

/// Resets a claimed device, in the caller's turn.
fn clear(device: &Device, _claimed: &Claimed<'_>, _turn: &Turn<'_>) {
    let mut state = device.state_mut();
    state.settings.writeback_limit = state.writeback_limit();
    let (disk, policy) = (state.disk.take(), state.policy.take());
    let tiers = state.tiers.take();
    state.settings.reset(device.shared().defaults());
    drop(state);
    // Their threads have the disk while they work, so they end first.
    drop((policy, tiers));
    // This is done outside of the lock, because freeing what a disk stored takes a moment.
    disk.into_iter().for_each(end);
}

/// Ends a disk. Threads that look at it have it for a moment more, and no other finds it. The jobs
/// that drain discarded pages have its blocks and its pool. Its memory is free and its backing file
/// is given up only when the last thread has let go and these jobs are done.
fn end(disk: Arc<Zram>) {
    let (memory, pool) = (Arc::clone(disk.memory()), Arc::clone(&disk.slots.pool));
    let Some(ended) = last(disk) else { return };
    drop(ended);
    // This cannot wait for itself, because no job waits for the device's turn, which is held here.
    memory.flush_deferred();
    // The memory's worker looks at every pool.
    drop(last(pool));
}

/// A shared value, once it has no other owner.
fn last<T>(mut shared: Arc<T>) -> Option<T> {
    for _ in 0..LOOKS_MAX {
        match Arc::try_unwrap(shared) {
            Ok(last) => return Some(last),
            Err(still) => shared = still,
        }
        std::thread::sleep(LOOK);
    }
    None
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::small;

    /// Another thread has the pool until it sees that this one waits for the pool's end.
    #[test]
    fn a_disk_has_ended_when_its_pool_has() {
        let disk = Zram::new(small::memory(), ZramConfig::new("zram0", 1 << 20)).expect("a disk");
        let (pool, over) = (Arc::clone(&disk.slots.pool), AtomicBool::new(false));
        // It is dropped after the value that has the pool.
        let (counters, gone) = (Arc::downgrade(&disk.counters), Arc::downgrade(&pool));
        std::thread::scope(|scope| {
            let over = &over;
            scope.spawn(move || {
                let waited_for = || counters.strong_count() == 0 && Arc::strong_count(&pool) > 1;
                // relaxed: a flag of its own.
                while !waited_for() && !over.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
                drop(pool);
            });
            end(Arc::new(disk));
            let ended = gone.strong_count() == 0;
            // relaxed: as above.
            over.store(true, Ordering::Relaxed);
            assert!(ended, "its frames are free when a reset returns");
        });
    }
}
