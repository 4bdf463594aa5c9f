//! The thread that holds a device's memory at a target, so that no second daemon is needed.
//!
//! ```text
//!   sleep --> above the target? --no--> sleep
//!     ^            | yes
//!     |            v
//!     '----- recompress what is coldest, then write it back (see `hold`)
//!            not enough: sleep twice as long as the last time, up to 64 times
//! ```
//!
//! It exists only while a [`Policy`] does, and looks at one number when there is nothing to do.
//!
//! Lock: one for telling it to stop, a leaf.

use std::io;
use std::sync::{Arc, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use host::sync::unmodelled::{Condvar, Mutex, MutexGuard};

use crate::device::Zram;

/// The shortest time between two looks.
const INTERVAL_MIN: Duration = Duration::from_millis(10);
/// How many times longer it sleeps at most where it can do nothing.
const BACK_OFF_MAX: u32 = 64;

/// What a policy holds to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyConfig {
    /// Bytes of touched frames of zspages.
    pub target_bytes: u64,
    /// Time between two looks; at least 10 ms.
    pub interval: Duration,
}

impl PolicyConfig {
    /// A look each second.
    pub fn new(target_bytes: u64) -> PolicyConfig {
        PolicyConfig { target_bytes, interval: Duration::from_secs(1) }
    }
}

/// A device's memory is held at a target while this lives.
///
/// Memory stays within a 32nd of the target while there is something to recompress or write back
/// above it: a write that would go further waits until the coldest pages are elsewhere. Where that
/// cannot be, the device's own limit alone holds, and [`Zram::hold_stat`] says so.
#[derive(Debug)]
pub struct Policy {
    device: Weak<Zram>,
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Stop {
    told: Mutex<bool>,
    changed: Condvar,
}

impl Policy {
    /// Starts the thread of a device. A device has one policy at a time.
    ///
    /// # Errors
    ///
    /// `InvalidInput` without a target, for a device that does not note ages
    /// (`ZramConfig::track_ages`), and for one that has a policy; else no thread could be started.
    pub fn start(device: &Arc<Zram>, config: PolicyConfig) -> io::Result<Policy> {
        let invalid = |what| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        if config.target_bytes == 0 {
            return invalid("a policy needs a target of at least one byte");
        }
        if device.ages.is_none() {
            return invalid("a policy needs a device that notes when its pages are used");
        }
        let (hold, pool) = (&device.settings.hold, &device.slots.pool);
        // One step, so that of two that start one is refused; and the thread finds a target.
        if !hold.take_target(pool, config.target_bytes) {
            return invalid("the device has a policy already");
        }
        let (weak, stop) = (Arc::downgrade(device), Arc::<Stop>::default());
        let (of, told) = (Weak::clone(&weak), Arc::clone(&stop));
        let interval = config.interval.max(INTERVAL_MIN);
        let thread = host::thread::spawn("zram policy", move || {
            run(&of, &told, interval);
        });
        let thread = thread.inspect_err(|_| hold.drop_target(pool))?;
        Ok(Policy { device: weak, stop, thread: Some(thread) })
    }
}

impl Drop for Policy {
    fn drop(&mut self) {
        *self.stop.told() = true;
        self.stop.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // What it panicked with was reported by the panic.
            let _ = thread.join();
        }
        if let Some(device) = self.device.upgrade() {
            device.settings.hold.drop_target(&device.slots.pool);
        }
    }
}

impl Stop {
    fn told(&self) -> MutexGuard<'_, bool> {
        // A bool is never half done.
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps; true when it is time to stop.
    fn sleep(&self, time: Duration) -> bool {
        let told = self.told();
        let slept = self.changed.wait_timeout_while(told, time, |told| !*told);
        *slept.unwrap_or_else(PoisonError::into_inner).0
    }
}

fn run(device: &Weak<Zram>, stop: &Stop, interval: Duration) {
    let mut longer = 1;
    while !stop.sleep(interval * longer) {
        let Some(device) = device.upgrade() else { return };
        longer = if device.hold() { 1 } else { (longer * 2).min(BACK_OFF_MAX) };
    }
}
