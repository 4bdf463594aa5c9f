//! The devices there are: `hot_add`, `hot_remove`.
//!
//! ```text
//!   Memory, defaults -- Devices --+-- 0: zram0      hot_add: the lowest number that is free
//!                                 +-- 2: zram2
//! ```
//!
//! Invariant: a number and a name belong to one device. Lock: one, around the list; no device is
//! called under it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use codec::Codec;
use zsmalloc::deferred::QueueConfig;
use zsmalloc::{LockDesign, Memory, Rule};

use super::errno::{AttributeError, Errno};
use super::initialise;
use super::life::Device;
use super::number::signed;
use crate::device::ZramConfig;
use crate::free::Free;

/// Devices at a time.
const DEVICES_MAX: usize = 4096;

/// What a device is made with unless its attributes say otherwise, and what a reset goes back to.
#[derive(Clone, Debug)]
pub struct DeviceDefaults {
    /// The primary algorithm.
    pub algorithm: Codec,
    /// At most 2^N frames per zspage, 0 to 4.
    pub chain_order: u32,
    /// How each size class picks its chain length.
    pub rule: Rule,
    /// How the allocator's locks are laid out.
    pub design: LockDesign,
    /// Bytes that the objects of one device may take at most; 0 = no limit, as in the kernel.
    pub mem_limit: u64,
    /// Bytes that the objects of one device are held at: what is coldest is recompressed, and
    /// written back. It notes ages then. `None`: only when asked to.
    pub memory_target: Option<u64>,
    /// Note when each page is used, so that ages may be written to `idle`.
    pub track_ages: bool,
    /// Refuse writes.
    pub read_only: bool,
    /// How discarded pages are freed.
    pub free: Free,
    /// How much may be pending with some of those ways.
    pub deferred: QueueConfig,
}

impl DeviceDefaults {
    /// Whether it is noted when each page is used.
    pub(crate) fn notes_ages(&self) -> bool {
        self.track_ages || self.memory_target.is_some()
    }
}

impl Default for DeviceDefaults {
    fn default() -> DeviceDefaults {
        let config = ZramConfig::new("", 0);
        DeviceDefaults {
            algorithm: config.algorithm,
            chain_order: config.chain_order,
            rule: config.rule,
            design: config.design,
            mem_limit: config.mem_limit,
            memory_target: None,
            track_ages: config.track_ages,
            read_only: config.read_only,
            free: config.free,
            deferred: config.deferred,
        }
    }
}

/// Judges the path of a backing device or of a dictionary before it is opened: `Err` says why not.
pub type PathGuard = Box<dyn Fn(&Path) -> Result<(), String> + Send + Sync>;

/// What devices share.
pub(crate) struct Shared {
    memory: Arc<Memory>,
    defaults: DeviceDefaults,
    guard: OnceLock<PathGuard>,
}

impl Shared {
    pub(crate) fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    pub(crate) fn defaults(&self) -> &DeviceDefaults {
        &self.defaults
    }

    /// Refuses a path that must not be opened from here.
    pub(crate) fn check_path(&self, path: &Path) -> Result<(), AttributeError> {
        let judged = self.guard.get().map_or(Ok(()), |guard| guard(path));
        judged.map_err(AttributeError::invalid)
    }
}

/// The devices there are.
pub struct Devices {
    shared: Arc<Shared>,
    list: Mutex<BTreeMap<u32, Arc<Device>>>,
}

impl Devices {
    /// None yet. All of them will keep their pages in `memory`.
    pub fn new(memory: Arc<Memory>, defaults: DeviceDefaults) -> Devices {
        let shared = Shared { memory, defaults, guard: OnceLock::new() };
        Devices { shared: Arc::new(shared), list: Mutex::default() }
    }

    /// Has paths judged before they are opened; the first guard stays.
    pub fn guard_paths(&self, guard: PathGuard) {
        // A second one is dropped: who serves the devices sets it, once.
        let _ = self.shared.guard.set(guard);
    }

    /// The memory of all of them.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.shared.memory
    }

    /// Adds a device and gives its number, the lowest that is free.
    ///
    /// # Errors
    ///
    /// `ENOSPC` when there are 4096.
    pub fn hot_add(&self) -> Result<u32, AttributeError> {
        self.add(None)
    }

    /// The same under a name of its own.
    ///
    /// # Errors
    ///
    /// As [`Devices::hot_add`]; `EEXIST` when a device has that name.
    pub fn add_named(&self, name: &str) -> Result<u32, AttributeError> {
        self.add(Some(name))
    }

    fn add(&self, name: Option<&str>) -> Result<u32, AttributeError> {
        let mut list = self.locked();
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

    /// Adds a device, as reading `hot_add` does; gives the text.
    ///
    /// # Errors
    ///
    /// As [`Devices::hot_add`].
    pub fn show_hot_add(&self) -> Result<String, AttributeError> {
        self.hot_add().map(|id| format!("{id}\n"))
    }

    /// Removes a device.
    ///
    /// # Errors
    ///
    /// `ENODEV` when there is none of this number; `EBUSY` when it is open.
    pub fn hot_remove(&self, id: u32) -> Result<(), AttributeError> {
        let unknown =
            || AttributeError::new(Errno::NoDevice, format!("there is no device of number {id}"));
        let device = self.get(id).ok_or_else(unknown)?;
        initialise::remove(&device)?;
        self.locked().remove(&id);
        Ok(())
    }

    /// Removes the device whose number is written to `hot_remove`.
    ///
    /// # Errors
    ///
    /// `EINVAL` or `ERANGE` for what is no number, `EINVAL` for a negative one; else as
    /// [`Devices::hot_remove`].
    pub fn store_hot_remove(&self, value: &[u8]) -> Result<(), AttributeError> {
        let id = Self::judge_hot_remove(&String::from_utf8_lossy(value))?;
        self.hot_remove(id).map_err(|error| error.of("hot_remove"))
    }

    /// The number that is written to `hot_remove`, whether there is such a device or not.
    ///
    /// # Errors
    ///
    /// Those of [`Devices::store_hot_remove`] that are the text's alone.
    pub fn judge_hot_remove(text: &str) -> Result<u32, AttributeError> {
        let right = "a device's number";
        let number = signed(text).map_err(|error| error.with(text, right));
        let id = number.and_then(|number| {
            let negative = |_| AttributeError::invalid(format!("{number} is not {right}"));
            u32::try_from(number).map_err(negative)
        });
        id.map_err(|error| error.of("hot_remove"))
    }

    /// The device of a number.
    pub fn get(&self, id: u32) -> Option<Arc<Device>> {
        self.locked().get(&id).cloned()
    }

    /// The device of a name.
    pub fn find(&self, name: &str) -> Option<Arc<Device>> {
        self.locked().values().find(|device| device.name() == name).cloned()
    }

    /// All of them, by number.
    pub fn list(&self) -> Vec<Arc<Device>> {
        self.locked().values().cloned().collect()
    }

    fn locked(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<Device>>> {
        // It is whole after every statement.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Devices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Devices").field("count", &self.locked().len()).finish_non_exhaustive()
    }
}
