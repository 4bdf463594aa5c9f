//! A device in use: while it is open, its disk stays.
//!
//! Invariant: an opened device is among the holders in its claims until it is dropped. Lock: that
//! of the claims, a leaf.

use std::sync::Arc;

use super::device::Device;
use crate::attributes::AttributeError;
use crate::device::Zram;

/// A device in use: it is neither reset nor removed until this is dropped.
///
/// It may have no size yet, and may get one meanwhile.
pub struct Opened {
    device: Arc<Device>,
    number: u64,
}

impl Opened {
    /// Opens a device.
    pub(crate) fn new(device: Arc<Device>) -> Result<Opened, AttributeError> {
        let number = device.claims().enter(device.name())?;
        Ok(Opened { device, number })
    }

    /// Names the holder, for a user who finds the device busy: `mkfs.ext4 (pid 17)`.
    #[must_use]
    pub fn held_by(self, who: impl Into<String>) -> Opened {
        let who = who.into();
        self.held_by_whom(move || who.clone())
    }

    /// As [`held_by`](Self::held_by), for a name that may change. It is asked for each time the
    /// device is found busy.
    #[must_use]
    pub fn held_by_whom(self, who: impl Fn() -> String + Send + Sync + 'static) -> Opened {
        self.device.claims().name(self.number, Arc::new(who));
        self
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Its disk, once it has a size. It is the same disk until this is dropped.
    pub fn disk(&self) -> Option<Arc<Zram>> {
        self.device.disk()
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.device.claims().leave(self.number);
    }
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opened").field("device", &self.device.name()).finish_non_exhaustive()
    }
}

impl Device {
    /// Opens the device.
    ///
    /// # Errors
    ///
    /// `EBUSY` while it is being reset or removed; `ENODEV` after that.
    pub fn open(self: &Arc<Device>) -> Result<Opened, AttributeError> {
        Opened::new(Arc::clone(self))
    }
}
