//! The thread that holds a device's memory at a target, so that no second daemon is needed.
//!
//! ```text
//!   above the target? --no--> sleep, and look again
//!     | yes                     ^
//!     v                         |
//!   recompress the coldest pages, then write them back (see `hold`)
//!   not enough: sleep twice as long as the last time, up to 64 times as long
//! ```
//!
//! It exists only while a [`Policy`] does, and looks at one number when there is nothing to do.
//!
//! Invariant: a device has a target while it has a policy, and at no other time. `start` takes the
//! target in one step. `drop` makes it one above everything, so that the thread stops its work, and
//! gives it back after the thread has ended. The thread keeps the device alive only while it works.
//!
//! Lock: one, by which it is told to stop. It is a leaf.

use std::io;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::device::{Stop, Zram};

/// The shortest time between two looks.
const INTERVAL_MIN: Duration = Duration::from_millis(10);
/// If it can do nothing, it sleeps at most this many times as long.
const BACK_OFF_MAX: u32 = 64;

const NO_TARGET: &str = "a policy needs a target of at least one byte";

/// The settings of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyConfig {
    /// The target: bytes of touched frames of zspages.
    pub target_bytes: u64,
    /// The time between two looks, at least 10 ms.
    pub interval: Duration,
}

impl PolicyConfig {
    /// One look each second.
    pub fn new(target_bytes: u64) -> PolicyConfig {
        PolicyConfig { target_bytes, interval: Duration::from_secs(1) }
    }
}

/// While this lives, a device's memory is held at a target.
///
/// Memory stays within a 32nd of the target while something can be recompressed or written back. A
/// write that would exceed that waits until the coldest pages are elsewhere. If that is not
/// possible, only the device's own limit holds, and [`Zram::hold_stat`] says so.
#[derive(Debug)]
pub struct Policy {
    device: Weak<Zram>,
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

impl Policy {
    /// Starts the thread of a device. A device has one policy at a time. If the device does not
    /// note ages, it begins to, and pages that it has count as used at that time.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if there is no target, or if the device has a policy already. `OutOfMemory`
    /// if there are no addresses for the ages of pages. Otherwise, no thread could be started.
    pub fn start(device: &Arc<Zram>, config: PolicyConfig) -> io::Result<Policy> {
        let invalid = |what| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        if config.target_bytes == 0 {
            return invalid(NO_TARGET);
        }
        let no_memory = |error| io::Error::new(io::ErrorKind::OutOfMemory, error);
        device.note_ages().map_err(no_memory)?;
        let (hold, pool) = (&device.settings.hold, &device.slots.pool);
        // This is one step, so that if two threads start a policy, one of them is refused. The
        // thread finds a target.
        if !hold.take_target(pool, config.target_bytes) {
            return invalid("the device has a policy already");
        }
        let (weak, stop) = (Arc::downgrade(device), Arc::new(Stop::new()));
        let (of, told) = (Weak::clone(&weak), Arc::clone(&stop));
        let interval = config.interval.max(INTERVAL_MIN);
        let thread = host::thread::spawn("zram policy", move || {
            run(&of, &told, interval);
        });
        let thread = thread.inspect_err(|_| hold.drop_target(pool))?;
        Ok(Policy { device: weak, stop, thread: Some(thread) })
    }

    /// Holds the memory at another target from now on. If the target was lifted, it is in force
    /// again, and the thread looks at once.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for 0.
    pub fn set_target(&self, bytes: u64) -> io::Result<()> {
        if bytes == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, NO_TARGET));
        }
        if let Some(device) = self.device.upgrade() {
            device.settings.hold.change_target(&device.slots.pool, bytes);
        }
        self.stop.wake();
        Ok(())
    }
}

impl Drop for Policy {
    fn drop(&mut self) {
        self.stop.tell();
        if let Some(device) = self.device.upgrade() {
            device.settings.hold.change_target(&device.slots.pool, u64::MAX);
        }
        if let Some(thread) = self.thread.take() {
            // If it panicked, the panic has reported that.
            let _ = thread.join();
        }
        if let Some(device) = self.device.upgrade() {
            device.settings.hold.drop_target(&device.slots.pool);
        }
    }
}

fn run(device: &Weak<Zram>, stop: &Stop, interval: Duration) {
    let mut longer = 1;
    loop {
        let Some(device) = device.upgrade() else { return };
        longer = if device.hold() { 1 } else { (longer * 2).min(BACK_OFF_MAX) };
        drop(device);
        if stop.sleep(interval * longer) {
            return;
        }
    }
}
