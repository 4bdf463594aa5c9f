//! The list of devices: `hot_add`, `hot_remove`.
//!
//! ```text
//!   Memory, defaults -- Devices --+-- 0: zram0      hot_add: the lowest number that is free
//!                                 +-- 2: zram2
//! ```
//!
//! Invariant: a number and a name belong to one device. Lock: one, around the list, a leaf. No
//! device is called while it is held.

use std::collections::BTreeMap;
use std::sync::Arc;

use host::Rank;
use host::unmodelled::RankedMutex;
use zsmalloc::Memory;

use super::device::Device;
use super::initialise;
use super::shared::{DeviceDefaults, PathGuard, Shared};
use crate::attributes::{AttributeError, Errno, signed};

/// The most devices at a time.
const DEVICES_MAX: usize = 4096;

/// All devices of a memory.
pub struct Devices {
    shared: Arc<Shared>,
    list: RankedMutex<BTreeMap<u32, Arc<Device>>>,
}

impl Devices {
    /// A list without devices. All of them will keep their pages in `memory`.
    pub fn new(memory: Arc<Memory>, defaults: DeviceDefaults) -> Devices {
        let list = RankedMutex::new(Rank::Leaf, BTreeMap::new());
        Devices { shared: Arc::new(Shared::new(memory, defaults)), list }
    }

    /// Sets a guard that judges paths before they are opened. Only the first guard is kept.
    pub fn guard_paths(&self, guard: PathGuard) {
        self.shared.guard_paths(guard);
    }

    /// The memory that all devices share.
    pub fn memory(&self) -> &Arc<Memory> {
        self.shared.memory()
    }

    /// Adds a device and returns its number, the lowest that is free.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if there are 4096 already.
    pub fn hot_add(&self) -> Result<u32, AttributeError> {
        self.add(None)
    }

    /// Adds a device with a name of its own.
    ///
    /// # Errors
    ///
    /// Those of [`Devices::hot_add`], and `EEXIST` if a device has that name.
    pub fn add_named(&self, name: &str) -> Result<u32, AttributeError> {
        self.add(Some(name))
    }

    fn add(&self, name: Option<&str>) -> Result<u32, AttributeError> {
        let mut list = self.list.lock();
        if list.len() >= DEVICES_MAX {
            let message = format!("there are {DEVICES_MAX} devices, and no more can be added");
            return Err(AttributeError::new(Errno::NoSpace, message));
        }
        let taken = |name: &str| list.values().any(|device| device.name() == name);
        if let Some(name) = name.filter(|name| taken(name)) {
            let message = format!("there is a device of the name {name:?}");
            return Err(AttributeError::new(Errno::Exists, message));
        }
        let name_of = |id: u32| name.map_or_else(|| format!("zram{id}"), str::to_owned);
        let free = (0..).map(|id| (id, name_of(id)));
        let free =
            free.filter(|(id, own)| !list.contains_key(id) && (name.is_some() || !taken(own)));
        let Some((id, name)) = { free }.next() else { unreachable!("fewer devices than numbers") };
        list.insert(id, Arc::new(Device::new(id, name, Arc::clone(&self.shared))));
        Ok(id)
    }

    /// Adds a device, as reading `hot_add` does. Returns the text.
    ///
    /// # Errors
    ///
    /// Those of [`Devices::hot_add`].
    pub fn show_hot_add(&self) -> Result<String, AttributeError> {
        self.hot_add().map(|id| format!("{id}\n"))
    }

    /// Removes a device.
    ///
    /// # Errors
    ///
    /// `ENODEV` if no device has this number; `EBUSY` if it is open.
    pub fn hot_remove(&self, id: u32) -> Result<(), AttributeError> {
        let unknown =
            || AttributeError::new(Errno::NoDevice, format!("there is no device of number {id}"));
        let device = self.get(id).ok_or_else(unknown)?;
        self.remove(&device)
    }

    /// Removes the device of a name.
    ///
    /// # Errors
    ///
    /// `ENODEV` if no device has this name; `EBUSY` if it is open.
    pub fn remove_named(&self, name: &str) -> Result<(), AttributeError> {
        let unknown =
            || AttributeError::new(Errno::NoDevice, format!("there is no device {name:?}"));
        let device = self.find(name).ok_or_else(unknown)?;
        self.remove(&device)
    }

    /// Removes this device and no other, if it has no size and is not open. The caller has added
    /// it, and gives it up. False if it stays.
    pub fn give_up(&self, device: &Device) -> bool {
        let removed = initialise::remove_sizeless(device);
        if removed {
            let gone = self.list.lock().remove(&device.id());
            // A device is not dropped under the lock.
            drop(gone);
        }
        removed
    }

    fn remove(&self, device: &Device) -> Result<(), AttributeError> {
        initialise::remove(device)?;
        // The number is this device's until it is off the list.
        let gone = self.list.lock().remove(&device.id());
        // A device is not dropped under the lock.
        drop(gone);
        Ok(())
    }

    /// Removes the device whose number is written to `hot_remove`.
    ///
    /// # Errors
    ///
    /// `EINVAL` or `ERANGE` if the text is not a number, `EINVAL` if it is negative, and those of
    /// [`Devices::hot_remove`].
    pub fn store_hot_remove(&self, value: &[u8]) -> Result<(), AttributeError> {
        let id = Self::judge_hot_remove(&String::from_utf8_lossy(value))?;
        self.hot_remove(id).map_err(|error| error.of("hot_remove"))
    }

    /// The number that is written to `hot_remove`, whether there is such a device or not.
    ///
    /// # Errors
    ///
    /// Those errors of [`Devices::store_hot_remove`] that depend only on the text.
    pub fn judge_hot_remove(text: &str) -> Result<u32, AttributeError> {
        let right = "a device's number";
        let number = signed(text).map_err(|error| error.with(text, right));
        let id = number.and_then(|number| {
            let negative = |_| AttributeError::invalid(format!("{number} is not {right}"));
            u32::try_from(number).map_err(negative)
        });
        id.map_err(|error| error.of("hot_remove"))
    }

    /// The device with a number.
    pub fn get(&self, id: u32) -> Option<Arc<Device>> {
        self.list.lock().get(&id).cloned()
    }

    /// The device with a name.
    pub fn find(&self, name: &str) -> Option<Arc<Device>> {
        self.list.lock().values().find(|device| device.name() == name).cloned()
    }

    /// All devices, by number.
    pub fn list(&self) -> Vec<Arc<Device>> {
        self.list.lock().values().cloned().collect()
    }
}

impl std::fmt::Debug for Devices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Devices").field("count", &self.list.lock().len()).finish_non_exhaustive()
    }
}
